/*
 * A checkpoint as one file: export and import. cloche-tar makes and reads the file; this passes bytes on, at the
 * client's pace.
 */
#include "api/native/checkpoints.h"
#include "api/native/feed.h"
#include "base/base.h"
#include "base/sha256.h"
#include "service/checkpoint/compare.h"
#include "service/checkpoint/import.h"
#include "service/checkpoint/signer.h"
#include "service/file/tar_child.h"
#include "tier/tiers.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

struct transfer {
	struct call *c; /* NULL: the client is gone, and the call with it */
	struct api *api;
	struct checkpoint *cp; /* export: referenced */
	struct tar_child *child;
	struct import *import;
	uv_poll_t *poll; /* export */
	int fd; /* export: the file's bytes */
	struct feed feed; /* import */
	struct sha256 sum; /* of the bytes so far, without a signature */
	uint8_t tail[SIGNER_BLOCK]; /* import: the last bytes so far, which may be a signature */
	size_t ntail;
	bool verify; /* import: requires a signature by a trusted key */
	bool begun, held, stream_over, child_over; /* export */
	int r;
	struct err e;
};

static void free_handle(uv_handle_t *h)
{
	free(h);
}

static void stop_stream(struct transfer *t)
{
	if (t->poll) {
		uv_poll_stop(t->poll);
		uv_close((uv_handle_t *)t->poll, free_handle);
		t->poll = NULL;
	}
	fd_close(t->fd);
	t->fd = -1;
	t->stream_over = true;
}

static void transfer_free(struct transfer *t)
{
	stop_stream(t);
	feed_done(&t->feed);
	if (t->cp)
		checkpoint_unref(t->cp);
	free(t);
}

static struct transfer *transfer_new(struct call *c)
{
	struct transfer *t = calloc(1, sizeof(*t));

	if (!t)
		abort();
	*t = (struct transfer){ .c = c, .api = c->api, .fd = -1 };
	feed_init(&t->feed, c->api->loop, c->q);
	sha256_init(&t->sum);
	c->data = t;
	return t;
}

/* Ends the call with this error, whatever is still under way. */
static void fail(struct transfer *t, const struct err *e)
{
	struct call *c = t->c;

	t->c = NULL;
	if (!c)
		return;
	feed_done(&t->feed);
	c->gone = NULL;
	if (t->begun) {
		if (c->q)
			http_cut(c->q);
		c->q = NULL;
		call_free(c);
	} else {
		call_fail(c, e);
	}
}

/* --- out --- */

/* Appends the signature, which identifies the file's author. */
static void sign(struct transfer *t)
{
	uint8_t sum[SHA256_SIZE], block[SIGNER_BLOCK];

	sha256_end(&t->sum, sum);
	t->r = signer_sign(service_signer(t->api->s), sum, block, &t->e);
	if (t->r == 0)
		http_write(t->c->q, (const char *)block, sizeof(block));
}

static void check_out(struct transfer *t)
{
	struct call *c = t->c;

	if (!t->child_over || !(t->stream_over || t->r < 0))
		return;
	if (t->r == 0 && c)
		sign(t);
	if (t->r < 0) {
		fail(t, &t->e);
	} else if (c) {
		c->gone = NULL;
		http_end(c->q);
		c->q = NULL;
		call_free(c);
	}
	transfer_free(t);
}

static void on_readable(uv_poll_t *p, int status, int events);

static void wait_readable(struct transfer *t)
{
	if (!t->poll) {
		t->poll = malloc(sizeof(*t->poll));
		if (!t->poll || uv_poll_init(t->api->loop, t->poll, t->fd) < 0)
			abort();
		t->poll->data = t;
	}
	uv_poll_start(t->poll, UV_READABLE, on_readable);
}

static void on_drain(void *arg)
{
	struct transfer *t = arg;

	if (t->held && t->poll) {
		t->held = false;
		wait_readable(t);
	}
}

static void begin_out(struct transfer *t)
{
	struct http_req *q = t->c->q;
	const char *accept = http_header(q, "Accept");
	/* for clients that know no other binary type */
	const bool plain = accept && strstr(accept, "application/octet-stream");

	t->begun = true;
	http_setf(q, "Content-Disposition", "attachment; filename=\"%s.tar.zst\"", checkpoint_view(t->cp).name);
	http_begin(q, 200, plain ? "application/octet-stream" : "application/zstd", -1);
	http_set_drain(q, on_drain, t);
}

static void on_readable(uv_poll_t *p, int status, int events)
{
	struct transfer *t = p->data;
	char *buf = service_scratch(t->api->s);
	ssize_t n = t->c ? read(t->fd, buf, SCRATCH) : 0;

	(void)status;
	(void)events;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		stop_stream(t);
		check_out(t);
		return;
	}
	if (!t->begun)
		begin_out(t);
	sha256_add(&t->sum, buf, (size_t)n);
	http_write(t->c->q, buf, (size_t)n);
	if (http_queued(t->c->q) > HTTP_HIGH) {
		t->held = true;
		uv_poll_stop(t->poll);
	}
}

static void on_packed(void *arg, int r, json_t *result, const struct err *e)
{
	struct transfer *t = arg;

	(void)result;
	t->child = NULL;
	t->child_over = true;
	t->r = r;
	if (r < 0)
		t->e = *e;
	check_out(t);
}

static void out_gone(struct call *c)
{
	struct transfer *t = c->data;

	t->c = NULL;
	stop_stream(t);
	if (t->child)
		tar_child_kill(t->child);
	else
		check_out(t); /* everything was packed, and waited only for this client */
}

static int put_manifest(const struct checkpoint *cp, int *ret, struct err *e)
{
	AUTO(buf_done) struct buf text = BUF_INIT(4 * MIB);
	AUTO_CLOSE int fd = memfd_create("manifest", MFD_CLOEXEC);
	int r = fd < 0 ? err_sys(e, ERR_EXHAUSTED, -errno, "make an in-memory file") : export_manifest(cp, &text, e);

	if (r == 0 && (fd_write_all(fd, text.data, text.len) < 0 || lseek(fd, 0, SEEK_SET) < 0))
		r = err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a manifest");
	if (r == 0)
		*ret = TAKE_FD(fd);
	return r;
}

static void on_changes(void *arg, int fd, const struct err *e)
{
	AUTO_CLOSE int changes = fd, manifest = -1, theirs = -1;
	struct transfer *t = arg;
	struct tar_child_plan p = { .mode = "pack", .option = { "--changes", "--stream", "--manifest" } };
	struct err why = e ? *e : (struct err){ 0 };
	int pair[2], r = fd < 0 ? -EIO : 0;

	if (!t->c) { /* the client hung up meanwhile */
		transfer_free(t);
		return;
	}
	if (r == 0)
		r = put_manifest(t->cp, &manifest, &why);
	if (r == 0 && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		r = err_sys(&why, ERR_EXHAUSTED, -errno, "make a socket");
	if (r == 0) {
		t->fd = pair[0];
		theirs = pair[1];
		p.tenant = t->c->who.tenant;
		p.fd[0] = changes;
		p.fd[1] = theirs;
		p.fd[2] = manifest;
		r = tar_child_start(t->api->s, &p, on_packed, t, &t->child, &why);
	}
	if (r < 0) {
		fail(t, &why);
		transfer_free(t);
		return;
	}
	fd_set_nonblock(t->fd);
	wait_readable(t);
}

void get_export(void *arg, struct http_req *q, const struct route *r)
{
	struct call *c = call_new(arg, q, r);
	struct checkpoint *cp = call_checkpoint(c);
	/* All of it, whatever image is below: that need not be where it is imported. */
	static const struct sandbox_spec nothing;
	struct compare_request w = { .from.chain = &nothing, .to.checkpoint = cp, .flags = DIFF_DATA };
	struct err e = { 0 };
	struct transfer *t;

	if (!cp)
		return;
	t = transfer_new(c);
	t->cp = cp;
	checkpoint_ref(cp);
	c->gone = out_gone;
	if (compare_open(c->api->s, &w, on_changes, t, &e) < 0) {
		fail(t, &e);
		transfer_free(t);
	}
}

/* --- in --- */

static void on_imported(void *arg, struct checkpoint *cp, const struct err *e)
{
	AUTO(buf_done) struct buf out = BUF_INIT(4 * MIB);
	struct json j = JSON_INIT(&out);
	struct transfer *t = arg;
	struct call *c = t->c;

	t->import = NULL;
	if (!cp || t->r < 0) {
		fail(t, t->r < 0 ? &t->e : e);
	} else {
		feed_done(&t->feed);
		c->gone = NULL;
		c->pending = true;
		dto_checkpoint(&j, NULL, cp);
		call_stored(c, 201, jout_done(&j) == 0 ? &out : NULL);
	}
	transfer_free(t);
}

static void in_gone(struct call *c)
{
	struct transfer *t = c->data;

	t->c = NULL;
	t->feed.q = NULL;
	/* The callback may come later when everything was imported already: then it is too late to cancel. */
	import_cancel(t->import);
	transfer_free(t);
}

/* Passes bytes of the archive on. False: the child reads no more. */
static bool take(struct transfer *t, const void *p, size_t len)
{
	sha256_add(&t->sum, p, len);
	return feed_queue(&t->feed, p, len);
}

/* Passes bytes on, and holds back the last SIGNER_BLOCK bytes until more come. */
static bool take_but_tail(struct transfer *t, const char *p, size_t len)
{
	size_t old = t->ntail + len > SIGNER_BLOCK ? t->ntail + len - SIGNER_BLOCK : 0;

	if (old > t->ntail)
		old = t->ntail;
	if (old && !take(t, t->tail, old))
		return false;
	memmove(t->tail, t->tail + old, t->ntail - old);
	t->ntail -= old;
	old = len > SIGNER_BLOCK - t->ntail ? len - (SIGNER_BLOCK - t->ntail) : 0;
	if (old && !take(t, p, old))
		return false;
	memcpy(t->tail + t->ntail, p + old, len - old);
	t->ntail += len - old;
	return true;
}

/* The body is complete: a wrong signature is refused, and a missing one if it is required. */
static int judge_tail(struct transfer *t, struct err *e)
{
	uint8_t sum[SHA256_SIZE];
	char key[SIGNER_TEXT];
	int r;

	if (t->ntail < SIGNER_BLOCK || !signer_is_block(t->tail)) {
		if (t->verify) {
			err_set(e, WHY_SIGNATURE, -ENOKEY, "the file is not signed");
			err_remedy(e, "export it again, or import it without --verify (`verify`)");
			return -ENOKEY;
		}
		take(t, t->tail, t->ntail);
		return 0;
	}
	sha256_end(&t->sum, sum);
	r = signer_check(service_signer(t->api->s), t->tail, sum, key, e);
	return r == -ENOKEY && !t->verify ? 0 : r;
}

/* Makes the unpacking of a refused file fail at its end: random bytes are appended, so that its checksum is wrong. */
static bool spoil(struct transfer *t)
{
	uint8_t junk[64];

	return getrandom(junk, sizeof(junk), 0) == (ssize_t)sizeof(junk) && feed_queue(&t->feed, junk, sizeof(junk));
}

static void on_body(void *arg, const char *p, size_t len)
{
	struct transfer *t = arg;

	if (!t->feed.over && take_but_tail(t, p, len))
		feed_add(&t->feed, NULL, 0);
}

static void on_body_end(void *arg)
{
	struct transfer *t = arg;

	if (t->feed.over)
		return;
	t->r = judge_tail(t, &t->e);
	if (t->r < 0 && !spoil(t)) {
		import_cancel(t->import);
		fail(t, &t->e);
		transfer_free(t);
		return;
	}
	feed_end(&t->feed);
}

void post_import(void *arg, struct http_req *q, const struct route *r)
{
	struct call *c = call_new(arg, q, r);
	const char *isolation = http_query(q, "isolation"), *network = http_query(q, "network");
	const char *mounts = http_query(q, "mounts");
	const struct import_request w = { .name = http_query(q, "name"),
					  .label = http_query(q, "label"),
					  .isolation = isolation && *isolation ? isolation : NULL,
					  .keep_network = network && !strcmp(network, "keep"),
					  .keep_mounts = mounts && !strcmp(mounts, "keep") };
	const struct tier_ops *tier;
	struct err e = { 0 };
	struct transfer *t;
	bool verify = false;
	int fd, rc = w.name && *w.name ? name_check(w.name, &e) : 0;

	if (rc == 0 && w.isolation)
		rc = tier_find(w.isolation, &tier, &e);
	if (rc == 0 && network && strcmp(network, "keep") && strcmp(network, "none"))
		rc = err_set(&e, ERR_INVALID, -EINVAL, "network must be \"none\" or \"keep\"");
	if (rc == 0 && mounts && strcmp(mounts, "keep") && strcmp(mounts, "none"))
		rc = err_set(&e, ERR_INVALID, -EINVAL, "mounts must be \"none\" or \"keep\"");
	if (rc == 0)
		rc = api_flag(q, "verify", &verify, &e);
	if (rc == 0 && w.label && strlen(w.label) > LABEL_MAX)
		rc = err_set(&e, ERR_INVALID, -EINVAL, "label must be at most %d bytes", LABEL_MAX);
	if (rc < 0) {
		call_fail(c, &e);
		return;
	}
	t = transfer_new(c);
	t->verify = verify;
	rc = import_start(c->api->s, &c->who, &w, on_imported, t, &t->import, &fd, &e);
	if (rc < 0) {
		fail(t, &e);
		transfer_free(t);
		return;
	}
	feed_open(&t->feed, fd);
	c->gone = in_gone;
	http_stream_body(q, on_body, on_body_end, t);
}
