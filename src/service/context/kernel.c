/*
 * The kernel of a context: an exec of the sandbox. An image need not have its files: the interpreter is started with a short text
 * that reads the rest from its stdin, where the requests follow.
 *
 * After a restart of this process, and in a copy of the sandbox, the kernel is in the middle of something nobody here knows of.
 * It is interrupted, and asked a question with a random id: behind the answer to that its next event begins.
 */
#include "base/base.h"
#include "base/clock.h"
#include "base/log.h"
#include "engine/verdict.h"
#include "service/context/struct.h"
#include "service/secret/give.h"
#include "service/state/json_read.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#define SAID_MAX (4U * 1024U)
#define REQUESTS_MAX (72U * 1024U * 1024U) /* a frame has at most 64 MiB */
#define SYNC_BACK 512U /* the answer begins at most so many bytes before its id */
#define PROGRAM_MAX (4U * 1024U * 1024U)

static const char no_event[] =
	"the kernel sent an invalid event and was ended: code of the context has written to its descriptors";

static const char too_much[] =
	"it was ended in the middle of an event: what the tenant's contexts send at once would have more than 512 MiB";

static const unsigned char python_source[] = {
#include <src/service/kernel_python.inc>
	0
};
static const unsigned char node_source[] = {
#include <src/service/kernel_node.inc>
	0
};

/* Four bytes of length, then the source; what follows are requests. Modules of the work folder must not hide Python's own. */
static const char python_boot[] =
	"import sys,os\n"
	"if sys.path[:1]==['']:del sys.path[0]\n"
	"def r(n):\n"
	" d=b''\n"
	" while len(d)<n:\n"
	"  p=os.read(0,n-len(d))\n"
	"  if not p:os._exit(65)\n"
	"  d+=p\n"
	" return d\n"
	"exec(compile(r(int.from_bytes(r(4),'little')),'<cloche kernel>','exec'),{'__name__':'__main__'})\n";

/* Before it is ready: what is there of these. */
static const char *const preloaded[] = { "numpy", "pandas", "matplotlib.pyplot" };

static const char node_move[] = "exec node -e \"$0\" \"$1\" 3<&0 4>&1 0</dev/null 1>&2";
static const char node_boot[] =
	"const r=n=>{const b=Buffer.alloc(n);let i=0;while(i<n){const k=fs.readSync(3,b,i,n-i);if(!k)process.reallyExit(65);i+=k}return b};"
	"process.argv.splice(1,0,'kernel.js');"
	"new vm.Script('(function(require,importFrom){'+r(r(4).readUInt32LE(0)).toString()+'\\n})',{filename:'cloche-kernel.js'})"
	".runInThisContext()(require,(s,o)=>o===undefined?import(s):import(s,o))";

/* A program: it needs a folder where files may be executed, for a moment. */
static const char shell_boot[] =
	"umask 077\n"
	"for d in /tmp /dev/shm /var/tmp \"$HOME\" .; do\n"
	"f=$d/.cloche-shell-kernel-$$\n"
	"if (: >\"$f\") 2>/dev/null && chmod 700 \"$f\" && test -x \"$f\"; then\n"
	"head -c \"$0\" >\"$f\" && exec \"$f\" --remove $1\n"
	"fi\n"
	"rm -f \"$f\" 2>/dev/null\n"
	"done\n"
	"echo 'no folder of this sandbox is writable and allows programs: /tmp, /dev/shm, /var/tmp, home' >&2\n"
	"exit 126\n";

int kernel_frame_make(struct buf *frame, const struct buf *body)
{
	const uint32_t n = (uint32_t)body->len;
	const unsigned char head[KERNEL_FRAME_HEAD] = { (unsigned char)n, (unsigned char)(n >> 8),
							(unsigned char)(n >> 16), (unsigned char)(n >> 24) };
	int r = buf_add(frame, head, sizeof(head));

	return r < 0 ? r : buf_add(frame, buf_str(body), body->len);
}

/* --- what is sent first --- */

static int shell_program(const struct context *c, struct buf *out, struct err *e)
{
	const int fd = c->sandbox->service->o.shell_kernel;
	struct stat st;
	char *room;

	if (fd <= 0 || fstat(fd, &st) < 0 || st.st_size <= 0 || st.st_size > PROGRAM_MAX)
		return err_set(e, ERR_INTERNAL, -ENOENT, "cloche-shell-kernel is not there");
	room = buf_room(out, (size_t)st.st_size);
	if (!room)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a kernel");
	if (pread(fd, room, (size_t)st.st_size, 0) != st.st_size)
		return err_set(e, ERR_INTERNAL, -EIO, "cloche-shell-kernel cannot be read");
	buf_added(out, (size_t)st.st_size);
	return 0;
}

static int boot(const struct context *c, json_t **ret_cmd, struct buf *first, struct err *e)
{
	AUTO(buf_done) struct buf source = BUF_INIT(PROGRAM_MAX);
	char size[24];
	int r = 0;

	switch (c->spec->language) {
	case CONTEXT_PYTHON:
		*ret_cmd = json_pack("[s,s,s]", "python3", "-c", python_boot);
		for (size_t i = 0; *ret_cmd && c->preloads && i < ARRAY_LEN(preloaded); i++)
			json_array_append_new(*ret_cmd, json_string(preloaded[i]));
		r = buf_add(&source, python_source, sizeof(python_source) - 1);
		break;
	case CONTEXT_JAVASCRIPT:
	case CONTEXT_TYPESCRIPT:
		*ret_cmd = json_pack("[s,s,s,s,s]", "/bin/sh", "-c", node_move, node_boot,
				     context_language_name(c->spec->language));
		r = buf_add(&source, node_source, sizeof(node_source) - 1);
		break;
	case CONTEXT_SHELL:
	case CONTEXT_R: /* the same program runs R */
		r = shell_program(c, first, e);
		if (r < 0)
			return r;
		snprintf(size, sizeof(size), "%zu", first->len);
		*ret_cmd = json_pack("[s,s,s,s,s*]", "/bin/sh", "-c", shell_boot, size,
				     c->spec->language == CONTEXT_R ? "r" : NULL);
		break;
	}
	if (r == 0 && source.len)
		r = kernel_frame_make(first, &source);
	return r < 0 || !*ret_cmd ? err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a kernel") : 0;
}

/* What is kept of the context with its kernel. */
static char *kept(const struct context *c)
{
	AUTO(buf_done) struct buf b = BUF_INIT(MIB);
	struct json j = JSON_INIT(&b);

	jout_object(&j, NULL);
	jout_str(&j, "id", c->id);
	jout_bool(&j, "default", c->standard);
	jout_u64(&j, "made_ns", c->made_ns);
	context_spec_write(c->spec, &j);
	jout_end(&j);
	return jout_done(&j) < 0 ? NULL : buf_take(&b);
}

/* --- the exec --- */

static void on_data(void *arg, enum exec_stream s, const char *p, size_t len);
static void on_change(void *arg, struct exec *x);

static void attach(struct context *c, struct exec *x)
{
	c->exec = x;
	exec_watch(x, &c->watch, on_change, c);
	context_ref(c);
}

/* What has come of a frame counts for the tenant: each kernel can begin one that it never ends. Returns whether it is too much. */
static bool count_in(struct context *c)
{
	size_t *events = tenant_events(c->sandbox->tenant);

	*events += c->in.len - c->held;
	c->held = c->in.len;
	return c->held > FRAME_FREE && *events > FRAMES_MAX;
}

void kernel_leave(struct context *c, bool kill)
{
	struct exec *x = c->exec;

	if (!x)
		return;
	c->exec = NULL;
	c->kernel++;
	c->state = CONTEXT_NONE;
	c->start_by = c->kill_by = c->rest_until = c->signal_by = 0;
	c->nonce[0] = '\0';
	c->count = 0;
	buf_done(&c->in);
	count_in(c);
	exec_unwatch(&c->watch);
	exec_leave(x, &c->sink);
	if (kill && !exec_has_exited(x))
		exec_signal(x, SIGKILL, EXEC_TREE, NULL);
	exec_unref(x);
	context_unref(c);
}

int kernel_start(struct context *c, struct err *e)
{
	struct sandbox *b = c->sandbox;
	const struct who daemon = { .tenant = b->tenant };
	AUTO(buf_done) struct buf first = BUF_INIT(PROGRAM_MAX + KIB);
	AUTO(exec_request_free) struct exec_request *w = NULL;
	AUTO(json_decref) json_t *o = NULL;
	json_t *cmd = NULL;
	struct exec *x = NULL;
	int r = boot(c, &cmd, &first, e);

	o = json_pack("{s:o*,s:b}", "cmd", cmd, "stdin_open", 1);
	if (r < 0)
		return r;
	if (!o)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a kernel");
	r = exec_request_read(b, o, &w, e);
	if (r < 0)
		return r;
	w->timeout_ms = 0; /* executions have one */
	w->background = w->resident = true;
	w->context = kept(c);
	if (!w->context)
		return err_set(e, ERR_TOO_LARGE, -E2BIG, "the settings of a context take more than 1 MiB");
	c->sink = (struct exec_sink){ .data = on_data, .arg = c };
	r = exec_new(b, &daemon, TAKE_PTR(w), &c->sink, &x, e);
	if (r < 0)
		return r;
	exec_write_much(x, REQUESTS_MAX);
	buf_clear(&c->said);
	c->state = CONTEXT_STARTING;
	c->start_by = clock_mono_ns() + START_MS * 1000000ULL;
	attach(c, x);
	exec_write(x, first.data, first.len, NULL); /* its end says why, if that fails */
	context_arm(c);
	return 0;
}

int kernel_send(struct context *c, const struct buf *frame)
{
	struct err e = { 0 };

	return exec_write(c->exec, frame->data, frame->len, &e);
}

/* Its settings; or with @id nothing but that, to be answered. */
static int send_start(struct context *c, const char *id)
{
	const struct context_spec *s = c->spec;
	AUTO(buf_done) struct buf body = BUF_INIT(4 * MIB), frame = BUF_INIT(5 * MIB);
	struct json j = JSON_INIT(&body);

	jout_object(&j, NULL);
	jout_str(&j, "type", "start");
	if (id) {
		jout_str(&j, "id", id);
		if (c->copied) {
			jout_bool(&j, "reseed", true);
			kv_write(&c->sandbox->request->env, "env", &j);
		}
	} else {
		c->start_id = ++c->next_id;
		jout_u64(&j, "id", c->start_id);
		jout_u64(&j, "output_max", s->output_limit);
		jout_u64(&j, "result_max", s->result_limit);
		if (s->cwd)
			jout_str(&j, "cwd", s->cwd);
		for (int i = 0; i < 2; i++) {
			const json_t *o = i ? s->restricted : s->env;
			char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;

			if (text)
				jout_raw(&j, i ? "restrict" : "env", text, strlen(text));
			free(text);
		}
	}
	jout_end(&j);
	if (jout_done(&j) < 0 || kernel_frame_make(&frame, &body) < 0)
		return -ENOMEM;
	return kernel_send(c, &frame);
}

/* --- its end --- */

void kernel_end(struct context *c, const char *cause, const char *detail)
{
	struct context_task *t = c->current;
	struct err e = { 0 };
	bool ready = c->state == CONTEXT_READY || c->state == CONTEXT_SYNCING;

	context_ref(c);
	kernel_leave(c, true);
	if (t) {
		t->end.cause = cause;
		t->end.lost = true;
		snprintf(t->end.detail, sizeof(t->end.detail), "%s", detail);
		task_end(t);
	}
	if (!ready)
		tasks_fail(c,
			   err_set(&e, WHY_START_FAILED, -EPROTO, "the %s kernel was ended before it was ready: %s",
				   context_language_name(c->spec->language), detail),
			   &e);
	tasks_go(c);
	context_unref(c);
}

/* The last line of what it said is the reason, as a rule. */
static const char *last_line(struct buf *said)
{
	char *text = said->data, *at;

	while (said->len && strchr(" \n\r\t", text[said->len - 1]))
		buf_cut(said, said->len - 1);
	at = said->len ? memrchr(text, '\n', said->len) : NULL;
	return at ? at + 1 : buf_str(said);
}

static void fail_start(struct context *c, struct exec *x)
{
	const struct err *why = exec_failure(x);
	const char *said = last_line(&c->said), *language = context_language_name(c->spec->language);
	const struct verdict *v = exec_verdict(x);
	struct err e = { 0 };

	if (why) {
		e = *why;
		err_wrap(&e, 0, "the %s context cannot be started", language);
	} else {
		err_set(&e, WHY_START_FAILED, -ECHILD, "the %s context cannot be started: %s%s%s", language, v->detail,
			*said ? ": " : "", said);
	}
	if (c->spec->language == CONTEXT_SHELL)
		err_remedy(&e, "a shell context needs /bin/sh and `head` in the image");
	else if (c->spec->language == CONTEXT_R)
		err_remedy(&e, "an R context needs R, /bin/sh and `head` in the image (Debian: r-base-core)");
	else
		err_remedy(&e, "a %s context needs %s in the image", language,
			   c->spec->language == CONTEXT_PYTHON ? "python3 (3.9 or later)" :
								 "node (18 or later) and /bin/sh");
	tasks_fail(c, -ECHILD, &e);
}

void kernel_gone(struct context *c)
{
	struct exec *x = c->exec;
	struct context_task *t = c->current;
	const bool starting = c->state == CONTEXT_STARTING || c->state == CONTEXT_SETTLING, used = c->count > 0;
	const struct verdict *v = exec_verdict(x);
	struct err e = { 0 };

	context_ref(c);
	exec_ref(x);
	kernel_leave(c, false);
	if (t) {
		t->end.cause = exec_over(x) ? verdict_name(v->cause) : "lost";
		t->end.lost = true;
		t->end.has_limit = exec_over(x) && v->has_limit;
		t->end.limit = v->limit;
		t->end.peak = v->peak;
		snprintf(t->end.detail, sizeof(t->end.detail), "the kernel has ended: %s",
			 exec_over(x) ? v->detail : "it was lost");
		task_end(t);
	}
	if (starting)
		fail_start(c, x);
	/* What was there begins anew, so that it is there after a restart of ours, too. Not in a circle. */
	if (!starting && used && c->listed && !c->queue && c->sandbox->state == SANDBOX_RUNNING &&
	    kernel_start(c, &e) < 0)
		log_info("context %s of sandbox %s: %s", c->id, c->sandbox->id, e.msg);
	tasks_go(c);
	exec_unref(x);
	context_unref(c);
}

/* --- found again --- */

static void sync_begin(struct context *c)
{
	if (c->nonce[0] || !exec_started(c->exec) || exec_interrupting(c->exec))
		return;
	if (!c->start_by) {
		c->start_by = clock_mono_ns() + SYNC_MS * 1000000ULL;
		context_arm(c);
		if (exec_interrupt(c->exec, NULL) == 0 && exec_interrupting(c->exec))
			return;
	}
	if (id_new(c->nonce, sizeof(c->nonce)) < 0)
		return;
	send_start(c, c->nonce); /* without an answer it is ended when its time is over */
	context_arm(c);
}

static struct context *context_from(struct sandbox *b, const json_t *o, struct err *e)
{
	AUTO(context_spec_free) struct context_spec *s = NULL;
	AUTO(json_decref) json_t *own = json_copy((json_t *)(uintptr_t)o);
	const char *id = json_string_value(json_object_get(o, "id"));
	struct context *c;
	int r;

	json_object_del(own, "id");
	json_object_del(own, "default");
	json_object_del(own, "made_ns");
	r = context_spec_read(b, own, &s, e);
	if (r < 0 || !id)
		return NULL;
	c = context_new(b, id, json_is_true(json_object_get(o, "default")), s, e);
	if (!c)
		return NULL;
	s = NULL;
	c->made_ns = (uint64_t)json_integer_value(json_object_get(o, "made_ns"));
	c->proven = true;
	return c;
}

static void kernel_found(struct context *c, struct exec *x)
{
	const bool same = c->exec && exec_number(c->exec) == exec_number(x) && !exec_has_exited(c->exec) &&
			  !exec_write_queued(c->exec) && c->state == CONTEXT_READY;
	struct context_task *t = c->current;

	c->sink = (struct exec_sink){ .data = on_data, .arg = c };
	if (same) { /* it slept, and continues where it was: with its caller, and what has come of a frame */
		exec_unwatch(&c->watch);
		exec_leave(c->exec, &c->sink);
		exec_unref(c->exec);
		c->exec = NULL;
		context_unref(c);
	} else {
		kernel_leave(c, false);
		if (t) {
			t->end.cause = "lost";
			t->end.lost = true;
			snprintf(t->end.detail, sizeof(t->end.detail), "the sandbox was replaced");
			task_end(t);
		}
		c->state = CONTEXT_SYNCING;
		c->copied = c->sandbox->request->origin.reseeds;
	}
	exec_ref(x);
	exec_join(x, &c->sink);
	exec_write_much(x, REQUESTS_MAX);
	attach(c, x);
}

/* Of a sandbox that was found again, or of a memory image. */
void context_found(struct sandbox *b, struct exec *x)
{
	AUTO(json_decref) json_t *o = NULL;
	const char *text = exec_context(x);
	struct context *c;
	struct err e = { 0 };

	if (!text || json_read_begin(text, strlen(text), &o, &e) < 0)
		return;
	c = context_by_id(b, json_string_value(json_object_get(o, "id")));
	if (!c)
		c = context_from(b, o, &e);
	if (c && b->request->origin.reseeds && b->secrets)
		exec_signal(x, SIGKILL, EXEC_TREE,
			    NULL); /* it was started without them: the first use starts another */
	else if (c)
		kernel_found(c, x);
	else
		log_error("sandbox %s: a context cannot be read: %s", b->id, e.msg);
}

/* Whether the answer is there: then its frame goes, with all before it. */
static bool sync_find(struct context *c)
{
	char *text = c->in.data, *at = c->nonce[0] && c->in.len ? memmem(text, c->in.len, c->nonce, ID_LEN) : NULL;
	struct kernel_frame f;

	for (size_t back = KERNEL_FRAME_HEAD + 1; at && back <= SYNC_BACK && back <= (size_t)(at - text); back++) {
		const unsigned char *h = (const unsigned char *)at - back;
		const size_t n = h[0] | (size_t)h[1] << 8 | (size_t)h[2] << 16 | (size_t)h[3] << 24;
		const size_t from = (size_t)(at - text) - back + KERNEL_FRAME_HEAD;

		if (h[4] != '{' || n > 2U * SYNC_BACK || from + n > c->in.len)
			continue;
		if (kernel_frame_read(text + from, n, &f) < 0 || !kernel_frame_is(&f, "id", c->nonce))
			continue;
		buf_drop(&c->in, from + n);
		return true;
	}
	if (!at && c->in.len > SYNC_BACK)
		buf_drop(&c->in, c->in.len - SYNC_BACK);
	return false;
}

/* --- what it sends --- */

/* Before its first cell. Returns whether the frame was for that. */
static bool beginning(struct context *c, const struct kernel_frame *f)
{
	AUTO(buf_done) struct buf text = BUF_INIT(KIB);
	uint64_t n = 0;

	if (c->state == CONTEXT_STARTING && kernel_frame_is(f, "type", "ready") &&
	    kernel_frame_u64(f, "protocol", &n) && n == 1) {
		c->state = CONTEXT_SETTLING;
		if (send_start(c, NULL) < 0)
			kernel_end(c, "protocol", "it does not take requests");
		return true;
	}
	if (c->state != CONTEXT_SETTLING || !kernel_frame_u64(f, "id", &n) || n != c->start_id)
		return false;
	if (kernel_frame_is(f, "type", "reply")) {
		c->state = CONTEXT_READY;
		c->proven = true;
		c->start_by = 0;
		context_arm(c);
		tasks_go(c);
		return true;
	}
	if (json_span_is_text(kernel_frame_get(f, "message")))
		json_span_text(kernel_frame_get(f, "message"), 150, &text);
	kernel_end(c, "refused", *buf_str(&text) ? buf_str(&text) : "it refuses its settings");
	return true;
}

static void frame(struct context *c, char *data, size_t len)
{
	struct kernel_frame f;
	int r = kernel_frame_read(data, len, &f);

	if (r == -ELOOP) { /* what a cell has made can be that deep */
		if (c->current)
			c->current->end.left_out++;
		return;
	}
	if (r < 0)
		kernel_end(c, "protocol", no_event);
	else if (!beginning(c, &f) && c->state == CONTEXT_READY)
		context_event(c, &f);
}

static void take_frames(struct context *c)
{
	const uint64_t kernel = c->kernel;
	size_t at = 0;

	while (c->kernel == kernel && c->in.len - at >= KERNEL_FRAME_HEAD) {
		const unsigned char *h = (const unsigned char *)c->in.data + at;
		const size_t n = h[0] | (size_t)h[1] << 8 | (size_t)h[2] << 16 | (size_t)h[3] << 24;

		if (n > KERNEL_FRAME_MAX) {
			kernel_end(c, "protocol", no_event);
			return;
		}
		if (c->in.len - at - KERNEL_FRAME_HEAD < n)
			break;
		at += KERNEL_FRAME_HEAD + n;
		frame(c, c->in.data + at - n, n);
	}
	if (c->kernel != kernel)
		return;
	if (at == c->in.len && c->in.cap > MIB)
		buf_done(&c->in);
	else
		buf_drop(&c->in, at);
}

static void on_data(void *arg, enum exec_stream s, const char *p, size_t len)
{
	struct context *c = arg;

	if (s == EXEC_ERR) {
		if (len > SAID_MAX) {
			p += len - SAID_MAX;
			len = SAID_MAX;
		}
		buf_add(&c->said, p, len);
		if (c->said.len > SAID_MAX)
			buf_drop(&c->said, c->said.len - SAID_MAX);
		return;
	}
	context_ref(c);
	if (buf_add(&c->in, p, len) < 0) {
		kernel_end(c, "protocol", "the context sent an event that is too large");
	} else if (count_in(c)) {
		kernel_end(c, "protocol", too_much);
	} else if (c->state != CONTEXT_SYNCING) {
		take_frames(c);
	} else if (sync_find(c)) {
		c->state = CONTEXT_READY;
		c->start_by = 0;
		c->copied = false;
		c->nonce[0] = '\0';
		context_arm(c);
		take_frames(c);
		tasks_go(c);
	}
	count_in(c);
	context_unref(c);
}

static void on_change(void *arg, struct exec *x)
{
	struct context *c = arg;

	if (exec_over(x))
		kernel_gone(c);
	else if (c->state == CONTEXT_SYNCING)
		sync_begin(c);
	else
		tasks_go(c);
}
