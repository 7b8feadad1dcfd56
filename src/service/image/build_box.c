/* Sandboxes of builds. One that runs commands gets a row, so that a daemon that restarts ends it. */
#include "service/image/build_box.h"
#include "base/base.h"
#include "service/image/struct.h"
#include "service/struct.h"
#include "service/checkpoint/checkpoint.h"
#include "service/checkpoint/struct.h"
#include "service/file/file.h"
#include "service/image/usage.h"
#include "service/sandbox/internal.h"

#include <sys/socket.h>
#include <unistd.h>

#define MEMORY (2 * GIB)
#define DISK (32ULL << 30)
#define DISK_IN_MEMORY (1ULL << 30)
#define DISK_MIN (16ULL << 20)
#define PIDS 2048

struct build_box {
	struct service *s;
	struct who who;
	struct sandbox *sandbox; /* referenced */
	char chain[OCI_DIGEST_SIZE];
	bool runs, up, entered, freed, sealing;
	build_box_fn *fn;
	void *arg;
	build_sealed_fn *sealed;
	void *sealed_arg;
	struct image_chain *made;
	struct err e;
	struct turn_wait wait;
};

static void let_go(struct build_box *x)
{
	struct sandbox *b = TAKE_PTR(x->sandbox);

	if (!b)
		return;
	if (x->entered && b->state != SANDBOX_ENDING) {
		sandbox_discard(b, "the step of the build is over");
	} else if (b->state != SANDBOX_ENDING) {
		b->maker = NULL;
		sandbox_give_up(b, 0, NULL);
	}
	sandbox_unref(b);
}

static void say(struct build_box *x, const struct err *e)
{
	if (!x->freed)
		x->fn(x->arg, e);
}

static void on_stored(void *arg)
{
	say(arg, NULL);
}

static void on_up(void *arg, struct sandbox *b)
{
	struct build_box *x = arg;
	struct err e = { 0 };

	x->up = true;
	if (!x->runs) {
		say(x, NULL);
		return;
	}
	if (sandbox_enter(b, &x->who, &e) < 0) {
		let_go(x);
		say(x, &e);
		return;
	}
	x->entered = true;
	turn_after(x->s->turn, &x->wait, on_stored, x);
}

static void on_failed(void *arg, struct sandbox *b, int r, const struct err *e)
{
	struct build_box *x = arg;
	struct err why = { 0 };

	if (e && e->msg[0])
		why = *e;
	else
		err_set(&why, WHY_SANDBOX_LOST, r < 0 ? r : -EIO, "the sandbox of the step has ended");
	if (x->sandbox == b)
		sandbox_unref(TAKE_PTR(x->sandbox));
	if (!x->up)
		say(x, &why);
}

static const struct sandbox_maker maker = { .up = on_up, .failed = on_failed };

/* What a step may write: what it makes counts for the tenant in the end. */
static uint64_t disk_of(const struct service *s, const struct tenant *t)
{
	const uint64_t disk = image_bytes_room(t, s->o.disk_max ? s->o.disk_max : DISK);

	return disk < DISK_MIN ? DISK_MIN : disk;
}

static json_t *settings(const struct service *s, const struct tenant *t, const struct build_box_plan *p)
{
	uint64_t disk = disk_of(s, t), memory = p->tmpfs[0] ? 2 * MEMORY : MEMORY;

	if (s->o.memory_max && s->o.memory_max < memory)
		memory = s->o.memory_max;
	if (p->memory)
		disk = disk < DISK_IN_MEMORY ? disk : DISK_IN_MEMORY;
	return json_pack("{ss,ss,ss,sI,sI,si,si,si}", "storage", p->memory ? "memory" : "disk", "user", "root",
			 "workdir", "/", "memory", (json_int_t)memory, "disk", (json_int_t)disk, "pids", PIDS, "cpus",
			 0, "exec_timeout", 0);
}

static int request_of(struct service *s, const struct tenant *t, const struct build_box_plan *p,
		      struct sandbox_request **ret, struct err *e)
{
	const struct image_chain *c = image_chain_find(s, p->chain);
	AUTO(json_decref) json_t *o = settings(s, t, p);
	AUTO(sandbox_request_free) struct sandbox_request *w = NULL;
	struct sandbox_spec *spec;
	int r = 0;

	if (!o || (p->network && json_object_set(o, "network", (json_t *)(uintptr_t)p->network) < 0))
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a sandbox");
	for (unsigned i = 0; i < BUILD_BOX_TMPFS && p->tmpfs[i]; i++) {
		json_t *list = json_object_get(o, "tmpfs");

		if (!list)
			json_object_set_new(o, "tmpfs", list = json_array());
		json_array_append_new(list, p->tmpfs_size[i] ? json_pack("{ss,sI}", "path", p->tmpfs[i], "size",
									 (json_int_t)p->tmpfs_size[i]) :
							       json_pack("{ss}", "path", p->tmpfs[i]));
	}
	r = sandbox_request_parse(&s->o, o, true, &w, e);
	if (r == 0)
		r = net_request_check(s->o.net, w->net, e);
	if (r == 0 && *p->chain && !c)
		r = err_set(e, WHY_IMAGE_MISSING, -ENOENT, "the layers below were removed");
	if (r < 0)
		return r;
	/* The path may be shortened when there are neither mounts nor tmpfs, whose entries would follow this one. */
	spec = w->spec;
	snprintf(spec->image, sizeof(spec->image), "%s", SPEC_SCRATCH);
	spec->flags |= SPEC_BARE;
	spec->flags &= ~SPEC_SYSTEM_LATER;
	spec->layers = c ? c->layers : 0;
	if (c)
		memcpy(spec->layer, c->layer, sizeof(spec->layer));
	w->origin.ready = p->runs; /* hidden, and ended by a daemon that restarts */
	*ret = TAKE_PTR(w);
	return 0;
}

int build_box_make(struct service *s, const struct who *who, const struct build_box_plan *p, build_box_fn *fn,
		   void *arg, struct build_box **ret, struct err *e)
{
	struct sandbox_plan plan = {
		.tenant = who->tenant, .maker = &maker, .hidden = true, .shared = true, .counted = false
	};
	AUTO(sandbox_request_free) struct sandbox_request *w = NULL;
	struct build_box *x;
	int r = request_of(s, who->tenant, p, &w, e);

	if (r < 0)
		return r;
	x = calloc(1, sizeof(*x));
	if (!x)
		abort();
	*x = (struct build_box){ .s = s, .who = *who, .runs = p->runs, .fn = fn, .arg = arg };
	snprintf(x->chain, sizeof(x->chain), "%s", p->chain);
	plan.request = w;
	plan.arg = x;
	r = sandbox_begin(s, &plan, &x->sandbox, e);
	if (r < 0) {
		free(x);
		return r;
	}
	(void)TAKE_PTR(w);
	sandbox_ref(x->sandbox);
	*ret = x;
	return 0;
}

struct sandbox *build_box_sandbox(const struct build_box *x)
{
	return x && x->up ? x->sandbox : NULL;
}

int build_box_worker(struct build_box *x, int *ret_fd, struct err *e)
{
	const struct user_request root = { .text = "root" };
	int pair[2], r;

	if (!build_box_sandbox(x))
		return err_set(e, WHY_SANDBOX_LOST, -EIO, "the sandbox of the step has ended");
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return err_sys(e, ERR_EXHAUSTED, -errno, "make a socket");
	r = file_worker_give(x->sandbox, &root, pair[1], e);
	fd_close(pair[1]);
	if (r < 0)
		fd_close(pair[0]);
	else
		*ret_fd = pair[0];
	return r;
}

/* --- sealing --- */

static void box_end(struct build_box *x)
{
	let_go(x);
	turn_cancel(&x->wait);
	free(x);
}

static void on_kept(void *arg)
{
	struct build_box *x = arg;

	x->sealing = false;
	if (!x->freed) {
		x->sealed(x->sealed_arg, TAKE_PTR(x->made), x->e.msg[0] ? &x->e : NULL);
		return;
	}
	if (x->made)
		image_chain_unpin(x->made);
	box_end(x);
}

/*
 * Built layers have no archive: their diff id is made of the tenant's number and the sum of their files. So whatever the process
 * that reads those files may say, the result is no layer of another tenant or of a registry. An export computes digests of
 * its own.
 */
static void diff_of(const struct build_box *x, const struct checkpoint *c, char ret[OCI_DIGEST_SIZE])
{
	char text[64 + sizeof(c->sum)];
	const int n = snprintf(text, 64, "built by tenant %llu: ", (unsigned long long)x->who.tenant->number);

	memcpy(text + n, c->sum, sizeof(c->sum));
	oci_digest_of(text, (size_t)n + sizeof(c->sum), ret);
}

static int keep(struct build_box *x, const struct checkpoint *c)
{
	char diff[OCI_DIGEST_SIZE], id[OCI_DIGEST_SIZE];
	const struct image_chain_new n = {
		.parent = x->chain, .diff = diff, .blob = "", .size = c->size, .files = c->files, .spec = c->chain
	};

	diff_of(x, c, diff);
	oci_chain_id(x->chain, diff, id);
	x->made = image_chain_find(x->s, id);
	if (x->made) {
		image_chain_pin(x->made);
		return 0;
	}
	return image_chain_put(x->s, &n, &x->made, &x->e);
}

static void on_checkpoint(void *arg, struct checkpoint *c, const struct err *e)
{
	struct build_box *x = arg;

	if (!c)
		x->e = *e;
	else
		keep(x, c);
	turn_after(x->s->turn, &x->wait, on_kept, x);
}

void build_box_seal(struct build_box *x, build_sealed_fn *fn, void *arg)
{
	x->sealed = fn;
	x->sealed_arg = arg;
	x->sealing = true;
	if (build_box_sandbox(x)) {
		checkpoint_make_hidden(x->sandbox, &x->who, MEMORY_NO, NETWORK_DROP, on_checkpoint, x);
		return;
	}
	err_set(&x->e, WHY_SANDBOX_LOST, -EIO, "the sandbox of the step has ended");
	turn_after(x->s->turn, &x->wait, on_kept, x);
}

void build_box_free(struct build_box *x)
{
	if (!x)
		return;
	x->freed = true;
	if (!x->sealing) /* otherwise the end of the sealing does it */
		box_end(x);
}
