/* Copies the files of a machine into a hidden container. */
#include "service/checkpoint/vm_mirror.h"
#include "base/base.h"
#include "service/file/file.h"
#include "service/sandbox/scratch_sandbox.h"
#include "service/state/json_read.h"
#include "service/checkpoint/restore.h"
#include "service/file/tar_child.h"
#include "service/checkpoint/vm_changes.h"
#include "service/sandbox/struct.h"
#include "service/checkpoint/struct.h"

#include <unistd.h>

#define SPARE (64ULL << 20) /* what a file system takes for itself */
#define DISK_MAX (16ULL << 30) /* where none was asked for */

struct vm_mirror {
	struct service *s;
	struct state of; /* referenced, until it is made */
	struct scratch_sandbox *scratch;
	vm_mirror_fn *fn;
	void *arg;
	struct err e;
};

void vm_mirror_free(struct vm_mirror *m)
{
	if (!m)
		return;
	scratch_sandbox_free(m->scratch);
	state_unref(&m->of);
	free(m);
}

struct sandbox *vm_mirror_sandbox(const struct vm_mirror *m)
{
	return scratch_sandbox_get(m->scratch);
}

static void fail(struct vm_mirror *m, const struct err *e)
{
	m->e = *e;
	m->fn(m->arg, NULL, &m->e);
	vm_mirror_free(m);
}

static void on_applied(void *arg, int r, json_t *result, const struct err *e)
{
	struct vm_mirror *m = arg;
	struct err why = { 0 };

	(void)result;
	if (r == 0 && !vm_mirror_sandbox(m))
		r = err_set(&why, WHY_SANDBOX_LOST, -EIO, "the scratch sandbox for the files has ended");
	else if (r < 0)
		why = *e;
	if (r < 0) {
		/* If files of the guest's list cannot be created, the guest is at fault. */
		if (why.kind == ERR_INVALID)
			err_because(&why, WHY_REFUSED);
		err_wrap(&why, r, "the machine's files");
		fail(m, &why);
		return;
	}
	state_unref(&m->of);
	m->of = (struct state){ 0 };
	m->fn(m->arg, m, NULL);
}

static void on_changes(void *arg, int fd, const struct err *e)
{
	struct tar_child_plan plan = { .mode = "apply", .option = { "--files", "--changes" } };
	struct user_request root = { .text = "root" };
	AUTO_CLOSE int changes = fd, files = -1, theirs = -1;
	struct vm_mirror *m = arg;
	struct sandbox *b = vm_mirror_sandbox(m);
	struct tar_child *child;
	struct err why = { 0 };
	int pair[2], r = 0;

	if (fd < 0) {
		fail(m, e);
		return;
	}
	if (!b)
		r = err_set(&why, WHY_SANDBOX_LOST, -EIO, "the scratch sandbox for the files has ended");
	else if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		r = err_sys(&why, ERR_EXHAUSTED, -errno, "make a socket");
	if (r == 0) {
		files = pair[0];
		theirs = pair[1];
		r = file_worker_give(b, &root, theirs, &why);
	}
	if (r == 0) {
		plan.tenant = b->tenant;
		plan.fd[0] = files;
		plan.fd[1] = changes;
		r = tar_child_start(m->s, &plan, on_applied, m, &child, &why);
	}
	if (r < 0)
		fail(m, &why);
}

static void on_up(void *arg, struct sandbox *b, const struct err *e)
{
	struct vm_mirror *m = arg;
	struct err why = { 0 };

	if (!b)
		fail(m, e);
	else if (vm_changes_open(m->s, &m->of, DIFF_DATA, 0, on_changes, m, &why) < 0)
		fail(m, &why);
}

static int request_of_sandbox(const struct sandbox *b, struct sandbox_request **ret, struct err *e)
{
	AUTO(buf_done) struct buf text = BUF_INIT(4 * MIB);
	AUTO(json_decref) json_t *o = NULL;
	struct json j = JSON_INIT(&text);
	int r;

	jout_object(&j, NULL);
	sandbox_request_write_config(b->request, &j);
	jout_end(&j);
	if (jout_done(&j) < 0)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory to compare");
	r = json_read_begin(buf_str(&text), text.len, &o, e);
	if (r == 0)
		r = sandbox_request_parse(&b->service->o, o, true, ret, e);
	if (r < 0)
		return r;
	(*ret)->image_layers = b->request->image_layers;
	memcpy((*ret)->spec->layer, b->request->spec->layer, sizeof((*ret)->spec->layer));
	return 0;
}

/* As the machine, but a container, on the image alone, with room for all a machine's disk can hold. */
static void be_container(struct sandbox_request *w)
{
	struct sandbox_spec *s = w->spec;
	uint64_t disk = s->limits.disk ? s->limits.disk : DISK_MAX;

	s->flags = (s->flags & ~SPEC_TIERS) | SPEC_DISK;
	s->layers = w->image_layers;
	s->nmounts = s->ntmpfs = 0;
	memset(s->layer + s->layers, 0, (SPEC_LAYERS - s->layers) * sizeof(s->layer[0]));
	s->limits.inodes = s->limits.io_bps = 0;
	s->limits.disk = disk + disk / 4 + SPARE;
	w->image_kept = true;
	w->checkpoint[0] = '\0';
	w->memory = false;
	free(TAKE_PTR(w->restored));
	free(TAKE_PTR(w->execs));
	free(TAKE_PTR(w->names));
	net_request_free(TAKE_PTR(w->net));
}

int vm_mirror_make(struct service *s, const struct state *of, vm_mirror_fn *fn, void *arg, struct err *e)
{
	struct tenant *t = of->sandbox ? of->sandbox->tenant : of->checkpoint->tenant;
	AUTO(sandbox_request_free) struct sandbox_request *w = NULL;
	struct vm_mirror *m;
	int r = of->sandbox ? request_of_sandbox(of->sandbox, &w, e) :
			      restore_request(of->checkpoint, NULL, true, &w, e);

	if (r < 0)
		return r;
	m = calloc(1, sizeof(*m));
	if (!m)
		abort();
	*m = (struct vm_mirror){ .s = s, .of = *of, .fn = fn, .arg = arg };
	state_ref(&m->of);
	be_container(w);
	r = scratch_sandbox_make(s, t, w, on_up, m, &m->scratch, e);
	if (r < 0) {
		vm_mirror_free(m);
		return r;
	}
	(void)TAKE_PTR(w);
	return 0;
}
