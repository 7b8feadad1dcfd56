/*
 * The steps of a run: sandbox, files, a look at the working folder, the code, another look, the artifacts, the end. One step is
 * under way at any time, and run_leave() takes it back.
 */
#include "base/base.h"
#include "base/base64.h"
#include "service/checkpoint/restore.h"
#include "service/run/packages.h"
#include "service/run/struct.h"
#include "service/run/warm_context.h"
#include "service/sandbox/internal.h"
#include "service/state/event.h"
#include "service/template/template.h"

#include <sys/stat.h>

#define LIST_MAX 10000U /* files and folders of a working folder that are looked at */
#define LIST_DEPTH 16U
#define HELD_MAX (256 * MIB) /* of a tenant, with what its contexts send and what waits for its answers */
#define HELD_FREE MIB /* a run with that many bytes never is too much */

/* Files that are not written yet, and artifacts, count for the tenant: its sandboxes can make both wait. */
static bool hold_bytes(struct run *r, size_t len)
{
	size_t *events = tenant_events(r->who.tenant);

	if (r->held + len > HELD_FREE && *events + len > HELD_MAX)
		return false;
	*events += len;
	r->held += len;
	return true;
}

static void release_bytes(struct run *r, size_t len)
{
	*tenant_events(r->who.tenant) -= len;
	r->held -= len;
}

static int hold_files(struct run *r, struct err *e)
{
	size_t len = 0;

	for (unsigned i = 0; i < r->request->files; i++)
		len += r->request->file[i].len;
	if (hold_bytes(r, len))
		return 0;
	err_set(e, ERR_EXHAUSTED, -EAGAIN,
		"files of runs, and what contexts send, would have more than %u MiB of the tenant",
		(unsigned)(HELD_MAX / MIB));
	err_remedy(e, "wait for the answers of earlier runs");
	return -EAGAIN;
}

static void run_free(struct run *r)
{
	const bool used = r->ran && !r->s->draining;

	turn_cancel(&r->wait);
	if (r->packages)
		packages_leave(r->packages);
	free(r->packages);
	if (used)
		warm_context_used(r->s, r->who.tenant, r->request->create, r->request->language);
	if (r->op)
		file_cancel(r->op);
	if (r->task)
		context_task_leave(r->task);
	work_sandbox_free(r->work);
	folder_list_done(&r->before);
	folder_list_done(&r->after);
	artifacts_free(r->artifact, r->artifacts);
	buf_done(&r->content);
	release_bytes(r, r->held);
	run_request_free(r->request);
	free(r);
}

static void run_over(struct run *r)
{
	const struct run_reader reader = r->reader;
	const struct run_result result = {
		.end = &r->end,
		.artifact = r->artifact,
		.artifacts = r->artifacts,
		.left_out = r->left_out,
		.listed = r->request->artifacts,
	};

	reader.end(reader.arg, &result);
	run_free(r);
}

/* Nothing was run. */
static void run_fail(struct run *r, const struct err *e)
{
	r->fail = *e;
	r->end = (struct context_end){ .failed = &r->fail };
	run_over(r);
}

/* --- the artifacts --- */

static void read_next(struct run *r);

static void on_content(void *arg, const uint8_t *p, size_t len)
{
	struct run *r = arg;

	buf_add(&r->content, p, len); /* no more than was asked for */
}

static void on_read(void *arg, int res, const struct file_end *x, unsigned flags, const struct err *e)
{
	struct run *r = arg;
	struct run_artifact *a = &r->artifact[r->reading++];

	(void)flags;
	(void)e;
	(void)x;
	r->op = NULL;
	if (res == 0) {
		a->size = r->content.len; /* it may have grown, or shrunk */
		a->content = malloc(BASE64_SIZE(r->content.len));
	}
	if (a->content) {
		base64_encode(buf_str(&r->content), r->content.len, a->content);
		r->content_bytes += r->content.len;
	}
	buf_done(&r->content);
	read_next(r);
}

static void read_next(struct run *r)
{
	static const struct file_calls calls = { .data = on_content, .done = on_read };
	struct err e = { 0 };

	for (; r->reading < r->artifacts; r->reading++) {
		const struct run_artifact *a = &r->artifact[r->reading];
		const struct file_request q = { .path = a->path, .length = a->size };

		if (a->size > RUN_ARTIFACT_MAX || r->content_bytes > RUN_ARTIFACTS_BYTES ||
		    a->size > RUN_ARTIFACTS_BYTES - r->content_bytes || !hold_bytes(r, BASE64_SIZE(a->size)))
			continue;
		r->content = (struct buf)BUF_INIT(RUN_ARTIFACT_MAX + 1);
		if (file_begin(r->sandbox, &r->sandbox->request->user, FILE_READ, 0, &q, &calls, r, &r->op, &e) == 0)
			return;
	}
	run_over(r);
}

/* --- a look at the working folder --- */

static void execute(struct run *r);

static void on_entry(void *arg, const struct file_entry *x)
{
	struct run *r = arg;
	struct folder_list *l = r->ran ? &r->after : &r->before;

	if (folder_list_add(l, x) < 0)
		l->more = true;
}

static void on_listed(void *arg, int res, const struct file_end *x, unsigned flags, const struct err *e)
{
	struct run *r = arg;
	struct folder_list *l = r->ran ? &r->after : &r->before;

	(void)x;
	(void)e;
	r->op = NULL;
	l->more = l->more || flags & FILE_TRUNCATED || (r->ran && res < 0);
	folder_list_sort(l);
	if (!r->ran) {
		execute(r);
		return;
	}
	artifacts_choose(&r->before, l, r->request->globs, &r->artifact, &r->artifacts, &r->left_out);
	read_next(r);
}

static void look(struct run *r)
{
	static const struct file_calls calls = { .entry = on_entry, .done = on_listed };
	const struct file_request q = { .path = r->sandbox->request->spec->workdir,
					.depth = LIST_DEPTH,
					.max = LIST_MAX };
	struct err e = { 0 };
	int res = file_begin(r->sandbox, &r->sandbox->request->user, FILE_LIST, 0, &q, &calls, r, &r->op, &e);

	if (res == 0)
		return;
	r->left_out += r->ran;
	if (r->ran)
		run_over(r);
	else
		run_fail(r, &e);
}

/* --- the code --- */

static void on_begun(void *arg)
{
	struct run *r = arg;

	r->begun = true;
	if (r->reader.begun)
		r->reader.begun(r->reader.arg);
}

static void on_event(void *arg, const struct context_event *ev)
{
	struct run *r = arg;

	r->reader.event(r->reader.arg, ev);
}

static void on_end(void *arg, const struct context_end *end)
{
	struct run *r = arg;

	r->task = NULL;
	if (end->failed) {
		run_fail(r, end->failed);
		return;
	}
	r->end = *end;
	r->ran = true;
	if (r->request->artifacts && work_sandbox_get(r->work))
		look(r);
	else
		run_over(r);
}

static void execute(struct run *r)
{
	const struct context_reader reader = { .begun = on_begun, .event = on_event, .end = on_end, .arg = r };
	struct err e = { 0 };
	struct context *c = context_find(r->sandbox, r->request->language, &e);

	if (!c || context_execute(c, &r->who, &r->request->code, &reader, &r->task, &e) < 0)
		run_fail(r, &e);
}

/* --- its files --- */

static void write_next(struct run *r);

static void on_written(void *arg, int res, const struct file_end *x, unsigned flags, const struct err *e)
{
	struct run *r = arg;
	struct run_file *f = &r->request->file[r->next_file];
	struct err why = { 0 };

	(void)x;
	(void)flags;
	r->op = NULL;
	if (res < 0) {
		why = *e;
		err_wrap(&why, res, "'files'");
		run_fail(r, &why);
		return;
	}
	release_bytes(r, f->len);
	free(TAKE_PTR(f->bytes));
	f->len = 0;
	r->next_file++;
	write_next(r);
}

/* As much as the worker takes. */
static void feed(void *arg)
{
	struct run *r = arg;
	const struct run_file *f = &r->request->file[r->next_file];

	while (r->fed < f->len && file_queued(r->op) <= FILE_HIGH) {
		const size_t n = f->len - r->fed < FILE_HIGH ? f->len - r->fed : FILE_HIGH;

		file_feed(r->op, f->bytes + r->fed, n);
		r->fed += n;
	}
	if (r->fed < f->len || r->fed_all)
		return;
	r->fed_all = true;
	file_feed_end(r->op);
}

static void write_next(struct run *r)
{
	static const struct file_calls calls = { .drain = feed, .done = on_written };
	const struct run_file *f = &r->request->file[r->next_file];
	struct file_request q = { 0 };
	struct err e = { 0 };

	if (r->next_file == r->request->files) {
		if (r->request->artifacts)
			look(r);
		else
			execute(r);
		return;
	}
	q.path = f->path;
	if (file_begin(r->sandbox, &r->sandbox->request->user, FILE_WRITE, FILE_PARENTS, &q, &calls, r, &r->op, &e) <
	    0) {
		run_fail(r, &e);
		return;
	}
	r->fed = 0;
	r->fed_all = false;
	feed(r);
}

/* --- its sandbox --- */

static void make(struct run *r, struct sandbox_request *w);

/* The warm image is of no use: without it, then. */
static bool try_cold(struct run *r)
{
	struct sandbox_request *w = NULL;
	struct who own = r->who;
	struct err e = { 0 };

	if (!r->warm)
		return false;
	r->warm = false;
	warm_context_bad(r->s, r->who.tenant, r->request->create, r->request->language);
	if (request_from(r->s, &own, r->request->create, &w, &e) < 0)
		return false;
	work_sandbox_free(TAKE_PTR(r->work));
	make(r, w);
	return true;
}

static void on_sandbox(void *arg, struct sandbox *b, const struct err *e)
{
	struct run *r = arg;

	if (!b && e->kind == ERR_REFUSED && try_cold(r))
		return;
	if (!b) {
		run_fail(r, e);
		return;
	}
	r->sandbox = b;
	write_next(r);
}

static void make(struct run *r, struct sandbox_request *w)
{
	w->origin.run = true;
	r->work = work_sandbox_make(r->s, &r->who, w, on_sandbox, r);
}

/* --- its packages --- */

/* From their layer, with what this run asks for: not with the network of the installation. */
static int packages_request(const struct run *r, struct checkpoint *c, struct sandbox_request **ret, struct err *e)
{
	AUTO(json_decref) json_t *body = json_copy(r->request->create);

	json_object_del(body, "image");
	json_object_del(body, "isolation");
	if (!json_object_get(body, "network"))
		json_object_set_new(body, "network", json_string("none"));
	return restore_request(c, body, r->who.scope == SCOPE_ADMIN, ret, e);
}

static void on_packages(void *arg, struct checkpoint *c, const struct err *e)
{
	struct run *r = arg;
	struct sandbox_request *w = NULL;
	struct err why = { 0 };

	if (!c)
		run_fail(r, e);
	else if (packages_request(r, c, &w, &why) < 0)
		run_fail(r, &why);
	else
		make(r, w);
}

static int install(struct run *r, struct err *e)
{
	int res;

	r->packages = calloc(1, sizeof(*r->packages));
	if (!r->packages)
		abort(); /* a few dozen bytes only */
	*r->packages = (struct package_waiter){ .fn = on_packages, .arg = r };
	res = packages_get(r->s, &r->who, r->request, r->packages, e);
	if (res < 0)
		run_free(r);
	return res;
}

static void on_taken(void *arg)
{
	struct run *r = arg;
	struct sandbox *b = work_sandbox_get(r->work);
	struct err e = { 0 };

	if (b)
		on_sandbox(r, b, NULL);
	else
		run_fail(r, (err_set(&e, WHY_SANDBOX_LOST, -ESRCH, "the sandbox has ended before the code began"), &e));
}

int run_start(struct service *s, const struct who *who, const char *data, size_t len, const struct run_reader *reader,
	      struct run **ret, struct err *e)
{
	AUTO(run_request_free) struct run_request *q = NULL;
	struct sandbox_request *w = NULL, *warm = NULL;
	struct who own = *who;
	struct run *r;
	int res = run_request_read(&s->o, data, len, &q, e);

	if (res == 0)
		res = request_from(s, &own, q->create, &w, e);
	if (res < 0)
		return res;
	r = calloc(1, sizeof(*r));
	if (!r)
		abort(); /* a few hundred bytes only */
	*r = (struct run){ .s = s, .who = own, .request = TAKE_PTR(q), .reader = *reader };
	res = hold_files(r, e);
	if (res < 0) {
		sandbox_request_free(w);
		run_free(r);
		return res;
	}
	if (json_array_size(r->request->packages)) {
		sandbox_request_free(w);
		*ret = r;
		return install(r, e);
	}
	r->work = warm_context_take(s, own.tenant, r->request->create, r->request->language);
	if (r->work) {
		sandbox_request_free(w);
		turn_after(s->turn, &r->wait, on_taken, r);
	} else if (warm_context_request(s, &own, r->request->create, r->request->language, &warm) == 1) {
		sandbox_request_free(w);
		r->warm = true;
		make(r, warm);
	} else {
		make(r, w);
	}
	*ret = r;
	return 0;
}

void run_hold(struct run *r)
{
	if (r->task)
		context_task_hold(r->task);
}

void run_go(struct run *r)
{
	if (r->task)
		context_task_go(r->task);
}

void run_leave(struct run *r)
{
	run_free(r);
}
