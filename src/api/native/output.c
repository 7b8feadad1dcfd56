/*
 * The output of an exec from its spool: by offset, or followed until its end. The reader sets its own pace; the command
 * does not wait for it.
 *
 * A body is one contiguous part of the stream: its byte N is the stream's byte X-Cloche-Offset + N. Where the spool has
 * a gap the body ends, and the next answer says how many bytes are lost (X-Cloche-Lost).
 */
#include "api/native/native.h"
#include "base/base.h"
#include "base/str.h"
#include "service/exec/exec.h"

#define PIECE (256U * 1024U)

struct reader {
	struct call *c;
	struct exec_watch watch;
	struct api_stream registered;
	enum exec_stream stream;
	uint64_t at, end; /* the next offset, and the end: UINT64_MAX when it follows */
	bool follow;
	bool busy; /* ->buf is being sent */
	char *buf;
};

static void reader_free(struct reader *r)
{
	api_stream_remove(&r->registered);
	exec_unwatch(&r->watch);
	free(r->buf);
	free(r);
}

static void finish(struct reader *r)
{
	struct call *c = r->c;

	reader_free(r);
	http_end(c->q);
	c->q = NULL;
	call_free(c);
}

static void on_sent(void *arg);

static void read_on(struct reader *r)
{
	struct call *c = r->c;
	const uint64_t total = exec_output_total(c->exec, r->stream);
	struct http_piece p;
	size_t want = PIECE;
	uint64_t first;
	ssize_t n = 0;

	if (r->busy)
		return;
	first = exec_output_first(c->exec, r->stream, r->at);
	if (first != r->at) {
		/* After the gap there may be no bytes yet. */
		if (!r->follow || first < total || exec_over(c->exec))
			finish(r);
		return;
	}
	if (r->at < r->end) {
		if (r->end - r->at < want)
			want = (size_t)(r->end - r->at);
		n = exec_output_read(c->exec, r->stream, r->at, r->buf, want);
	}
	if (n > 0) {
		r->at += (uint64_t)n;
		r->busy = true;
		p = (struct http_piece){ r->buf, (size_t)n };
		http_write_lent(c->q, &p, 1, on_sent, r);
	} else if (n < 0) { /* the answer must not look complete */
		reader_free(r);
		http_cut(c->q);
		c->q = NULL;
		call_free(c);
	} else if (!r->follow || r->at >= r->end || (exec_over(c->exec) && r->at >= total)) {
		finish(r);
	}
}

/* The buffer may be used again. */
static void on_sent(void *arg)
{
	struct reader *r = arg;

	r->busy = false;
	read_on(r);
}

static void on_change(void *arg, struct exec *x)
{
	struct reader *r = arg;

	(void)x;
	if (r->c->q)
		read_on(r);
}

static void on_gone(struct call *c)
{
	reader_free(c->data);
}

/* The client must not take the output so far for all of it. */
static void on_stop(void *arg, enum stream_end why)
{
	struct reader *r = arg;
	struct call *c = r->c;

	(void)why;
	reader_free(r);
	c->gone = NULL;
	http_cut(c->q);
	c->q = NULL;
	call_free(c);
}

static int read_query(struct call *c, struct reader *r, struct err *e)
{
	const char *stream = http_query(c->q, "stream"), *offset = http_query(c->q, "offset"),
		   *limit = http_query(c->q, "limit");
	uint64_t n;
	int rc;

	if (stream && !strcmp(stream, "stderr"))
		r->stream = EXEC_ERR;
	else if (stream && strcmp(stream, "stdout") && strcmp(stream, "tty"))
		return err_set(e, ERR_INVALID, -EINVAL, "stream must be stdout, stderr or tty");
	rc = api_flag(c->q, "follow", &r->follow, e);
	if (rc == 0 && offset)
		rc = parse_u64(offset, &r->at, e);
	r->end = UINT64_MAX;
	if (rc == 0 && limit) {
		rc = parse_u64(limit, &n, e);
		if (rc == 0 && __builtin_add_overflow(r->at, n, &r->end))
			r->end = UINT64_MAX;
	}
	return rc;
}

void get_exec_output(void *arg, struct http_req *q, const struct route *route)
{
	struct call *c = call_new(arg, q, route);
	struct err e = { 0 };
	struct reader *r;
	uint64_t asked, total;

	if (call_exec(c) < 0)
		return;
	r = calloc(1, sizeof(*r));
	if (!r)
		abort();
	r->c = c;
	if (read_query(c, r, &e) < 0) {
		free(r);
		call_fail(c, &e);
		return;
	}
	r->buf = malloc(PIECE);
	if (!r->buf)
		abort();
	total = exec_output_total(c->exec, r->stream);
	asked = r->at;
	r->at = exec_output_first(c->exec, r->stream, asked);
	if (!r->follow && r->end > total)
		r->end = total;
	http_setf(q, "X-Cloche-Offset", "%llu", (unsigned long long)r->at);
	http_setf(q, "X-Cloche-Lost", "%llu", (unsigned long long)(r->at > asked ? r->at - asked : 0));
	http_setf(q, "X-Cloche-Total", "%llu", (unsigned long long)total);
	http_set(q, "X-Cloche-State", exec_over(c->exec) ? "ended" : "running");
	c->data = r;
	c->gone = on_gone;
	http_begin(q, 200, "application/octet-stream", -1);
	exec_watch(c->exec, &r->watch, on_change, r);
	if (r->follow)
		api_stream_add(c->api, &r->registered, &c->who, on_stop, r);
	read_on(r);
}
