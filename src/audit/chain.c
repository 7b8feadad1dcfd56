/* Computes and checks the hashes that tie each line of the audit log to the one before. */
#include "audit/chain.h"
#include "base/base.h"
#include "audit/line.h"

#include <inttypes.h>
#include <openssl/evp.h>
#include <unistd.h>

#define STRETCH (MIB)

int chain_init(struct chain *c, struct err *e)
{
	*c = (struct chain){ .ctx = EVP_MD_CTX_new(), .md = EVP_MD_fetch(NULL, "SHA256", NULL) };
	memset(c->head.hash, '0', AUDIT_HEX);
	if (c->ctx && c->md)
		return 0;
	chain_done(c);
	return err_set(e, ERR_INTERNAL, -ENOMEM, "audit log: the crypto library has no SHA-256");
}

void chain_done(struct chain *c)
{
	EVP_MD_CTX_free(c->ctx);
	EVP_MD_free(c->md);
	c->ctx = NULL;
	c->md = NULL;
}

int chain_hash(struct chain *c, const void *data, size_t len, char ret[65])
{
	static const char digits[] = "0123456789abcdef";
	unsigned char raw[32];

	if (EVP_DigestInit_ex2(c->ctx, c->md, NULL) != 1 || EVP_DigestUpdate(c->ctx, data, len) != 1 ||
	    EVP_DigestFinal_ex(c->ctx, raw, NULL) != 1)
		return -EIO;
	for (size_t i = 0; i < sizeof(raw); i++) {
		ret[2 * i] = digits[raw[i] >> 4];
		ret[2 * i + 1] = digits[raw[i] & 15];
	}
	ret[AUDIT_HEX] = '\0';
	return 0;
}

int chain_step(struct chain *c, const char *line, size_t len, struct err *e)
{
	uint64_t seq = c->head.seq + 1;
	struct audit_line l;
	char hash[65];
	int r;

	if (audit_line_parse(line, len, &l) < 0)
		return err_set(e, ERR_INTERNAL, -EBADMSG, "record %" PRIu64 " is malformed", seq);
	if (l.seq != seq)
		return err_set(e, ERR_INTERNAL, -EBADMSG,
			       "record %" PRIu64 " is missing: found %" PRIu64 " in its place", seq, l.seq);
	if (memcmp(l.prev, c->head.hash, AUDIT_HEX))
		return err_set(e, ERR_INTERNAL, -EBADMSG, "record %" PRIu64 " does not follow the one before it", seq);
	r = chain_hash(c, line, l.body, hash);
	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "hash record %" PRIu64, seq);
	if (memcmp(l.hash, hash, AUDIT_HEX))
		return err_set(e, ERR_INTERNAL, -EBADMSG, "record %" PRIu64 " was changed: its hash does not match",
			       seq);
	c->head.seq = seq;
	memcpy(c->head.hash, hash, sizeof(c->head.hash));
	return 0;
}

static ssize_t pull(int fd, char *buf, size_t n, uint64_t offset, struct err *e)
{
	ssize_t got;

	do {
		got = pread(fd, buf, n, (off_t)offset);
	} while (got < 0 && errno == EINTR);
	if (got < 0)
		return err_sys(e, ERR_INTERNAL, -errno, "read the audit log");
	return got;
}

/* Whether nothing but NULs comes after the first newline behind @from. */
static int rest_is_torn(int fd, char *buf, uint64_t from, uint64_t size, bool *ret, struct err *e)
{
	bool seen = false;

	*ret = false;
	while (from < size) {
		ssize_t n = pull(fd, buf, size - from < STRETCH ? (size_t)(size - from) : STRETCH, from, e);
		const char *p = buf, *end;

		if (n < 0)
			return (int)n;
		if (n == 0)
			break;
		end = buf + n;
		if (!seen) {
			p = memchr(buf, '\n', (size_t)n);
			seen = p != NULL;
			p = p ? p + 1 : end;
		}
		for (; p < end; p++) {
			if (*p)
				return 0;
		}
		from += (uint64_t)n;
	}
	*ret = true;
	return 0;
}

/* The lines of one stretch; how many of its bytes they are. -EBADMSG at the first that is wrong. */
static int lines(struct chain *c, const char *buf, size_t n, uint64_t at,
		 int (*fn)(void *arg, uint64_t seq, uint64_t offset), void *arg, size_t *ret_used, struct err *e)
{
	const char *p = buf, *nl;
	int r = 0;

	while ((nl = memchr(p, '\n', n - (size_t)(p - buf)))) {
		r = chain_step(c, p, (size_t)(nl - p), e);
		if (r < 0)
			break;
		r = fn ? fn(arg, c->head.seq, at + (uint64_t)(p - buf)) : 0;
		p = nl + 1;
		if (r < 0) {
			err_sys(e, ERR_INTERNAL, r, "index the audit log");
			break;
		}
	}
	*ret_used = (size_t)(p - buf);
	return r;
}

int chain_scan(struct chain *c, int fd, uint64_t size, int (*fn)(void *arg, uint64_t seq, uint64_t offset), void *arg,
	       uint64_t *ret_good, struct err *e)
{
	AUTO_FREE char *buf = malloc(STRETCH);
	uint64_t good = 0;
	bool torn;
	int r;

	if (!buf)
		return err_sys(e, ERR_EXHAUSTED, -ENOMEM, "read the audit log");
	while (good < size) {
		ssize_t n = pull(fd, buf, size - good < STRETCH ? (size_t)(size - good) : STRETCH, good, e);
		size_t used = 0;

		if (n <= 0) {
			*ret_good = good;
			return (int)n;
		}
		r = lines(c, buf, (size_t)n, good, fn, arg, &used, e);
		good += used;
		*ret_good = good;
		if (r < 0 && r != -EBADMSG)
			return r;
		/* A line always fits into a stretch, so no progress means that the bytes here are not a line. */
		if (r == 0 && used)
			continue;
		if (r == 0)
			err_set(e, ERR_INTERNAL, -EBADMSG, "record %" PRIu64 " is malformed", c->head.seq + 1);
		r = rest_is_torn(fd, buf, good, size, &torn, e);
		if (r < 0)
			return r;
		return torn ? 0 : err_wrap(e, -EBADMSG, "at byte %" PRIu64, good);
	}
	*ret_good = good;
	return 0;
}
