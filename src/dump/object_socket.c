#include "dump/object.h"
#include "base/base.h"

int object_socket(struct opened *x, struct err *e)
{
	return proc_refuse(x->p, e, "has a socket open");
}
