/*
 * Whole trees as tar. The archive is read and written by cloche-tar, a child that cannot open files: it has a file
 * worker's socket and one end of a pipe, and reports its result in one line.
 */
#include "api/native/feed.h"
#include "api/native/file_call.h"
#include "base/base.h"
#include "service/secret/secret.h"
#include "base/log.h"
#include "service/state/json_read.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#define BYTES_MAX "68719476736"
#define LOOK_MS 15000
#define LOOKS 4U /* without a byte, after which the child is ended: the file worker may have been stopped from inside */
/*
 * archives at the same time: processes of this host, outside of any sandbox's limits, which may need half a gigabyte
 * each
 */
#define AT_ONCE 16U
#define AT_ONCE_TENANT 4U

struct archive {
	struct file_call *f; /* NULL: the caller is gone */
	uv_process_t process;
	uv_loop_t *loop;
	uv_timer_t clock;
	struct api *api; /* counts it until it is freed */
	struct tenant_calls *calls;
	uv_poll_t stream, report; /* ->stream: only out */
	int stream_fd, report_fd;
	struct feed feed; /* only in */
	struct buf said;
	bool in, exited, stream_closed, report_closed, held;
	bool stuck;
	unsigned still; /* looks since the last byte */
	unsigned handles; /* open handles, which must be closed before it can be freed */
	int status;
};

static void on_closed(uv_handle_t *h)
{
	struct archive *a = h->data;

	if (--a->handles)
		return;
	a->api->archives--;
	a->calls->archives--;
	fd_close(a->stream_fd);
	fd_close(a->report_fd);
	buf_done(&a->said);
	free(a);
}

static void archive_free(struct archive *a)
{
	feed_done(&a->feed);
	if (!a->in)
		uv_close((uv_handle_t *)&a->stream, on_closed);
	uv_close((uv_handle_t *)&a->report, on_closed);
	uv_close((uv_handle_t *)&a->process, on_closed);
	uv_close((uv_handle_t *)&a->clock, on_closed);
}

static void on_clock(uv_timer_t *t)
{
	struct archive *a = t->data;
	bool client = a->in ? !a->feed.ended && !a->feed.queue.len : a->held;

	a->still = client || a->feed.moved ? 0 : a->still + 1;
	a->feed.moved = false;
	if (a->still >= LOOKS && !a->exited) {
		a->stuck = true;
		uv_process_kill(&a->process, SIGKILL);
	}
}

/* The child's report as an error; or 0 with the object in *ret. */
static int verdict(const struct archive *a, json_t **ret, struct err *e)
{
	const char *text;
	enum err_reason why;
	json_t *error;
	int r = a->stuck ? 0 : json_read_begin(buf_str(&a->said), a->said.len, ret, e);

	if (a->stuck)
		return err_set(e, WHY_NO_PROGRESS, -ETIMEDOUT, "the archive made no progress for %u s",
			       LOOKS * LOOK_MS / 1000);
	if (r < 0 || a->status > 1 || !a->said.len)
		return err_set(e, ERR_INTERNAL, -EPROTO, "the archive process failed (status %d)", a->status);
	error = json_object_get(*ret, "error");
	if (!error)
		return a->status ? err_set(e, ERR_INTERNAL, -EPROTO, "the archive process failed") : 0;
	text = json_string_value(json_object_get(error, "message"));
	why = err_reason_find(json_string_value(json_object_get(error, "reason")));
	err_set(e, why, -EINVAL, "%s", text ? text : "the archive process failed");
	/* What else goes wrong there is the archive's fault, or that of the files in the sandbox. */
	if (e->kind != ERR_NOT_FOUND && e->kind != ERR_TOO_LARGE && e->kind != ERR_INVALID && e->kind != ERR_REFUSED)
		err_because(e, WHY_REFUSED);
	return -EINVAL;
}

static void finish_in(struct archive *a, struct file_call *f)
{
	AUTO(json_decref) json_t *o = NULL;
	struct err e = { 0 };

	if (verdict(a, &o, &e) < 0) {
		file_call_fail(f, &e);
		return;
	}
	buf_add(&f->out, a->said.data, strcspn(a->said.data, "\n"));
	file_call_note(f, "file.extract", (uint64_t)json_integer_value(json_object_get(o, "bytes")), NULL);
}

static void finish_out(struct archive *a, struct file_call *f)
{
	AUTO(json_decref) json_t *o = NULL;
	struct call *c = f->c;
	struct err e = { 0 };
	int r = verdict(a, &o, &e);

	if (!f->begun && r < 0) {
		file_call_fail(f, &e);
		return;
	}
	if (!f->begun)
		http_begin(c->q, 200, "application/x-tar", -1);
	/* The client has part of the archive: it must notice that the rest does not come. */
	if (r < 0)
		http_cut(c->q);
	else
		http_end(c->q);
	c->q = NULL;
	c->gone = NULL;
	file_call_free(f);
	call_free(c);
}

static void check_end(struct archive *a)
{
	struct file_call *f = a->f;

	if (!a->exited || !a->report_closed || (!a->in && !a->stream_closed && f))
		return;
	a->f = NULL;
	if (f)
		f->more = NULL; /* the answer may wait for the disk */
	feed_done(&a->feed);
	if (f && a->in)
		finish_in(a, f);
	else if (f)
		finish_out(a, f);
	archive_free(a);
}

static void on_exit_(uv_process_t *p, int64_t status, int sig)
{
	struct archive *a = p->data;

	a->exited = true;
	a->status = sig ? 128 + sig : (int)status;
	check_end(a);
}

static void on_report(uv_poll_t *p, int status, int events)
{
	struct archive *a = p->data;
	char tmp[4096];
	ssize_t n = read(a->report_fd, tmp, sizeof(tmp));

	(void)status;
	(void)events;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n > 0 && buf_add(&a->said, tmp, (size_t)n) == 0)
		return;
	uv_poll_stop(&a->report);
	a->report_closed = true;
	check_end(a);
}

/* --- out --- */

static void on_stream_out(uv_poll_t *p, int status, int events);

static void on_drain(void *arg)
{
	struct file_call *f = arg;
	struct archive *a = f->more;

	if (a && a->held && !a->stream_closed) {
		a->held = false;
		uv_poll_start(&a->stream, UV_READABLE, on_stream_out);
	}
}

static void on_stream_out(uv_poll_t *p, int status, int events)
{
	struct archive *a = p->data;
	struct file_call *f = a->f;
	char *buf = f ? service_scratch(f->c->api->s) : NULL;
	ssize_t n = buf ? read(a->stream_fd, buf, SCRATCH) : 0;

	(void)status;
	(void)events;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		uv_poll_stop(&a->stream);
		a->stream_closed = true;
		check_end(a);
		return;
	}
	if (!f->begun) {
		const char *format = http_query(f->c->q, "format");

		f->begun = true;
		http_begin(f->c->q, 200,
			   format && !strcmp(format, "tar.zst") ? "application/zstd" : "application/x-tar", -1);
		http_set_drain(f->c->q, on_drain, f);
	}
	a->still = 0;
	http_write(f->c->q, buf, (size_t)n);
	if (http_queued(f->c->q) > HTTP_HIGH) {
		a->held = true;
		uv_poll_stop(&a->stream);
	}
}

/* --- both --- */

static void on_gone(struct call *c)
{
	struct file_call *f = c->data;
	struct archive *a = f->more;

	if (a) {
		a->f = NULL;
		/* An incomplete tree is useless: the child is ended. */
		if (!a->exited)
			uv_process_kill(&a->process, SIGKILL);
		a->feed.q = NULL;
		feed_stop(&a->feed);
		if (!a->in && !a->stream_closed) {
			uv_poll_stop(&a->stream);
			a->stream_closed = true;
		}
	}
	turn_cancel(&c->wait);
	file_call_free(f);
}

static int spawn(struct file_call *f, bool in, const char *format, int files, int stream, int report, struct archive *a)
{
	char tar[] = "cloche-tar", dev[24];
	char *args[] = { tar,
			 in ? "in" : "out",
			 "--files",
			 "3",
			 "--stream",
			 "4",
			 "--path",
			 f->path,
			 "--max-bytes",
			 BYTES_MAX,
			 "--max-entries",
			 "1000000",
			 "--skip-dev",
			 dev,
			 format ? "--format" : NULL,
			 (char *)(uintptr_t)format,
			 NULL };
	uv_stdio_container_t io[] = {
		{ .flags = UV_IGNORE },
		{ .flags = UV_INHERIT_FD, .data.fd = report },
		{ .flags = UV_INHERIT_FD, .data.fd = STDERR_FILENO },
		{ .flags = UV_INHERIT_FD, .data.fd = files },
		{ .flags = UV_INHERIT_FD, .data.fd = stream },
	};
	char *env[] = { NULL };
	uv_process_options_t o = {
		.exit_cb = on_exit_,
		.file = service_opts(f->c->api->s)->tar,
		.args = args,
		.env = env,
		.stdio = io,
		.stdio_count = ARRAY_LEN(io),
	};

	snprintf(dev, sizeof(dev), "%llu", (unsigned long long)secrets_dev(f->c->sandbox));
	return uv_spawn(a->loop, &a->process, &o);
}

static void on_not_started(uv_handle_t *h)
{
	free(h->data);
}

/* Starts the child. NULL: the call has been answered. */
static struct archive *begin(struct file_call *f, bool in, const char *format)
{
	AUTO_CLOSE int files = -1, child_stream = -1, child_report = -1;
	int stream[2] = { -1, -1 }, report[2] = { -1, -1 }, r;
	struct archive *a = calloc(1, sizeof(*a));
	struct err e = { 0 };
	bool tried;

	if (!a)
		abort();
	*a = (struct archive){ .f = f, .loop = f->c->api->loop, .in = in, .stream_fd = -1, .report_fd = -1 };
	a->api = f->c->api;
	a->calls = tenant_calls(sandbox_tenant(f->c->sandbox));
	a->said = (struct buf)BUF_INIT(2 * MIB);
	feed_init(&a->feed, a->loop, in ? f->c->q : NULL);
	a->process.data = a->stream.data = a->report.data = a->clock.data = a;
	r = a->api->archives < AT_ONCE && a->calls->archives < AT_ONCE_TENANT ?
		    0 :
		    err_set(&e, ERR_EXHAUSTED, -EAGAIN, "too many archives are being read or written: try again later");
	if (r == 0)
		r = file_worker_open(f->c->sandbox, &f->user, &files, &e);
	if (r == 0 && (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, stream) < 0 || pipe2(report, O_CLOEXEC) < 0))
		r = err_sys(&e, ERR_EXHAUSTED, -errno, "make a pipe");
	a->stream_fd = stream[0];
	a->report_fd = report[0];
	child_stream = stream[1];
	child_report = report[1];
	tried = r == 0;
	if (tried) {
		r = spawn(f, in, format, files, child_stream, child_report, a);
		if (r < 0)
			err_sys(&e, ERR_INTERNAL, r, "start cloche-tar");
	}
	if (r < 0) {
		fd_close(a->stream_fd);
		fd_close(a->report_fd);
		if (tried) /* libuv also keeps the handle of a child that did not start */
			uv_close((uv_handle_t *)&a->process, on_not_started);
		else
			free(a);
		file_call_fail(f, &e);
		return NULL;
	}
	fd_set_nonblock(a->report_fd);
	if (in) {
		feed_open(&a->feed, TAKE_FD(a->stream_fd));
	} else {
		fd_set_nonblock(a->stream_fd);
		uv_poll_init(a->loop, &a->stream, a->stream_fd);
	}
	uv_poll_init(a->loop, &a->report, a->report_fd);
	uv_timer_init(a->loop, &a->clock);
	a->clock.data = a;
	uv_timer_start(&a->clock, on_clock, LOOK_MS, LOOK_MS);
	a->handles = in ? 3 : 4;
	a->api->archives++;
	a->calls->archives++;
	uv_poll_start(&a->report, UV_READABLE, on_report);
	f->more = a;
	f->c->gone = on_gone;
	return a;
}

void archive_out(struct file_call *f)
{
	const char *format = http_query(f->c->q, "format");
	struct err e = { 0 };
	struct archive *a;

	if (format && strcmp(format, "tar") && strcmp(format, "tar.zst")) {
		err_set(&e, ERR_INVALID, -EINVAL, "format must be tar or tar.zst");
		file_call_fail(f, &e);
		return;
	}
	a = begin(f, false, format ? format : "tar");
	if (a)
		uv_poll_start(&a->stream, UV_READABLE, on_stream_out);
}

void archive_in(struct file_call *f)
{
	struct archive *a = begin(f, true, NULL);

	if (a)
		feed_body(&a->feed);
}
