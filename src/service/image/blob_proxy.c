/* The protocol with skopeo's image proxy: requests, answers, and the end of blobs. */
#include "service/image/blob_proxy.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/json.h"
#include "service/image/blob_pipe.h"
#include "service/image/skopeo.h"
#include "service/sandbox/struct.h"

#include <jansson.h>
#include <sys/socket.h>
#include <unistd.h>

#define MESSAGE_MAX (32U * KIB)
#define ANSWER_FDS 4U
#define QUIET_NS 3000000000ULL /* silence of a pipe */

enum step { STEP_GREET, STEP_OPEN, STEP_GET, STEP_FINISH };

struct fetch {
	struct blob_proxy *proxy;
	struct blob_pipe *pipe; /* NULL: not started yet, or finished */
	char *digest;
	uint64_t size;
	int fd;
	uint32_t pipe_id;
	uint64_t seen, seen_ns; /* bytes that its pipe had moved, and the time of the last change */
	bool used, asked;
	bool moved; /* all bytes are read */
	bool finishing, finished; /* skopeo was asked whether the blob was good; it has answered */
	int r; /* with ->err: the first error */
	struct err err;
	blob_fn *fn;
	void *arg;
};

struct blob_proxy {
	struct service *s;
	struct skopeo *skopeo;
	const struct registry_conf *conf;
	int sock;
	uv_poll_t *poll;
	uv_timer_t *timer; /* checks for silence, once a second */
	uint64_t asked_ns;
	char *image, *what;
	uint32_t image_id;
	bool opened, busy, freed;
	enum step step; /* the request under way, when ->busy */
	struct fetch *of; /* STEP_GET, STEP_FINISH */
	struct fetch fetch[BLOBS_AT_ONCE];
	unsigned moving;
	unsigned inside; /* depth of calls that still use it after a callback, which may free it */
	uint64_t bytes; /* of finished fetches */
	int r; /* it is broken, */
	struct err err; /* with this error */
	struct turn_wait wait;
	void (*done)(void *arg);
	void *done_arg;
};

static void ask_next(struct blob_proxy *p);

static void free_handle(uv_handle_t *h)
{
	free(h);
}

static void disconnect(struct blob_proxy *p)
{
	if (p->poll)
		uv_close((uv_handle_t *)TAKE_PTR(p->poll), free_handle);
	if (p->timer)
		uv_close((uv_handle_t *)TAKE_PTR(p->timer), free_handle);
	fd_close(p->sock);
	p->sock = -1;
}

static void end_if_free(struct blob_proxy *p)
{
	if (!p->freed || p->moving || p->inside)
		return;
	if (p->done)
		p->done(p->done_arg);
	free(p->image);
	free(p->what);
	free(p);
}

static void leave(struct blob_proxy *p)
{
	p->inside--;
	end_if_free(p);
}

/* Reports a finished fetch to its caller. */
static void fetched(struct fetch *f, int r, const struct err *e)
{
	struct fetch was = *f;
	const struct err why = r < 0 ? *e : (struct err){ 0 };

	*f = (struct fetch){ 0 };
	free(was.digest);
	was.fn(was.arg, r, r < 0 ? &why : NULL);
}

/* Reports the error to all that wait; pipes in use are cut, and their threads report their end. */
static void on_broken(void *arg)
{
	struct blob_proxy *p = arg;

	p->inside++;
	for (size_t i = 0; i < BLOBS_AT_ONCE && !p->freed; i++) {
		struct fetch *f = &p->fetch[i];

		if (f->used && f->pipe)
			blob_pipe_cut(f->pipe);
		else if (f->used)
			fetched(f, p->r, &p->err);
	}
	leave(p);
}

static void fail(struct blob_proxy *p, int r, const struct err *e)
{
	if (p->r < 0 || p->freed)
		return;
	p->r = r;
	p->err = *e;
	disconnect(p);
	turn_after(p->s->turn, &p->wait, on_broken, p);
}

static void fail_text(struct blob_proxy *p, const char *text)
{
	struct err e = { 0 };

	err_set(&e, WHY_REGISTRY_FAILED, -EPROTO, "%.120s: %s", p->what, text);
	fail(p, -EPROTO, &e);
}

/* --- requests --- */

static struct fetch *to_be_finished(struct blob_proxy *p)
{
	for (size_t i = 0; i < BLOBS_AT_ONCE; i++)
		if (p->fetch[i].used && p->fetch[i].moved && !p->fetch[i].finishing)
			return &p->fetch[i];
	return NULL;
}

static struct fetch *to_be_asked(struct blob_proxy *p)
{
	for (size_t i = 0; i < BLOBS_AT_ONCE; i++)
		if (p->fetch[i].used && !p->fetch[i].asked)
			return &p->fetch[i];
	return NULL;
}

static void finish(struct fetch *f);

/*
 * Bytes came, or none for a while. skopeo keeps its end of a pipe open until it is asked whether the blob was good:
 * when a registry ends a blob too early nothing comes any more, and only that answer has the reason.
 */
static void look_at(struct fetch *f, uint64_t now)
{
	const uint64_t moved = blob_pipe_moved(f->pipe);

	if (moved != f->seen || !f->seen_ns) {
		f->seen = moved;
		f->seen_ns = now;
	} else if (now - f->seen_ns > QUIET_NS && !f->finishing && !f->proxy->busy) {
		finish(f);
	}
}

static void on_second(uv_timer_t *t)
{
	struct blob_proxy *p = t->data;
	const uint64_t now = clock_mono_ns();
	uint64_t last = p->asked_ns;
	struct err e = { 0 };

	for (size_t i = 0; i < BLOBS_AT_ONCE; i++) {
		struct fetch *f = &p->fetch[i];

		if (f->used && f->pipe)
			look_at(f, now);
		last = f->used && f->seen_ns > last ? f->seen_ns : last;
	}
	if (p->r < 0 || !p->busy || now - last < p->s->o.image_stall_ms * 1000000ULL)
		return;
	err_set(&e, WHY_REGISTRY_SILENT, -ETIMEDOUT, "%.120s: the registry has not answered for %llu s", p->what,
		(unsigned long long)(p->s->o.image_stall_ms / 1000));
	err_remedy(&e, "try again: layers that were complete are not fetched again");
	fail(p, -ETIMEDOUT, &e);
}

static int send_request(struct blob_proxy *p, const char *method, json_t *args)
{
	AUTO(json_decref) json_t *o = json_pack("{s:s, s:o}", "method", method, "args", args);
	AUTO_FREE char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;
	int r = text ? fd_send_now(p->sock, text, strlen(text), NULL, 0) : -ENOMEM;

	if (r < 0)
		fail_text(p, "cannot ask skopeo");
	else
		p->asked_ns = clock_mono_ns();
	return r;
}

static void ask(struct blob_proxy *p, enum step step, struct fetch *f, const char *method, json_t *args)
{
	p->busy = true;
	p->step = step;
	p->of = f;
	send_request(p, method, args);
}

static void finish(struct fetch *f)
{
	f->finishing = true;
	ask(f->proxy, STEP_FINISH, f, "FinishPipe", json_pack("[I]", (json_int_t)f->pipe_id));
}

static void ask_next(struct blob_proxy *p)
{
	struct fetch *f;

	if (p->busy || p->r < 0 || p->freed || !p->opened)
		return;
	if ((f = to_be_finished(p))) {
		finish(f);
	} else if ((f = to_be_asked(p))) {
		f->asked = true;
		ask(p, STEP_GET, f, "GetBlob",
		    json_pack("[I,s,I]", (json_int_t)p->image_id, f->digest, (json_int_t)f->size));
	}
}

/* --- answers --- */

static void note(struct fetch *f, int r, const struct err *e)
{
	if (f->r < 0 || r >= 0)
		return;
	f->r = r;
	f->err = *e;
}

/* skopeo has reported that a blob was good, or an error. */
static void finished(struct fetch *f, int r, const struct err *e)
{
	f->finished = true;
	note(f, r, e);
	if (f->moved)
		fetched(f, f->r, &f->err);
	else if (r < 0)
		blob_pipe_cut(f->pipe);
}

static void on_moved(void *arg, uint64_t moved, int r, const struct err *e)
{
	struct fetch *f = arg;
	struct blob_proxy *p = f->proxy;

	f->pipe = NULL;
	p->moving--;
	p->bytes += moved;
	if (p->freed) {
		end_if_free(p);
		return;
	}
	p->inside++;
	if (p->r < 0) {
		fetched(f, p->r, &p->err);
	} else {
		f->moved = true;
		note(f, r, e);
		if (f->finished)
			fetched(f, f->r, &f->err);
		ask_next(p);
	}
	leave(p);
}

static int begin_moving(struct fetch *f, int *fd, uint64_t pipe_id, struct err *e)
{
	struct blob_proxy *p = f->proxy;
	const struct blob_pipe_plan plan = { .loop = p->s->loop,
					     .from = *fd,
					     .to = f->fd,
					     .size = f->size,
					     .stall_ms = p->s->o.image_stall_ms,
					     .what = p->what };
	int r;

	f->pipe_id = (uint32_t)pipe_id;
	r = blob_pipe_start(&plan, on_moved, f, &f->pipe, e);
	if (r == 0) {
		*fd = -1;
		p->moving++;
	}
	return r;
}

static void answered(struct blob_proxy *p, const json_t *o, int *fd)
{
	struct fetch *f = TAKE_PTR(p->of);
	const json_int_t value = json_integer_value(json_object_get(o, "value"));
	const json_int_t id = json_integer_value(json_object_get(o, "pipeid"));
	struct err e = { 0 };
	int r;

	switch (p->step) {
	case STEP_GREET:
		ask(p, STEP_OPEN, NULL, "OpenImage", json_pack("[s]", p->image));
		return;
	case STEP_OPEN:
		p->image_id = (uint32_t)value;
		p->opened = true;
		break;
	case STEP_GET:
		r = *fd >= 0 && id > 0 ?
			    begin_moving(f, fd, (uint64_t)id, &e) :
			    err_set(&e, WHY_REGISTRY_FAILED, -EPROTO, "%.120s: skopeo gave no pipe", p->what);
		if (r < 0)
			fail(p, r, &e);
		break;
	case STEP_FINISH:
		finished(f, 0, NULL);
		break;
	}
	ask_next(p);
}

/* skopeo's error in place of an answer. For a blob it comes at the end: the bytes were wrong, or too few. */
static void refused(struct blob_proxy *p, const char *text)
{
	struct fetch *f = TAKE_PTR(p->of);
	struct err e = { 0 };
	int r = skopeo_error(p->conf, text, p->what, &e);

	if (p->step == STEP_FINISH)
		finished(f, r, &e);
	else if (p->step == STEP_GET)
		fetched(f, r, &e);
	else
		fail(p, r, &e);
	ask_next(p);
}

static void on_message(uv_poll_t *poll, int status, int events)
{
	struct blob_proxy *p = poll->data;
	char text[MESSAGE_MAX + 1];
	AUTO(json_decref) json_t *o = NULL;
	int fds[ANSWER_FDS] = { -1, -1, -1, -1 };
	size_t nfds = 0;
	ssize_t n;

	(void)status;
	(void)events;
	n = fd_recv(p->sock, text, MESSAGE_MAX, fds, ANSWER_FDS, &nfds);
	if (n == -EAGAIN || n == -EINTR)
		return;
	p->inside++;
	if (n > 0)
		o = json_loadb(text, (size_t)n, JSON_REJECT_DUPLICATES, NULL);
	if (!json_is_object(o) || !p->busy || nfds > 1) {
		if (n > 0) /* at its end, its exit code is more specific: on_exit */
			fail_text(p, "skopeo's answer cannot be read");
		else if (p->poll)
			uv_poll_stop(p->poll);
	} else {
		p->busy = false;
		if (json_is_true(json_object_get(o, "success")))
			answered(p, o, &fds[0]);
		else
			refused(p, json_string_value(json_object_get(o, "error")) ?
					   json_string_value(json_object_get(o, "error")) :
					   "");
	}
	fd_close_many(fds, ANSWER_FDS);
	leave(p);
}

/* skopeo has ended too early. */
static void on_exit_(void *arg, int r, const struct buf *out, const struct err *e)
{
	struct blob_proxy *p = arg;

	(void)out;
	if (r < 0)
		fail(p, r, e);
	else
		fail_text(p, "skopeo ended early");
}

/* --- for callers --- */

static int connect_loop(struct blob_proxy *p)
{
	p->poll = calloc(1, sizeof(*p->poll));
	p->timer = calloc(1, sizeof(*p->timer));
	if (!p->poll || !p->timer)
		abort();
	p->poll->data = p->timer->data = p;
	uv_timer_init(p->s->loop, p->timer);
	if (uv_poll_init(p->s->loop, p->poll, p->sock) < 0)
		abort(); /* a socket always can be watched */
	uv_timer_start(p->timer, on_second, 1000, 1000);
	return uv_poll_start(p->poll, UV_READABLE, on_message);
}

int blob_proxy_new(struct sandbox *b, const struct who *who, const struct registry_conf *conf, const char *image,
		   const char *what, struct blob_proxy **ret, struct err *e)
{
	static const char *const args[] = { "experimental-image-proxy", NULL };
	struct skopeo_plan plan = { .conf = conf, .args = args, .what = what };
	struct blob_proxy *p;
	int pair[2], r;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_sys(e, ERR_EXHAUSTED, -errno, "make a socket");
	p = calloc(1, sizeof(*p));
	if (!p)
		abort();
	*p = (struct blob_proxy){
		.s = b->service, .conf = conf, .sock = pair[0], .image = strdup(image), .what = strdup(what)
	};
	if (!p->image || !p->what)
		abort();
	fd_set_nonblock(p->sock);
	plan.stdin_fd = pair[1];
	r = skopeo_run(b, who, &plan, on_exit_, p, &p->skopeo, e);
	if (r == 0)
		r = connect_loop(p);
	if (r == 0) {
		ask(p, STEP_GREET, NULL, "Initialize", json_array());
		*ret = p;
		return 0;
	}
	blob_proxy_free(p, NULL, NULL);
	return r;
}

int blob_proxy_fetch(struct blob_proxy *p, const struct blob_plan *plan, blob_fn *fn, void *arg, struct err *e)
{
	struct fetch *f = p->fetch;

	if (p->r < 0) {
		*e = p->err;
		return p->r;
	}
	while (f < p->fetch + BLOBS_AT_ONCE && f->used)
		f++;
	if (f == p->fetch + BLOBS_AT_ONCE)
		return err_set(e, ERR_EXHAUSTED, -EAGAIN, "too many layers are being fetched at once");
	*f = (struct fetch){ .proxy = p, .used = true, .fd = plan->fd, .size = plan->size, .fn = fn, .arg = arg };
	f->digest = strdup(plan->digest);
	if (!f->digest)
		abort();
	ask_next(p);
	return 0;
}

uint64_t blob_proxy_bytes(const struct blob_proxy *p)
{
	uint64_t n = p->bytes;

	for (size_t i = 0; i < BLOBS_AT_ONCE; i++)
		if (p->fetch[i].pipe)
			n += blob_pipe_moved(p->fetch[i].pipe);
	return n;
}

void blob_proxy_free(struct blob_proxy *p, void (*done)(void *arg), void *arg)
{
	if (!p) {
		if (done)
			done(arg);
		return;
	}
	p->freed = true;
	p->done = done;
	p->done_arg = arg;
	turn_cancel(&p->wait);
	disconnect(p);
	skopeo_free(TAKE_PTR(p->skopeo));
	for (size_t i = 0; i < BLOBS_AT_ONCE; i++) {
		free(TAKE_PTR(p->fetch[i].digest));
		if (p->fetch[i].pipe)
			blob_pipe_cut(p->fetch[i].pipe);
	}
	end_if_free(p);
}
