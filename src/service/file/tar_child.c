/* Starts cloche-tar and reads its report. */
#include "service/file/tar_child.h"
#include "base/base.h"
#include "service/state/json_read.h"
#include "service/struct.h"
#include "service/access/struct.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#define AT_ONCE_TENANT 4U
#define AT_ONCE 12U

struct tar_child {
	struct service *s;
	struct tenant *tenant;
	uv_process_t process;
	uv_poll_t report;
	int fd;
	struct buf said;
	bool exited, silent, killed;
	int status;
	unsigned handles;
	tar_child_fn *fn;
	void *arg;
};

static void on_closed(uv_handle_t *h)
{
	struct tar_child *x = h->data;

	if (--x->handles)
		return;
	fd_close(x->fd);
	buf_done(&x->said);
	free(x);
}

static int verdict(const struct tar_child *x, json_t **ret, struct err *e)
{
	const char *text;
	json_t *error;
	int r;

	if (x->killed)
		return err_set(e, WHY_SERVICE_LOST, -ECANCELED, "no request waits for it any longer");
	r = json_read_begin(buf_str(&x->said), x->said.len, ret, NULL);
	if (r < 0 || x->status > 1)
		return err_set(e, ERR_INTERNAL, -EPROTO, "the archive process failed (status %d)", x->status);
	error = json_object_get(*ret, "error");
	if (!error)
		return x->status ? err_set(e, ERR_INTERNAL, -EPROTO, "the archive process failed") : 0;
	text = json_string_value(json_object_get(error, "message"));
	return err_set(e, err_reason_find(json_string_value(json_object_get(error, "reason"))), -EINVAL, "%s",
		       text ? text : "it failed");
}

static void check_end(struct tar_child *x)
{
	AUTO(json_decref) json_t *result = NULL;
	struct err e = { 0 };
	int r;

	if (!x->exited || !x->silent)
		return;
	r = verdict(x, &result, &e);
	x->s->children--;
	x->tenant->calls.archives--;
	x->fn(x->arg, r, r < 0 ? NULL : result, &e);
	uv_close((uv_handle_t *)&x->process, on_closed);
	uv_close((uv_handle_t *)&x->report, on_closed);
}

static void on_exit_(uv_process_t *p, int64_t status, int sig)
{
	struct tar_child *x = p->data;

	x->exited = true;
	x->status = sig ? 128 + sig : (int)status;
	check_end(x);
}

static void on_report(uv_poll_t *p, int status, int events)
{
	struct tar_child *x = p->data;
	char tmp[4096];
	ssize_t n = read(x->fd, tmp, sizeof(tmp));

	(void)status;
	(void)events;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n > 0 && buf_add(&x->said, tmp, (size_t)n) == 0)
		return;
	uv_poll_stop(&x->report);
	x->silent = true;
	check_end(x);
}

static int spawn(struct tar_child *x, const struct tar_child_plan *p, int report)
{
	char name[] = "cloche-tar", number[TAR_CHILD_FDS][4], bytes[24];
	char *args[2 + 2 * TAR_CHILD_FDS + TAR_CHILD_ARGS + 5] = { name, (char *)(uintptr_t)p->mode };
	uv_stdio_container_t io[3 + TAR_CHILD_FDS] = {
		{ .flags = UV_IGNORE },
		{ .flags = UV_INHERIT_FD, .data.fd = report },
		{ .flags = UV_INHERIT_FD, .data.fd = STDERR_FILENO },
	};
	uv_process_options_t o = {
		.exit_cb = on_exit_, .file = x->s->o.tar, .args = args, .stdio = io, .stdio_count = 3
	};
	char *env[] = { NULL };
	unsigned n = 2;

	for (unsigned i = 0; i < TAR_CHILD_FDS && p->option[i]; i++) {
		snprintf(number[i], sizeof(number[i]), "%u", 3 + i);
		args[n++] = (char *)(uintptr_t)p->option[i];
		args[n++] = number[i];
		io[3 + i] = (uv_stdio_container_t){ .flags = UV_INHERIT_FD, .data.fd = p->fd[i] };
		o.stdio_count++;
	}
	for (unsigned i = 0; i < TAR_CHILD_ARGS && p->arg[i]; i++)
		args[n++] = (char *)(uintptr_t)p->arg[i];
	args[n++] = (char *)(uintptr_t) "--max-bytes";
	snprintf(bytes, sizeof(bytes), "%llu", (unsigned long long)(p->max_bytes ? p->max_bytes : TAR_CHILD_BYTES));
	args[n++] = bytes;
	args[n++] = (char *)(uintptr_t) "--max-entries";
	args[n] = (char *)(uintptr_t)TAR_CHILD_ENTRIES;
	o.env = env;
	return uv_spawn(x->s->loop, &x->process, &o);
}

int tar_child_start(struct service *s, const struct tar_child_plan *p, tar_child_fn *fn, void *arg,
		    struct tar_child **ret, struct err *e)
{
	struct tar_child *x;
	AUTO_CLOSE int theirs = -1;
	int report[2], r;

	if (s->children >= AT_ONCE || p->tenant->calls.archives >= AT_ONCE_TENANT)
		return err_set(e, ERR_EXHAUSTED, -EAGAIN, "too many archives are being read or written");
	if (pipe2(report, O_CLOEXEC) < 0)
		return err_sys(e, ERR_EXHAUSTED, -errno, "make a pipe");
	theirs = report[1];
	x = calloc(1, sizeof(*x));
	if (!x)
		abort();
	*x = (struct tar_child){
		.s = s, .tenant = p->tenant, .fd = report[0], .said = BUF_INIT(2 * MIB), .fn = fn, .arg = arg
	};
	x->process.data = x->report.data = x;
	r = spawn(x, p, theirs);
	if (r < 0) { /* the loop knows its handle, also of one that did not start */
		x->handles = 1;
		uv_close((uv_handle_t *)&x->process, on_closed);
		return err_sys(e, ERR_INTERNAL, r, "start cloche-tar");
	}
	fd_set_nonblock(x->fd);
	uv_poll_init(s->loop, &x->report, x->fd);
	uv_poll_start(&x->report, UV_READABLE, on_report);
	x->handles = 2;
	s->children++;
	p->tenant->calls.archives++;
	*ret = x;
	return 0;
}

void tar_child_kill(struct tar_child *x)
{
	x->killed = true;
	if (!x->exited)
		uv_process_kill(&x->process, SIGKILL);
}
