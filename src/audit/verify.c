/* Verifies the chain of an audit log, and what is kept of removed files. */
#include "audit/audit.h"
#include "base/base.h"
#include "audit/chain.h"

#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>

struct search {
	const struct chain *chain;
	const struct audit_head *kept; /* NULL = none */
	bool found;
};

static int look(void *arg, uint64_t seq, uint64_t offset)
{
	struct search *s = arg;

	(void)offset;
	if (s->kept && seq == s->kept->seq)
		s->found = !strcmp(s->chain->head.hash, s->kept->hash);
	return 0;
}

static int check_kept(const struct search *s, const char *path, struct err *e)
{
	if (!s->kept || s->found)
		return 0;
	if (s->kept->seq > s->chain->head.seq)
		return err_set(e, ERR_INTERNAL, -EBADMSG,
			       "audit log '%s': ends with record %" PRIu64 ", but once contained record %" PRIu64, path,
			       s->chain->head.seq, s->kept->seq);
	return err_set(e, ERR_INTERNAL, -EBADMSG,
		       "audit log '%s': record %" PRIu64 " is not the one whose hash was stored", path, s->kept->seq);
}

int audit_verify(const char *path, struct audit_verdict *ret, struct err *e)
{
	return audit_verify_kept(path, NULL, ret, e);
}

int audit_verify_kept(const char *path, const struct audit_head *kept, struct audit_verdict *ret, struct err *e)
{
	AUTO(chain_done) struct chain c = { 0 };
	struct search s = { .chain = &c, .kept = kept };
	AUTO_CLOSE int fd = -1;
	uint64_t good = 0;
	struct stat st;
	int r;

	*ret = (struct audit_verdict){ 0 };
	/* O_NONBLOCK: a FIFO of that name must not hold us. */
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_sys(e, errno == ENOENT ? ERR_NOT_FOUND : ERR_INTERNAL, -errno, "audit log '%s'", path);
	if (!S_ISREG(st.st_mode))
		return err_set(e, ERR_INVALID, -EINVAL, "audit log '%s': not a regular file", path);
	r = chain_init(&c, e);
	if (r < 0)
		return r;
	r = chain_scan(&c, fd, (uint64_t)st.st_size, look, &s, &good, e);
	*ret = (struct audit_verdict){ .head = c.head, .records = c.head.seq };
	if (r < 0)
		return err_wrap(e, r, "audit log '%s'", path);
	ret->torn = (uint64_t)st.st_size - good;
	if (!ret->torn)
		return check_kept(&s, path, e);
	return err_set(e, ERR_INTERNAL, -EBADMSG,
		       "audit log '%s': %" PRIu64 " bytes after record %" PRIu64 " are not a complete record", path,
		       ret->torn, c.head.seq);
}
