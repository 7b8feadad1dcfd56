/*
 * Makes layers. Requests for the same chain at the same time form a queue: the first one's bytes are used, and if they
 * are wrong, the next one's. A tenant that does not have a layer yet gets one that exists only for the bytes of it, of which
 * cloche-tar then computes the digests alone.
 */
#include "service/image/layer.h"
#include "base/base.h"
#include "service/image/struct.h"
#include "service/struct.h"
#include "service/checkpoint/checkpoint.h"
#include "service/checkpoint/struct.h"
#include "service/file/file.h"
#include "service/file/tar_child.h"
#include "service/image/book.h"
#include "service/image/usage.h"
#include "service/sandbox/internal.h"
#include "service/state/json_read.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#define MEMORY (1024 * MIB) /* memory limit of the sandbox: its agent, and pages of files that are being written */
#define DISK (64ULL << 30)
#define PIDS 32U
/*
 * Layers up to a size are unpacked in memory, a few at once: making a disk, and writing every file twice, takes longer than the
 * rest. What does not fit is unpacked again, on a disk.
 */
#define IN_MEMORY_BLOB (64 * MIB)
#define IN_MEMORY_FILES(blob)                                                                                          \
	(16 * MIB + 8 * (blob)) /* of as much room: few archives become more than four times larger */
#define IN_MEMORY_AT_ONCE 2U

struct layer_making {
	struct layer_making *next; /* waits for the same chain */
	struct service *s;
	struct who who;
	char parent[OCI_DIGEST_SIZE], digest[OCI_DIGEST_SIZE], diff[OCI_DIGEST_SIZE], chain[OCI_DIGEST_SIZE];
	uint64_t size;
	bool compressed;
	int fd;
	image_layer_fn *fn; /* NULL: cancelled */
	void *arg;
	struct image_chain *below; /* pinned; or NULL */
	/* Of the request whose bytes are used: */
	struct tar_child *child;
	struct sandbox *sandbox; /* referenced */
	int worker;
	json_t *result; /* of the child */
	bool child_done, up, sealing;
	bool in_memory, again; /* it is unpacked in memory; that has failed once */
	struct image_chain *proof; /* pinned: it exists, and the bytes are compared with it; or NULL */
	off_t start; /* of the bytes in ->fd; -1: they can be read once */
	uint64_t room; /* bytes that its files may have: the tenant's quota leaves no more */
	/* The outcome. */
	int r;
	struct err e;
	struct image_chain *made;
	struct turn_wait wait;
};

struct image_chain *image_layer_above(struct service *s, const char *parent, const char *diff)
{
	char id[OCI_DIGEST_SIZE];

	oci_chain_id(parent, diff, id);
	return image_chain_find(s, id);
}

int image_work_request(struct service *s, const char *chain, uint64_t memory, struct sandbox_request **ret,
		       struct err *e)
{
	const uint64_t most = memory ? memory : DISK;
	const uint64_t disk = s->o.disk_max && s->o.disk_max < most ? s->o.disk_max : most;
	AUTO(json_decref)
	json_t *o = json_pack("{ss,ss,ss,sI,sI,si,si,si}", "storage", memory ? "memory" : "disk", "user", "root",
			      "workdir", "/", "memory", (json_int_t)MEMORY, "disk", (json_int_t)disk, "pids", (int)PIDS,
			      "cpus", 0, "exec_timeout", 0);
	const struct image_chain *c = image_chain_find(s, chain);
	struct sandbox_request *w = NULL;
	int r = o ? sandbox_request_parse(&s->o, o, true, &w, e) :
		    err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a sandbox");

	if (r == 0 && *chain && !c) {
		sandbox_request_free(w);
		r = err_set(e, WHY_IMAGE_MISSING, -ENOENT, "the layers below it do not exist any more");
	}
	if (r < 0)
		return r;
	snprintf(w->spec->image, sizeof(w->spec->image), "%s", SPEC_SCRATCH);
	w->spec->flags |= SPEC_BARE;
	w->spec->flags &= ~SPEC_SYSTEM_LATER;
	w->spec->layers = c ? c->layers : 0;
	if (c)
		memcpy(w->spec->layer, c->layer, sizeof(w->spec->layer));
	*ret = w;
	return 0;
}

static void let_sandbox_go(struct layer_making *m)
{
	struct sandbox *b = TAKE_PTR(m->sandbox);

	if (m->in_memory)
		m->s->images->in_memory--;
	m->in_memory = false;
	if (!b)
		return;
	if (b->state != SANDBOX_ENDING) {
		b->maker = NULL;
		sandbox_give_up(b, 0, NULL);
	}
	sandbox_unref(b);
}

static void making_free(struct layer_making *m)
{
	let_sandbox_go(m);
	fd_close(m->worker);
	fd_close(m->fd);
	json_decref(m->result);
	if (m->below)
		image_chain_unpin(m->below);
	if (m->proof)
		image_chain_unpin(m->proof);
	free(m);
}

static void start(struct layer_making *m);
static void prove(struct layer_making *m, struct image_chain *c);

/* Removes it from its queue, whose head is then the next one. */
static struct layer_making *leave(struct layer_making *m)
{
	struct map *works = &m->s->images->works;
	struct layer_making *head = m->chain[0] ? map_get(works, m->chain) : NULL, *next = m->next;

	m->next = NULL;
	if (head != m) {
		while (head && head->next != m)
			head = head->next;
		if (head)
			head->next = next;
		return NULL;
	}
	if (next && map_put(works, m->chain, next) < 0)
		abort();
	if (!next)
		map_del(works, m->chain);
	return next;
}

static void on_told(void *arg)
{
	struct layer_making *m = arg;

	if (m->fn)
		m->fn(m->arg, m->r < 0 ? NULL : m->made, m->r < 0 ? &m->e : NULL);
	else if (m->made)
		image_chain_unpin(m->made);
	making_free(m);
}

static void tell(struct layer_making *m)
{
	turn_after(m->s->turn, &m->wait, on_told, m);
}

/* The request whose bytes were used is finished: its tenant's others get the layer, or the next one's bytes are tried. */
static void finish(struct layer_making *m)
{
	struct layer_making *next = leave(m);

	let_sandbox_go(m);
	while (next && m->made) {
		struct layer_making *rest = leave(next);

		if (next->who.tenant == m->who.tenant || image_is_had(m->s, next->who.tenant, m->made)) {
			next->made = m->made;
			image_chain_pin(next->made);
			tell(next);
		} else {
			prove(next, m->made);
		}
		next = rest;
	}
	if (!m->made && !m->fn) /* cancelled: its owner may be ending itself */
		m->e = (struct err){ 0 };
	tell(m);
	if (next)
		start(next);
}

static void note_error(struct layer_making *m, int r, const struct err *e)
{
	if (m->r < 0)
		return;
	m->r = r < 0 ? r : -EIO;
	if (e)
		m->e = *e;
}

static void fail(struct layer_making *m, int r, const struct err *e)
{
	note_error(m, r, e);
	if (m->child && !m->child_done)
		tar_child_kill(m->child);
	else
		finish(m);
}

static int keep(struct layer_making *m, const struct checkpoint *c)
{
	const char *digest = json_string_value(json_object_get(m->result, "digest"));
	const char *diff = json_string_value(json_object_get(m->result, "diff"));
	struct image_chain_new n = { .parent = m->parent,
				     .diff = diff,
				     .blob = m->compressed ? digest : "",
				     .blob_size = (uint64_t)json_integer_value(json_object_get(m->result, "in")),
				     .size = c->size,
				     .files = c->files,
				     .spec = c->chain };

	if (!digest || !diff || !oci_digest_ok(digest) || !oci_digest_ok(diff))
		return err_set(&m->e, ERR_INTERNAL, -EPROTO, "cloche-tar did not say what the layer is");
	m->made = image_layer_above(m->s, m->parent, diff);
	if (m->made) { /* by another request, whose diff id was also unknown before */
		image_chain_pin(m->made);
		return 0;
	}
	return image_chain_put(m->s, &n, &m->made, &m->e);
}

static void on_sealed(void *arg, struct checkpoint *c, const struct err *e)
{
	struct layer_making *m = arg;

	m->sealing = false;
	m->r = c ? keep(m, c) : -EIO;
	if (!c)
		m->e = *e;
	finish(m);
}

static void seal(struct layer_making *m)
{
	m->sealing = true;
	checkpoint_make_hidden(m->sandbox, &m->who, MEMORY_NO, NETWORK_DROP, on_sealed, m);
}

/* From the beginning, on a disk: its files did not fit into memory, or cannot be there. */
static void start_again(struct layer_making *m)
{
	let_sandbox_go(m);
	fd_close(m->worker);
	m->worker = -1;
	m->child = NULL;
	m->up = false;
	m->again = true;
	lseek(m->fd, m->start, SEEK_SET);
	start(m);
}

static void on_child(void *arg, int r, json_t *result, const struct err *e)
{
	struct layer_making *m = arg;

	if (r < 0 && m->r == 0 && m->fn && m->in_memory && err_reason(e) != WHY_IMAGE_INVALID) {
		start_again(m);
		return;
	}
	m->child_done = true;
	m->result = json_incref(result);
	if (r < 0) {
		struct err why = *e;

		if (why.kind == ERR_TOO_LARGE)
			image_bytes_explain(m->who.tenant, m->room, TAR_CHILD_BYTES, &why);
		note_error(m, r, &why);
	}
	if (m->r == 0 && m->proof) {
		m->made = TAKE_PTR(m->proof);
		tell(m);
	} else if (m->r < 0) {
		finish(m);
	} else if (m->up) {
		seal(m);
	}
}

static void on_up(void *arg, struct sandbox *b)
{
	struct user_request root = { .text = "root" };
	struct layer_making *m = arg;
	struct err e = { 0 };
	int r = m->child_done ? 0 : file_worker_give(b, &root, m->worker, &e);

	fd_close(m->worker);
	m->worker = -1;
	m->up = true;
	if (r < 0)
		fail(m, r, &e);
	else if (m->child_done && m->r == 0)
		seal(m);
}

static void on_failed(void *arg, struct sandbox *b, int r, const struct err *e)
{
	struct layer_making *m = arg;

	(void)b;
	if (!m->sealing) /* otherwise the seal reports its end */
		fail(m, r, e);
}

static const struct sandbox_maker maker = { .up = on_up, .failed = on_failed };

static int start_child(struct layer_making *m, struct err *e)
{
	AUTO_CLOSE int files = -1;
	char size[24];
	struct tar_child_plan p = { .mode = "layer", .option = { "--files", "--stream" }, .tenant = m->who.tenant };
	unsigned n = 0;
	int pair[2], r = image_bytes_check(m->who.tenant, 1, e);

	if (r < 0)
		return r;
	p.max_bytes = m->room = image_bytes_room(m->who.tenant, TAR_CHILD_BYTES);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return err_sys(e, ERR_EXHAUSTED, -errno, "make a socket");
	files = pair[0];
	m->worker = pair[1];
	p.fd[0] = files;
	p.fd[1] = m->fd;
	snprintf(size, sizeof(size), "%llu", (unsigned long long)m->size);
	if (m->size) {
		p.arg[n++] = "--size";
		p.arg[n++] = size;
	}
	if (m->digest[0]) {
		p.arg[n++] = "--digest";
		p.arg[n++] = m->digest;
	}
	if (m->diff[0]) {
		p.arg[n++] = "--diff";
		p.arg[n++] = m->diff;
	}
	p.arg[n++] = m->proof ? "--sums" : "--lowest";
	p.arg[n++] = m->proof || !m->parent[0] ? "yes" : "no";
	return tar_child_start(m->s, &p, on_child, m, &m->child, e);
}

static bool fits_memory(const struct layer_making *m)
{
	const struct service_opts *o = &m->s->o;

	return !m->again && m->start >= 0 && m->size && m->size <= IN_MEMORY_BLOB &&
	       m->s->images->in_memory < IN_MEMORY_AT_ONCE && (!o->memory_max || o->memory_max >= MEMORY) &&
	       (!o->disk_max || o->disk_max >= IN_MEMORY_FILES(m->size));
}

static void start(struct layer_making *m)
{
	struct sandbox_plan p = { .tenant = m->who.tenant, .maker = &maker, .arg = m, .hidden = true, .shared = true };
	struct err e = { 0 };
	int r;

	if (!m->fn) { /* cancelled while it was queued */
		finish(m);
		return;
	}
	m->in_memory = fits_memory(m);
	m->s->images->in_memory += m->in_memory;
	r = image_work_request(m->s, m->parent, m->in_memory ? IN_MEMORY_FILES(m->size) : 0, &p.request, &e);
	if (r == 0)
		r = start_child(m, &e);
	if (r == 0) {
		r = sandbox_begin(m->s, &p, &m->sandbox, &e);
		if (r == 0)
			sandbox_ref(m->sandbox);
		else
			m->sandbox = NULL;
	}
	if (r < 0) {
		sandbox_request_free(p.request);
		fail(m, r, &e);
	}
}

static void prove(struct layer_making *m, struct image_chain *c)
{
	struct err e = { 0 };
	int r;

	image_chain_pin(c);
	m->proof = c;
	m->chain[0] = '\0'; /* it is in no queue */
	r = m->fn ? start_child(m, &e) : err_set(&e, WHY_CANCELED, -ECANCELED, "it was cancelled");
	if (r < 0)
		fail(m, r, &e);
}

int image_layer_make(struct service *s, const struct who *who, const struct image_layer_plan *p, image_layer_fn *fn,
		     void *arg, struct layer_making **ret, struct err *e)
{
	struct layer_making *m = calloc(1, sizeof(*m)), *head = NULL;
	struct image_chain *c;
	int fd = fcntl(p->fd, F_DUPFD_CLOEXEC, 3);

	if (!m)
		abort();
	*m = (struct layer_making){ .s = s,
				    .who = *who,
				    .size = p->size,
				    .compressed = p->compressed,
				    .fd = fd,
				    .worker = -1,
				    .fn = fn,
				    .arg = arg };
	if (fd < 0) {
		free(m);
		return err_sys(e, ERR_EXHAUSTED, -errno, "keep a layer open");
	}
	m->start = lseek(fd, 0, SEEK_CUR);
	snprintf(m->parent, sizeof(m->parent), "%s", p->parent);
	snprintf(m->digest, sizeof(m->digest), "%s", p->digest ? p->digest : "");
	snprintf(m->diff, sizeof(m->diff), "%s", p->diff ? p->diff : "");
	m->below = image_chain_find(s, m->parent);
	if (m->below)
		image_chain_pin(m->below);
	*ret = m;
	if (m->diff[0]) {
		oci_chain_id(m->parent, m->diff, m->chain);
		c = image_chain_find(s, m->chain);
		if (c && image_is_had(s, who->tenant, c)) {
			m->made = c;
			image_chain_pin(c);
			tell(m);
			return 0;
		}
		if (c) {
			prove(m, c);
			return 0;
		}
		head = map_get(&s->images->works, m->chain);
		if (!head && map_put(&s->images->works, m->chain, m) < 0)
			abort();
	}
	if (!head) {
		start(m);
		return 0;
	}
	while (head->next)
		head = head->next;
	head->next = m;
	return 0;
}

void image_layer_cancel(struct layer_making *m)
{
	m->fn = NULL;
	/*
	 * A queued request is skipped when its turn comes; one that others wait for, or that is almost complete,
	 * continues.
	 */
	if (m->child && !m->child_done && !m->next)
		tar_child_kill(m->child);
}
