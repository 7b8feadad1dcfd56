/* Imports a checkpoint: a hidden sandbox, cloche-tar, a seal. */
#include "service/checkpoint/import.h"
#include "base/base.h"
#include "config.h"
#include "base/clock.h"
#include "service/sandbox/internal.h"
#include "service/file/file.h"
#include "service/state/json_read.h"
#include "service/file/tar_child.h"
#include "tier/tiers.h"
#include "service/checkpoint/struct.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#define FORMAT "cloche-checkpoint"
#define VERSION 1
#define MANIFEST_TEXT (4U << 20)
#define SPARE (64ULL << 20) /* what a file system takes for itself */
#define DISK_MAX (16ULL << 30) /* where the configuration says nothing */

struct import {
	struct service *s;
	struct who who;
	struct tar_child *child;
	struct sandbox *sandbox; /* what is in the file is made in it; referenced */
	uv_poll_t *poll; /* of the manifest */
	int manifest, worker; /* descriptors */
	struct buf text;
	bool keep_network, keep_mounts;
	char *name, *label, *isolation, *config, sandbox_name[NAME_MAX_LEN + 1];
	struct kv metadata;
	bool canceled, child_done, up, sealing;
	int r;
	struct err e; /* the first reason */
	import_fn *fn;
	void *arg;
	struct turn_wait wait;
};

static void free_handle(uv_handle_t *h)
{
	free(h);
}

static void stop_poll(struct import *x)
{
	if (x->poll) {
		uv_poll_stop(x->poll);
		uv_close((uv_handle_t *)x->poll, free_handle);
		x->poll = NULL;
	}
	fd_close(x->manifest);
	x->manifest = -1;
}

static void let_sandbox_go(struct import *x)
{
	struct sandbox *b = x->sandbox;

	x->sandbox = NULL;
	if (!b)
		return;
	if (b->state != SANDBOX_ENDING) {
		b->maker = NULL;
		sandbox_give_up(b, 0, NULL);
	}
	sandbox_unref(b);
}

static void import_free(struct import *x)
{
	stop_poll(x);
	let_sandbox_go(x);
	fd_close(x->worker);
	buf_done(&x->text);
	free(x->name);
	free(x->label);
	free(x->isolation);
	free(x->config);
	kv_done(&x->metadata);
	free(x);
}

/* The last word, when neither child nor seal will call any more. */
static void finish(struct import *x, struct checkpoint *c)
{
	if (!x->canceled)
		x->fn(x->arg, c, c ? NULL : &x->e);
	import_free(x);
}

static void note_error(struct import *x, int r, const struct err *e)
{
	if (x->r < 0)
		return;
	x->r = r < 0 ? r : -EIO;
	if (e)
		x->e = *e;
	/* Whatever the file says that cannot be had here is the file's fault. */
	if (x->e.kind == ERR_INVALID || x->e.kind == ERR_NOT_FOUND || x->e.kind == ERR_TOO_LARGE ||
	    x->e.kind == ERR_UNSUPPORTED || x->e.kind == ERR_DENIED)
		err_because(&x->e, WHY_ARCHIVE_INVALID);
}

/* Something is wrong: the child ends, and then all of it. @x may be gone behind this. */
static void fail(struct import *x, int r, const struct err *e)
{
	note_error(x, r, e);
	if (x->child_done)
		finish(x, NULL);
	else
		tar_child_kill(x->child);
}

static void on_sealed(void *arg, struct checkpoint *c, const struct err *e)
{
	struct import *x = arg;

	x->sealing = false;
	if (!c)
		x->e = *e;
	finish(x, c);
}

static void seal(struct import *x)
{
	struct checkpoint_request w = { .name = x->name,
					.label = x->label,
					.config = x->config,
					.sandbox_name = x->sandbox_name,
					.metadata = x->metadata };

	x->sealing = true;
	x->metadata = (struct kv){ 0 };
	checkpoint_make(x->sandbox, &x->who, &w, on_sealed, x);
}

static void on_child(void *arg, int r, json_t *result, const struct err *e)
{
	struct import *x = arg;

	(void)result;
	x->child_done = true;
	if (r < 0)
		note_error(x, r, e);
	if (x->r < 0)
		finish(x, NULL);
	else if (x->up) /* else of a file with nothing in it: its sandbox is still coming */
		seal(x);
}

/* --- the sandbox it is made in --- */

static void on_up(void *arg, struct sandbox *b)
{
	struct import *x = arg;
	struct user_request root = { .text = "root" };
	struct err e = { 0 };
	int r = x->child_done ? 0 : file_worker_give(b, &root, x->worker, &e);

	fd_close(x->worker);
	x->worker = -1;
	x->up = true;
	if (r < 0)
		fail(x, r, &e);
	else if (x->child_done)
		seal(x);
}

static void on_failed(void *arg, struct sandbox *b, int r, const struct err *e)
{
	struct import *x = arg;

	(void)b;
	if (!x->sealing) /* else that says so itself */
		fail(x, r, e);
}

static const struct sandbox_maker maker = { .up = on_up, .failed = on_failed };

struct told { /* by the manifest */
	uint64_t size, layers;
};

/* As the config says, but for files alone: nothing of the host's, nothing that ends it, room for the whole chain. */
static void strip(const struct import *x, struct sandbox_request *w, const struct told *t)
{
	/* Each of the layers had that much room; here they are one. */
	uint64_t max = x->s->o.disk_max ? x->s->o.disk_max : DISK_MAX, disk = w->spec->limits.disk * t->layers,
		 size = t->size;
	const struct tenant_quota *q = &x->who.tenant->quota, *used = &x->who.tenant->used;

	/* What could not be kept is not unpacked either. */
	if (q->checkpoint_bytes) {
		uint64_t room = SPARE;

		if (q->checkpoint_bytes > used->checkpoint_bytes)
			room += q->checkpoint_bytes - used->checkpoint_bytes;
		max = room < max ? room : max;
	}

	w->name[0] = w->key[0] = '\0';
	w->timeout_ms = 0;
	w->idle = (struct idle_request){ 0 };
	secret_uses_done(&w->secrets);
	/* The files of a machine stay inside of it: a restore gives it the settings of the checkpoint. */
	if (tier_is_machine(w->spec->flags))
		return;
	w->spec->nmounts = w->spec->ntmpfs = 0;
	w->spec->limits.inodes = 0;
	w->spec->limits.io_bps = 0;
	w->spec->flags |= SPEC_DISK;
	size = size < max ? size + size / 4 + SPARE : max;
	disk = disk && disk > size ? disk : size;
	w->spec->limits.disk = disk < max ? disk : max;
}

/* What a machine cannot be otherwise comes with it. */
static void set_isolation(json_t *config, const char *isolation)
{
	const struct tier_ops *tier;

	if (json_object_set_new(config, "isolation", json_string(isolation)) < 0 ||
	    (tier_find(isolation, &tier, NULL) == 0 && tier->machine &&
	     json_object_set_new(config, "storage", json_string("disk")) < 0))
		abort();
}

static int read_manifest(struct import *x, struct sandbox_request **ret, struct told *ret_told, struct err *e)
{
	AUTO(json_decref) json_t *o = NULL;
	AUTO(buf_done) struct buf config = BUF_INIT(MANIFEST_TEXT);
	struct json j = JSON_INIT(&config);
	const char *format, *sandbox;
	json_int_t size;
	int r = json_read_begin(buf_str(&x->text), x->text.len, &o, e);

	if (r < 0)
		return err_wrap(e, r, "its manifest");
	format = json_string_value(json_object_get(o, "format"));
	if (!format || strcmp(format, FORMAT))
		return err_set(e, WHY_ARCHIVE_INVALID, -EINVAL, "its manifest is not the manifest of a checkpoint");
	if (json_integer_value(json_object_get(o, "version")) != VERSION) {
		err_set(e, WHY_ARCHIVE_INVALID, -EINVAL, "its version is unknown (expected %d)", VERSION);
		err_remedy(e, "import it with the version of cloche that exported it, or a newer one");
		return -EINVAL;
	}
	if (!json_is_object(json_object_get(o, "config")))
		return err_set(e, WHY_ARCHIVE_INVALID, -EINVAL, "its manifest has no settings");
	if (x->isolation)
		set_isolation(json_object_get(o, "config"), x->isolation);
	/* A sandbox only gets a network if the request asks for one; a restore can do so. */
	if (!x->keep_network)
		json_object_del(json_object_get(o, "config"), "network");
	/* Nor folders of this host. */
	if (!x->keep_mounts) {
		json_object_del(json_object_get(o, "config"), "mounts");
		/* Those of another machine. */
		json_object_del(json_object_get(o, "config"), "devices");
		json_object_del(json_object_get(o, "config"), "gpus");
	}
	r = sandbox_request_parse(&x->s->o, json_object_get(o, "config"), x->who.scope == SCOPE_ADMIN, ret, e);
	/* A stored image has a tag or a digest: anything else is a folder that is not here. */
	if (r == 0 && (*ret)->image[0] && !strpbrk((*ret)->image, ":@"))
		r = err_set(e, WHY_IMAGE_MISSING, -ENOENT, "no image '%.60s'", (*ret)->image);
	if (r < 0)
		return err_wrap(e, r, "its settings");
	/* The author of the file must not choose where secrets of the same names are injected. */
	for (uint32_t i = 0; i < (*ret)->secrets.n; i++)
		secret_use_only_mask(&(*ret)->secrets.use[i]);
	jout_object(&j, NULL);
	sandbox_request_write_config(*ret, &j);
	jout_end(&j);
	x->config = jout_done(&j) < 0 ? NULL : buf_take(&config);
	if (!x->config)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a checkpoint");
	/*
	 * A machine gets a network device without a connection: a restore may then add a network without changing the
	 * machine.
	 */
	if (net_request_on((*ret)->net) && tier_is_machine((*ret)->spec->flags))
		(*ret)->spec->flags |= SPEC_NET;
	net_request_free(
		(*ret)->net); /* the sandbox that unpacks it needs none; a restore checks the caller's own request */
	(*ret)->net = NULL;
	sandbox = json_string_value(json_object_get(o, "sandbox_name"));
	if (sandbox && name_check(sandbox, NULL) == 0)
		snprintf(x->sandbox_name, sizeof(x->sandbox_name), "%s", sandbox);
	if (!*x->name) {
		const char *name = json_string_value(json_object_get(o, "name"));

		free(x->name);
		x->name = strdup(name && name_check(name, NULL) == 0 ? name : "");
	}
	if (!*x->label) {
		const char *label = json_string_value(json_object_get(o, "label"));

		free(x->label);
		x->label = strdup(label && strlen(label) <= LABEL_MAX ? label : "");
	}
	if (!x->name || !x->label)
		abort();
	if (json_object_size(json_object_get(o, "metadata"))) {
		r = kv_parse(json_object_get(o, "metadata"), "metadata", META_MAX, false, &x->metadata, e);
		if (r < 0)
			return err_wrap(e, r, "its manifest");
	}
	size = json_integer_value(json_object_get(o, "size"));
	ret_told->size = size > 0 ? (uint64_t)size : 0;
	ret_told->layers = json_array_size(json_object_get(o, "layers"));
	if (ret_told->layers < 1 || ret_told->layers > SPEC_LAYERS)
		ret_told->layers = 1;
	return 0;
}

static void begin_sandbox(struct import *x)
{
	AUTO(sandbox_request_free) struct sandbox_request *w = NULL;
	struct sandbox_plan p = { .tenant = x->who.tenant, .maker = &maker, .arg = x, .hidden = true };
	struct err e = { 0 };
	struct told t = { 0 };
	struct sandbox *b;
	int r = read_manifest(x, &w, &t, &e);

	/* Of a stored image, whose name has a tag, the file has all files. Of a folder it has what differs. */
	if (r == 0 && w->image[0] && !strpbrk(w->image, ":@"))
		r = err_set(&e, WHY_IMAGE_NEEDED, -ENOENT, "it is based on image '%.100s', which is not here",
			    w->image);
	if (r == 0) {
		strip(x, w, &t);
		p.request = w;
		w->image_kept = true;
		/* Its memory and disk are as large as the file says: not beyond what a machine of this tenant may have. */
		p.counted = tier_is_machine(w->spec->flags);
		r = sandbox_begin(x->s, &p, &b, &e);
	}
	if (r < 0) {
		fail(x, r, &e);
		return;
	}
	(void)TAKE_PTR(w);
	sandbox_ref(b);
	x->sandbox = b;
}

static void on_manifest(uv_poll_t *p, int status, int events)
{
	struct import *x = p->data;
	char tmp[16384];
	ssize_t n = read(x->manifest, tmp, sizeof(tmp));
	struct err e = { 0 };

	(void)status;
	(void)events;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n > 0) {
		int r = buf_add(&x->text, tmp, (size_t)n);

		if (r == 0)
			return;
		stop_poll(x);
		err_set(&e, WHY_ARCHIVE_INVALID, r, "its manifest is too long");
		fail(x, r, &e);
		return;
	}
	stop_poll(x);
	/* None at all: the child says why. */
	if (n == 0 && x->text.len && x->r == 0 && !x->canceled)
		begin_sandbox(x);
}

int import_start(struct service *s, const struct who *who, const struct import_request *w, import_fn *fn, void *arg,
		 struct import **ret, int *ret_stream, struct err *e)
{
	AUTO_CLOSE int theirs = -1, files = -1, manifest = -1, stream = -1;
	struct tar_child_plan p = { .mode = "unpack",
				    .option = { "--files", "--stream", "--manifest" },
				    .tenant = who->tenant };
	struct import *x = calloc(1, sizeof(*x));
	int pair[2][2] = { { -1, -1 }, { -1, -1 } }, pipes[2] = { -1, -1 }, r = 0;

	if (!x)
		abort();
	*x = (struct import){
		.s = s, .who = *who, .manifest = -1, .worker = -1, .text = BUF_INIT(MANIFEST_TEXT), .fn = fn, .arg = arg
	};
	x->name = strdup(w->name ? w->name : "");
	x->label = strdup(w->label ? w->label : "");
	x->keep_network = w->keep_network;
	x->keep_mounts = w->keep_mounts;
	x->isolation = w->isolation ? strdup(w->isolation) : NULL;
	if (!x->name || !x->label || (w->isolation && !x->isolation))
		abort();
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair[0]) < 0 ||
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair[1]) < 0 || pipe2(pipes, O_CLOEXEC) < 0)
		r = err_sys(e, ERR_EXHAUSTED, -errno, "make a socket");
	files = pair[0][0];
	x->worker = pair[0][1];
	stream = pair[1][0];
	theirs = pair[1][1];
	x->manifest = pipes[0];
	manifest = pipes[1];
	if (r == 0) {
		p.fd[0] = files;
		p.fd[1] = theirs;
		p.fd[2] = manifest;
		r = tar_child_start(s, &p, on_child, x, &x->child, e);
	}
	if (r < 0) {
		import_free(x);
		return r;
	}
	fd_set_nonblock(x->manifest);
	fd_set_nonblock(stream);
	x->poll = malloc(sizeof(*x->poll));
	if (!x->poll || uv_poll_init(s->loop, x->poll, x->manifest) < 0)
		abort();
	x->poll->data = x;
	uv_poll_start(x->poll, UV_READABLE, on_manifest);
	*ret = x;
	*ret_stream = TAKE_FD(stream);
	return 0;
}

void import_cancel(struct import *x)
{
	x->canceled = true;
	if (!x->sealing)
		fail(x, -ECANCELED, NULL);
}

int export_manifest(const struct checkpoint *c, struct buf *out, struct err *e)
{
	struct json j = JSON_INIT(out);
	char hex[2 * sizeof(c->sum) + 1], when[32];

	for (size_t i = 0; i < sizeof(c->sum); i++)
		snprintf(hex + 2 * i, 3, "%02x", c->sum[i]);
	clock_iso(c->created_ns, when);
	jout_object(&j, NULL);
	jout_str(&j, "format", FORMAT);
	jout_u64(&j, "version", VERSION);
	jout_str(&j, "cloche", CLOCHE_VERSION);
	jout_str(&j, "id", c->id);
	jout_str(&j, "name", c->name);
	jout_str(&j, "label", c->label[0] ? c->label : NULL);
	kv_write(&c->metadata, "metadata", &j);
	jout_str(&j, "sandbox_name", c->sandbox_name);
	jout_str(&j, "created_at", when);
	jout_u64(&j, "size", c->size);
	jout_u64(&j, "files", c->files);
	jout_bool(&j, "memory", false);
	jout_bool(&j, "memory_left_out", c->memory);
	jout_array(&j, "layers");
	for (uint32_t i = 0; i < c->chain->layers; i++)
		jout_str(&j, NULL, c->chain->layer[i]);
	jout_end(&j);
	jout_str(&j, "sum", hex);
	jout_raw(&j, "config", c->config, strlen(c->config));
	jout_end(&j);
	return jout_done(&j) < 0 ? err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a manifest") : 0;
}
