/* Verifies an audit log without a daemon. */
#include "client/verify.h"
#include "base/base.h"

#include <unistd.h>

int verify_log(const char *path, const struct audit_head *kept, struct verify_result *ret, struct err *e)
{
	struct audit_verdict v = { 0 };
	struct err why = { 0 };
	int r;

	if (access(path, R_OK) < 0)
		return err_sys(e, errno == ENOENT ? ERR_NOT_FOUND : ERR_DENIED, -errno, "%s", path);
	r = audit_verify_kept(path, kept, &v, &why);
	if (r < 0 && r != -EBADMSG) {
		*e = why;
		return r;
	}
	*ret = (struct verify_result){ .ok = r == 0, .records = v.records, .seq = v.head.seq };
	snprintf(ret->hash, sizeof(ret->hash), "%s", v.head.hash);
	snprintf(ret->why, sizeof(ret->why), "%s", why.msg);
	return 0;
}
