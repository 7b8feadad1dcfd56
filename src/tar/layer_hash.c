/*
 * The digests of a layer. They name what all tenants share, so they are computed by a process that reads nothing of the
 * bytes but their sum: a hostile archive that takes over the library cannot say that it is another one.
 *
 *	layer ──► this process ──► layer_unzip.c ──► this process ──► layer.c ──► file worker
 *	          digest, size       (if compressed)    diff id, size
 *
 * The other two are forked before anything is read; each is confined, and reports once, at its end.
 */
#include "tar/tar.h"
#include "base/base.h"
#include "base/sha256.h"
#include "base/utf8.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#define BLOCK (256U * 1024U)
#define PIPE_SIZE (1 << 20)
#define RATIO 1000U /* more bytes out of one than any useful archive has, */
#define RATIO_FROM (64 * MIB) /* once there are that many */

/* How a child ended: the child may have been taken over, so every field is checked. */
struct report {
	int32_t r;
	struct err e;
	uint64_t files, bytes, skipped;
};

/* One direction: what was read and is not written yet. */
struct flow {
	struct sha256 sum;
	uint64_t n, max; /* bytes so far; the most that may come, 0 = any */
	int from, to;
	size_t at, have;
	bool over; /* nothing more comes */
	uint8_t buf[BLOCK];
};

struct hash {
	struct flow in, out; /* an uncompressed layer has ->in alone */
	bool zipped;
	int unzip_report, tree_report;
};

static void text_of(struct sha256 *s, char ret[DIGEST_TEXT])
{
	uint8_t sum[SHA256_SIZE];

	sha256_end(s, sum);
	memcpy(ret, "sha256:", 7);
	for (size_t i = 0; i < sizeof(sum); i++)
		snprintf(ret + 7 + 2 * i, 3, "%02x", sum[i]);
}

/* --- children --- */

static int pipes(int pair[2], struct err *e)
{
	if (pipe2(pair, O_CLOEXEC) < 0)
		return err_sys(e, ERR_EXHAUSTED, -errno, "make a pipe");
	fcntl(pair[0], F_SETPIPE_SZ, PIPE_SIZE); /* if it is allowed; else it is slower */
	return 0;
}

/* The end of a pipe that this process has: it must not wait. */
static int own(int fd)
{
	fcntl(fd, F_SETFL, O_NONBLOCK);
	return fd;
}

typedef int part_fn(const struct tar_opts *o, struct host *h, struct tar_result *r, struct err *e);

/* In a child: everything but the numbers that the part has as its own is closed. */
static _Noreturn void child(part_fn *fn, const struct tar_opts *o, struct host *h, int from, int to, int report)
{
	static struct tar_result result;
	struct report x = { 0 };
	/* to numbers that programs do not use */
	int fds[] = { fcntl(from, F_DUPFD, 20), to < 0 ? -1 : fcntl(to, F_DUPFD, 20), fcntl(report, F_DUPFD, 20) };
	int r = fds[0] < 0 || (to >= 0 && fds[1] < 0) || fds[2] < 0 ? -errno : 0;

	if (r == 0 && (dup2(fds[0], TAR_STREAM) < 0 || (to >= 0 && dup2(fds[1], TAR_FILES) < 0) ||
		       dup2(fds[2], TAR_REPORT) < 0 || close_range(TAR_REPORT + 1, ~0U, 0) < 0))
		r = -errno;
	if (r < 0)
		_exit(1);
	close(STDOUT_FILENO); /* the parent alone says how it went */
	r = confine(&x.e);
	if (r == 0)
		r = fn(o, h, &result, &x.e);
	x.r = r;
	x.files = result.files;
	x.bytes = result.bytes;
	x.skipped = result.skipped;
	fd_write_all(TAR_REPORT, &x, sizeof(x));
	_exit(0);
}

static int begin(part_fn *fn, const struct tar_opts *o, struct host *h, int from, int to, int *ret_report,
		 struct err *e)
{
	const pid_t parent = getpid();
	int report[2], r = pipes(report, e);
	pid_t pid;

	if (r < 0)
		return r;
	pid = fork();
	if (pid < 0)
		return err_sys(e, ERR_EXHAUSTED, -errno, "start a process for a layer");
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
		if (getppid() != parent)
			_exit(1);
		child(fn, o, h, from, to, report[1]);
	}
	close(report[1]);
	*ret_report = report[0];
	return 0;
}

static bool is_zipped(const uint8_t *p, size_t n)
{
	static const uint8_t gzip[] = { 0x1f, 0x8b }, zstd[] = { 0x28, 0xb5, 0x2f, 0xfd },
			     skip[] = { 0x2a, 0x4d, 0x18 };

	return (n >= 2 && !memcmp(p, gzip, 2)) ||
	       (n >= 4 && (!memcmp(p, zstd, 4) || (p[0] >> 4 == 5 && !memcmp(p + 1, skip, 3))));
}

/* --- bytes --- */

/* -EAGAIN: there is nothing to read, or to write to, now. */
static int fill(struct flow *f, struct err *e)
{
	size_t want = sizeof(f->buf) - f->have;
	ssize_t n;

	if (f->max && want > f->max - f->n)
		want = (size_t)(f->max - f->n);
	do
		n = want ? read(f->from, f->buf + f->have, want) : 0;
	while (n < 0 && errno == EINTR);
	if (n < 0 && errno == EAGAIN)
		return -EAGAIN;
	if (n < 0)
		return err_sys(e, ERR_LOST, -errno, "cannot read the layer");
	f->over = n == 0;
	sha256_add(&f->sum, f->buf + f->have, (size_t)n);
	f->n += (uint64_t)n;
	f->have += (size_t)n;
	return 0;
}

static int drain(struct flow *f)
{
	while (f->at < f->have) {
		ssize_t n = write(f->to, f->buf + f->at, f->have - f->at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		f->at += (size_t)n;
	}
	f->at = f->have = 0;
	return 0;
}

/* One piece further. 1: all is done; -EPIPE: the reader has gone, and a report says why. */
static int move(struct flow *f, struct err *e)
{
	int r = drain(f);

	if (r == 0 && f->over) {
		close(f->to);
		return 1;
	}
	if (r == 0)
		r = fill(f, e);
	return r == -EAGAIN ? 0 : r;
}

static void wait_for(const struct flow *f, struct pollfd p[2])
{
	p[0] = (struct pollfd){ .fd = f->have || f->over ? -1 : f->from, .events = POLLIN };
	p[1] = (struct pollfd){ .fd = f->have ? f->to : -1, .events = POLLOUT };
}

static int check(const struct hash *x, const struct tar_opts *o, struct err *e)
{
	const uint64_t in = x->in.n, out = x->zipped ? x->out.n : in;

	if (out > RATIO_FROM && out / RATIO > in)
		return err_set(e, WHY_IMAGE_INVALID, -EFBIG,
			       "a layer of the image grows to more than %u times its size", RATIO);
	if (o->max_bytes && out > o->max_bytes + LAYER_SLACK)
		return err_set(e, ERR_TOO_LARGE, -EFBIG, "a layer of the image is larger than %llu bytes",
			       (unsigned long long)o->max_bytes);
	return 0;
}

static int pump(struct hash *x, const struct tar_opts *o, struct err *e)
{
	bool in = true, out = x->zipped;
	int r = 0;

	while (r == 0 && (in || out)) {
		struct pollfd p[4] = { { .fd = -1 }, { .fd = -1 }, { .fd = -1 }, { .fd = -1 } };

		if (in && (r = move(&x->in, e)) == 1)
			in = false, r = 0;
		if (out && r == 0 && (r = move(&x->out, e)) == 1)
			out = false, r = 0;
		if (r == 0)
			r = check(x, o, e);
		if (in)
			wait_for(&x->in, p);
		if (out)
			wait_for(&x->out, p + 2);
		if (r == 0 && (in || out))
			poll(p, 4, -1);
	}
	return r;
}

/* --- reports --- */

/* *ret has the child's error. */
static void read_report(int fd, struct report *ret)
{
	size_t have = 0;
	ssize_t n;

	while (have < sizeof(*ret) && (n = read(fd, (char *)ret + have, sizeof(*ret) - have)) != 0) {
		if (n < 0 && errno != EINTR)
			break;
		have += n > 0 ? (size_t)n : 0;
	}
	if (have != sizeof(*ret) || ret->r > 0) {
		ret->r = err_set(&ret->e, WHY_IMAGE_INVALID, -EBADMSG,
				 "a layer of the image cannot be read: the process that reads it died");
		return;
	}
	ret->e.msg[sizeof(ret->e.msg) - 1] = ret->e.remedy[sizeof(ret->e.remedy) - 1] = '\0';
	if (ret->r < 0 && ((unsigned)ret->e.kind >= ERR_KIND_COUNT || !utf8_valid(ret->e.msg, strlen(ret->e.msg))))
		ret->r = err_set(&ret->e, WHY_IMAGE_INVALID, -EBADMSG, "a layer of the image cannot be read");
}

static int check_digest(const char *what, const char *is, const char *should, struct err *e)
{
	if (!should || !strcmp(is, should))
		return 0;
	return err_set(e, WHY_IMAGE_INVALID, -EBADMSG, "a layer of the image is not what its %s says: %s instead of %s",
		       what, is, should);
}

static int conclude(struct hash *x, const struct tar_opts *o, struct tar_result *res, struct err *e)
{
	struct report tree = { 0 }, unzip = { 0 };
	const struct report *why;
	int r;

	read_report(x->tree_report, &tree);
	if (x->zipped)
		read_report(x->unzip_report, &unzip);
	/* Each fails when the other does; -EPIPE is the follower's error. */
	why = unzip.r < 0 && (unzip.r != -EPIPE || tree.r == 0) ? &unzip : &tree;
	if (why->r < 0) {
		*e = why->e;
		return why->r;
	}
	res->files = tree.files;
	res->bytes = tree.bytes;
	res->in = x->in.n;
	res->out = x->zipped ? x->out.n : x->in.n;
	text_of(&x->in.sum, res->digest);
	if (x->zipped)
		text_of(&x->out.sum, res->diff);
	else
		memcpy(res->diff, res->digest, sizeof(res->diff));
	if (o->size && res->in != o->size)
		return err_set(e, WHY_IMAGE_INVALID, -EBADMSG, "a layer of the image has %llu bytes instead of %llu",
			       (unsigned long long)res->in, (unsigned long long)o->size);
	r = check_digest("digest", res->digest, o->digest, e);
	return r < 0 ? r : check_digest("configuration", res->diff, o->diff, e);
}

/* --- all of it --- */

/* In place of tar_layer(): the layer exists, and its digests alone are of interest. */
static int drop(const struct tar_opts *o, struct host *h, struct tar_result *res, struct err *e)
{
	static uint8_t buf[BLOCK];
	ssize_t n;

	(void)o;
	(void)h;
	(void)res;
	while ((n = read(TAR_STREAM, buf, sizeof(buf))) != 0)
		if (n < 0 && errno != EINTR)
			return err_sys(e, ERR_LOST, -errno, "cannot read the layer");
	return 0;
}

static int start(struct hash *x, const struct tar_opts *o, struct host *h, struct err *e)
{
	int zip[2] = { -1, -1 }, unzipped[2] = { -1, -1 }, tree[2] = { -1, -1 };
	int r;

	x->in = (struct flow){ .from = TAR_STREAM, .max = o->size };
	sha256_init(&x->in.sum);
	sha256_init(&x->out.sum);
	while (!x->in.over && x->in.have < 4) {
		struct pollfd p = { .fd = TAR_STREAM, .events = POLLIN };

		r = fill(&x->in, e);
		if (r == -EAGAIN)
			poll(&p, 1, -1);
		else if (r < 0)
			return r;
	}
	x->zipped = is_zipped(x->in.buf, x->in.have);
	r = pipes(tree, e);
	if (r == 0)
		r = begin(o->sums ? drop : tar_layer, o, h, tree[0], -1, &x->tree_report, e);
	if (r == 0 && x->zipped) {
		r = pipes(zip, e);
		if (r == 0)
			r = pipes(unzipped, e);
		if (r == 0)
			r = begin(tar_layer_unzip, o, NULL, zip[0], unzipped[1], &x->unzip_report, e);
	}
	if (r < 0)
		return r;
	close(TAR_FILES);
	close(tree[0]);
	if (x->zipped) {
		close(zip[0]);
		close(unzipped[1]);
		x->in.to = own(zip[1]);
		x->out.from = own(unzipped[0]);
		x->out.to = own(tree[1]);
	} else {
		x->in.to = own(tree[1]);
	}
	return 0;
}

int tar_layer_hash(const struct tar_opts *o, struct host *h, struct tar_result *res, struct err *e)
{
	static struct hash x;
	int r = start(&x, o, h, e);

	if (r == 0)
		r = confine(e);
	if (r == 0)
		r = pump(&x, o, e);
	if (r == 0)
		return conclude(&x, o, res, e);
	if (r != -EPIPE)
		return r;
	/* One of them has ended too early, and says why. */
	close(x.in.to);
	if (x.zipped) {
		close(x.out.from);
		close(x.out.to);
	}
	r = conclude(&x, o, res, e);
	return r < 0 ? r : err_set(e, WHY_IMAGE_INVALID, -EBADMSG, "a layer of the image cannot be read to its end");
}
