#include "service/file.h"
#include "base/base.h"

void file_workers_drop(struct box *b)
{
	(void)b;
}
