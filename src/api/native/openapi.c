#include "api/native/native.h"
#include "base/base.h"

void get_openapi(void *arg, struct http_req *q, const struct route *r)
{
	struct err e = { 0 };

	(void)arg;
	(void)r;
	err_set(&e, ERR_NOT_FOUND, -ENOENT, "the document is not in this build");
	http_fail(q, &e);
}
