/* Operations on files, asked of a file worker. */
#include "service/file/file.h"
#include "service/file/late.h"
#include "base/base.h"
#include "service/sandbox/system.h"
#include "service/sandbox/part.h"
#include "service/secret/give.h"
#include "tier/tiers.h"

#include <sys/socket.h>
#include <unistd.h>

#define IDLE_MS 3000
#define LOOK_MS 15000
#define LOOKS 4U /* without a byte in either direction: a worker that was stopped from inside would never answer */
#define OUT_MAX (2U * MIB)
#define PATH_SHOWN 120

struct file_worker {
	struct file_worker *next; /* idle ones of a sandbox */
	struct sandbox *sandbox;
	uint64_t handle; /* of the sandbox it is in: the sandbox may have got another since */
	uint32_t uid, gid;
	int fd;
	uv_poll_t *poll;
	uv_timer_t *timer;
	struct buf in, out;
	struct file_op *op; /* NULL: idle */
	bool held, reading, gone;
	unsigned still; /* looks since bytes came or went */
};

struct file_op {
	struct file_worker *w;
	struct file_calls calls;
	void *arg;
	uint32_t tag;
	bool canceled, writes;
	bool watches;
	bool quiet; /* a watch that has begun: it may say nothing for as long as it likes */
	bool fed; /* the host's END was sent */
	char path[PATH_SHOWN + 1];
};

static void free_handle(uv_handle_t *h)
{
	free(h);
}

static void worker_free(struct file_worker *w)
{
	uv_poll_stop(w->poll);
	uv_close((uv_handle_t *)w->poll, free_handle);
	uv_timer_stop(w->timer);
	uv_close((uv_handle_t *)w->timer, free_handle);
	fd_close(w->fd);
	buf_done(&w->in);
	buf_done(&w->out);
	sandbox_unref(w->sandbox);
	free(w);
}

static void unlist(struct file_worker *w)
{
	for (struct file_worker **p = &w->sandbox->files; *p; p = &(*p)->next)
		if (*p == w) {
			*p = w->next;
			return;
		}
}

static void on_event(uv_poll_t *p, int status, int events);

static void watch(struct file_worker *w)
{
	int want = (w->held ? 0 : UV_READABLE) | (w->out.len ? UV_WRITABLE : 0);

	if (want)
		uv_poll_start(w->poll, want, on_event);
	else
		uv_poll_stop(w->poll);
}

static void on_idle(uv_timer_t *t)
{
	struct file_worker *w = t->data;

	unlist(w);
	worker_free(w);
}

/* Stays for a moment when the last operation ended well. */
static void rest(struct file_worker *w)
{
	if (w->gone || w->in.len || w->out.len || w->sandbox->files || w->sandbox->state != SANDBOX_RUNNING ||
	    w->handle != w->sandbox->handle) {
		worker_free(w);
		return;
	}
	w->held = false;
	buf_done(&w->in);
	buf_done(&w->out);
	w->next = NULL;
	w->sandbox->files = w;
	uv_timer_start(w->timer, on_idle, IDLE_MS, 0);
	watch(w);
}

void file_workers_drop(struct sandbox *b)
{
	struct file_worker *w;

	while ((w = b->files)) {
		b->files = w->next;
		worker_free(w);
	}
}

/* Of a path in a sandbox: what the kernel's error means to the caller. */
static enum err_reason file_reason(uint32_t errnum, uint32_t step)
{
	switch (errnum) {
	case ENOENT:
		return WHY_FILE_MISSING;
	case EEXIST:
		return WHY_FILE_EXISTS;
	case ENOTEMPTY:
		return WHY_FOLDER_NOT_EMPTY;
	case EACCES:
	case EPERM:
		return WHY_PERMISSION;
	case EISDIR:
		return WHY_IS_A_FOLDER;
	case ENOTDIR:
		return WHY_NOT_A_FOLDER;
	case EROFS:
		return WHY_READ_ONLY;
	case ENOSPC:
	case EDQUOT:
		return WHY_DISK_FULL;
	case ENOMEM:
		return WHY_MEMORY_FULL;
	case ENAMETOOLONG:
		return WHY_NAME_TOO_LONG;
	case ELOOP:
		return WHY_LINK_LOOP;
	default:
		return errnum == EOPNOTSUPP && step == FILE_STEP_TYPE ? WHY_NOT_A_FILE : WHY_REFUSED;
	}
}

int file_error(struct err *e, uint32_t errnum, uint32_t step, const char *path)
{
	const enum err_reason why = file_reason(errnum, step);
	int r = -(int)errnum;

	if (errnum == EISDIR)
		err_set(e, why, r, "'%.*s' is a directory", PATH_SHOWN, path);
	else if (errnum == EOPNOTSUPP && step == FILE_STEP_TYPE)
		err_set(e, why, r, "'%.*s' is neither a file nor a directory", PATH_SHOWN, path);
	else
		err_sys(e, why, r, "'%.*s': cannot %s", PATH_SHOWN, path, file_step_text(step));
	if (errnum == EISDIR)
		err_remedy(e, "the path is a folder: use op=list or op=archive");
	else if (errnum == ENOSPC || errnum == EDQUOT)
		err_remedy(e, "the sandbox's disk is full: increase its `disk`, or use `storage`: \"disk\"");
	else if (errnum == EACCES || errnum == EPERM)
		err_remedy(e, "try as root of the sandbox: user=root, or `cloche cp --user root`");
	else if (errnum == EROFS)
		err_remedy(
			e,
			"below /usr, try as root of the sandbox (user=root); a mount and a root can be read-only, too");
	return r;
}

static void finish(struct file_op *op, int r, const struct file_end *x, unsigned flags, const struct err *e)
{
	struct file_worker *w = op->w;
	struct err told = { 0 };

	if (e) {
		told = *e;
		mask_err(sandbox_mask(w->sandbox), &told);
	}
	w->op = NULL;
	uv_timer_stop(w->timer);
	if (r == -EPIPE || r == -ETIMEDOUT)
		w->gone = true;
	if (op->calls.done)
		op->calls.done(op->arg, r, x, flags, e ? &told : NULL);
	free(op);
	rest(w);
}

/* The worker went away in the middle: the sandbox ended it, or ended. */
static void lose(struct file_worker *w)
{
	struct file_op *op = w->op;
	struct err e = { 0 };

	w->gone = true;
	if (!op) {
		unlist(w);
		worker_free(w);
		return;
	}
	if (w->sandbox->state == SANDBOX_RUNNING)
		err_set(&e, WHY_WORKER_KILLED, -EPIPE, "'%s': the file worker was killed inside the sandbox", op->path);
	else
		err_set(&e, WHY_SANDBOX_LOST, -EPIPE, "the sandbox has ended");
	finish(op, -EPIPE, NULL, 0, &e);
}

/* A process of the same user inside can stop a worker, and that is not reported. */
static void on_stuck(uv_timer_t *t)
{
	struct file_worker *w = t->data;
	struct file_op *op = w->op;
	bool ours = w->held || op->quiet || (op->writes && !op->fed && !w->out.len);
	struct err e = { 0 };

	w->still = ours ? 0 : w->still + 1;
	if (w->still < LOOKS)
		return;
	err_set(&e, WHY_NO_PROGRESS, -ETIMEDOUT, "'%s': the file worker made no progress for %u s", op->path,
		LOOKS * LOOK_MS / 1000);
	err_remedy(&e, "check whether something in the sandbox stops or slows down its processes");
	finish(op, -ETIMEDOUT, NULL, 0, &e);
}

/* The END of an operation; @used bytes of the buffer are done with. */
static int on_end(struct file_worker *w, const struct file_frame *f, size_t used)
{
	struct file_op *op = w->op;
	unsigned flags = f->flags;
	struct err e = { 0 };
	struct file_end x;
	int r = 0;

	/* A worker cannot have written bytes that it was not sent yet. */
	if (file_end_decode(f, &x) < 0 || (op->writes && !op->fed && !x.errnum))
		return -EBADMSG;
	buf_drop(&w->in, used);
	if (x.errnum)
		r = file_error(&e, x.errnum, x.step, op->path);
	/* A write that failed early still expects our end of it: this worker is not used again. */
	if ((op->writes && !op->fed) || !f->tag)
		w->gone = true;
	finish(op, r, &x, flags, &e);
	return 0;
}

static int on_frame(struct file_op *op, const struct file_frame *f)
{
	struct file_entry entry;
	struct file_event event;

	if (f->type == FILE_ENTRY && file_entry_decode(f, &entry) == 0) {
		op->quiet = op->watches;
		if (op->calls.entry)
			op->calls.entry(op->arg, &entry);
		return 0;
	}
	if (f->type == FILE_DATA) {
		if (op->calls.data)
			op->calls.data(op->arg, f->payload, f->len);
		return 0;
	}
	if (f->type == FILE_EVENT && file_event_decode(f, &event) == 0) {
		if (op->calls.event)
			op->calls.event(op->arg, &event);
		return 0;
	}
	return -EBADMSG;
}

/* Serves what has arrived. False: the worker is gone, or in other hands. */
static bool serve(struct file_worker *w)
{
	struct file_frame f;
	size_t used = 0;
	long n = 0;

	while (!w->held &&
	       (n = file_decode(FILE_FROM_WORKER, (const uint8_t *)buf_str(&w->in) + used, w->in.len - used, &f)) > 0) {
		struct file_op *op = w->op;
		int r = op && (f.tag == op->tag || !f.tag) ? 0 : -EBADMSG;

		used += (size_t)n;
		if (r == 0 && f.type == FILE_END) {
			r = on_end(w, &f, used);
			if (r == 0)
				return false;
		} else if (r == 0) {
			w->reading = true;
			r = on_frame(op, &f);
			w->reading = false;
			if (op->canceled) {
				free(op);
				worker_free(w);
				return false;
			}
		}
		if (r < 0) {
			lose(w);
			return false;
		}
	}
	if (n < 0) {
		lose(w);
		return false;
	}
	buf_drop(&w->in, used);
	return true;
}

static void flush(struct file_worker *w)
{
	bool had = w->out.len > 0;

	while (w->out.len) {
		ssize_t n = send(w->fd, w->out.data, w->out.len, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			break;
		if (n < 0) { /* shows when reading: there may be an answer left */
			buf_clear(&w->out);
			break;
		}
		buf_drop(&w->out, (size_t)n);
		w->still = 0;
	}
	watch(w);
	if (had && w->out.len < FILE_HIGH / 2 && w->op && w->op->calls.drain)
		w->op->calls.drain(w->op->arg);
}

static void on_event(uv_poll_t *p, int status, int events)
{
	struct file_worker *w = p->data;
	char *room;
	ssize_t n;

	if (status < 0)
		events |= UV_READABLE;
	if (events & UV_WRITABLE) {
		w->reading = true;
		flush(w);
		w->reading = false;
		if (w->op && w->op->canceled) {
			free(w->op);
			worker_free(w);
			return;
		}
	}
	if (!(events & UV_READABLE) || w->held)
		return;
	room = buf_room(&w->in, FILE_FRAME_MAX);
	if (!room) {
		lose(w);
		return;
	}
	do {
		n = recv(w->fd, room, FILE_FRAME_MAX, MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	if (n < 0 && errno == EAGAIN)
		return;
	if (n <= 0) {
		lose(w);
		return;
	}
	buf_added(&w->in, (size_t)n);
	w->still = 0;
	if (serve(w))
		watch(w);
}

/* Also a sandbox in the making, for secrets that are written before it is handed out (service/secret/give.h). */
static int usable(const struct sandbox *b, struct err *e)
{
	if (b->state == SANDBOX_MAKING && ((b->secrets && b->secrets->giving) || (b->maker && b->handle)))
		return 0; /* one with a maker is known to that alone, which uses it once it is up */
	return sandbox_ready(b, e);
}

/* Of a memory image the numbers are not known yet. */
static uint32_t worker_number(struct sandbox *b)
{
	return b->state == SANDBOX_MAKING && b->request->memory ? UINT32_MAX - 1 : b->next_exec++;
}

int file_worker_give(struct sandbox *b, const struct user_request *user, int fd, struct err *e)
{
	struct frame_files f = { .uid = user->uid, .gid = user->gid, .cwd = b->request->spec->workdir };
	uint8_t payload[SPEC_PATH + 64];
	long len = frame_files_encode(&f, payload, sizeof(payload));
	int r = tier_needs(tier_of(b->request->spec->flags), TIER_FILES, e);

	if (r < 0)
		return r;
	if (len < 0)
		return err_set(e, ERR_INVALID, (int)len, "the path of the working folder is too long");
	if (!sandbox_system_ready(b, user))
		return file_late_add(b, user, fd, e);
	r = agent_link_send(&b->link, FRAME_FILES, worker_number(b), payload, (size_t)len, &fd, 1);
	return r < 0 ? err_sys(e, WHY_SANDBOX_LOST, r, "request a file worker") : 0;
}

int file_worker_open(struct sandbox *b, const struct user_request *user, int *ret_fd, struct err *e)
{
	int pair[2], r = usable(b, e);

	if (r < 0)
		return r;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return err_sys(e, ERR_EXHAUSTED, -errno, "make a socket");
	r = file_worker_give(b, user, pair[1], e);
	fd_close(pair[1]);
	if (r < 0)
		fd_close(pair[0]);
	else
		*ret_fd = pair[0];
	return r;
}

static struct file_worker *worker_new(struct sandbox *b, const struct user_request *user, struct err *e)
{
	struct file_worker *w = calloc(1, sizeof(*w));
	int fd = -1, r;

	if (!w)
		abort();
	r = file_worker_open(b, user, &fd, e);
	if (r < 0) {
		free(w);
		return NULL;
	}
	*w = (struct file_worker){ .sandbox = b, .uid = user->uid, .gid = user->gid, .fd = fd };
	w->handle = b->handle;
	w->in = (struct buf)BUF_INIT(4 * FILE_FRAME_MAX);
	w->out = (struct buf)BUF_INIT(OUT_MAX);
	w->poll = malloc(sizeof(*w->poll));
	w->timer = malloc(sizeof(*w->timer));
	if (!w->poll || !w->timer || uv_poll_init(b->service->loop, w->poll, fd) < 0)
		abort();
	uv_timer_init(b->service->loop, w->timer);
	w->poll->data = w->timer->data = w;
	sandbox_ref(b);
	return w;
}

static struct file_worker *worker_take(struct sandbox *b, const struct user_request *user, struct err *e)
{
	struct file_worker *w = b->files;

	if (!w || w->uid != user->uid || w->gid != user->gid)
		return worker_new(b, user, e);
	b->files = w->next;
	uv_timer_stop(w->timer);
	return w;
}

int file_begin(struct sandbox *b, const struct user_request *user, enum file_type type, unsigned flags,
	       const struct file_request *q, const struct file_calls *calls, void *arg, struct file_op **ret,
	       struct err *e)
{
	uint8_t payload[FILE_SMALL_MAX], head[FILE_HEAD];
	long len = file_request_encode(q, payload, sizeof(payload));
	struct file_worker *w;
	struct file_op *op;
	int r = usable(b, e);

	if (r < 0)
		return r;
	if (len < 0)
		return err_set(e, ERR_INVALID, -ENAMETOOLONG, "a path is longer than %u bytes", FILE_PATH_MAX - 1);
	w = worker_take(b, user, e);
	if (!w)
		return -EPIPE;
	op = calloc(1, sizeof(*op));
	if (!op)
		abort();
	*op = (struct file_op){ .w = w,
				.calls = *calls,
				.arg = arg,
				.tag = ++b->file_tag,
				.writes = type == FILE_WRITE,
				.watches = type == FILE_WATCH };
	snprintf(op->path, sizeof(op->path), "%s", q->path);
	w->op = op;
	w->still = 0;
	uv_timer_start(w->timer, on_stuck, LOOK_MS, LOOK_MS);
	file_head(head, type, flags, op->tag, (uint32_t)len);
	buf_add(&w->out, head, sizeof(head));
	buf_add(&w->out, payload, (size_t)len);
	watch(w); /* sent by the loop: no callback may come from within */
	*ret = op;
	return 0;
}

void file_feed(struct file_op *op, const char *data, size_t len)
{
	struct file_worker *w = op->w;
	uint8_t head[FILE_HEAD];

	while (len) {
		size_t n = len < FILE_DATA_MAX ? len : FILE_DATA_MAX;

		file_head(head, FILE_DATA, 0, op->tag, (uint32_t)n);
		/* A caller that stops when asked to cannot queue more than the bound. */
		if (buf_add(&w->out, head, sizeof(head)) < 0 || buf_add(&w->out, data, n) < 0)
			break;
		data += n;
		len -= n;
	}
	watch(w);
}

void file_feed_end(struct file_op *op)
{
	uint8_t head[FILE_HEAD];

	file_head(head, FILE_END, 0, op->tag, 0);
	buf_add(&op->w->out, head, sizeof(head));
	op->fed = true;
	watch(op->w);
}

size_t file_queued(const struct file_op *op)
{
	return op->w->out.len;
}

void file_hold(struct file_op *op)
{
	op->w->held = true;
	watch(op->w);
}

void file_go(struct file_op *op)
{
	struct file_worker *w = op->w;

	if (!w->held)
		return;
	w->held = false;
	if (!w->reading && serve(w))
		watch(w);
}

void file_cancel(struct file_op *op)
{
	struct file_worker *w = op->w;

	op->canceled = true;
	op->calls = (struct file_calls){ 0 };
	if (w->reading)
		return; /* goes when the callback it is called from returns */
	free(op);
	w->op = NULL;
	worker_free(w);
}

static void on_lost(struct sandbox *b, enum sandbox_loss how)
{
	if (how == LOSS_STOPPED || how == LOSS_CLOSED || how == LOSS_TURNED)
		file_workers_drop(b);
}

static void on_ended(struct sandbox *b)
{
	file_workers_drop(b);
	file_late_start(b, -ESRCH);
}

static void on_writable(struct sandbox *b, enum sandbox_usr whose, int r, const struct err *e)
{
	(void)e;
	file_late_start(b, whose == USR_OWN ? r : -ESTALE);
}

const struct sandbox_part file_part = {
	.name = "file",
	.writable = on_writable,
	.resting = file_workers_drop,
	.lost = on_lost,
	.ended = on_ended,
};
