/* Turns an archive into an image: see archive.h. */
#include "service/image/archive.h"
#include "base/base.h"
#include "service/image/struct.h"
#include "service/struct.h"
#include "base/json.h"
#include "oci/json.h"
#include "service/file/tar_child.h"
#include "service/image/assemble.h"
#include "service/image/layer_pack.h"
#include "service/image/operation.h"
#include "service/image/usage.h"
#include "service/state/json_read.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define PARTS_MAX 4096U

struct part {
	char *name;
	uint64_t at, size;
};

struct archive_import {
	struct service *s;
	struct who who;
	char *name, *ref, *format, *rootfs_config;
	struct operation *operation;
	struct tar_child *child;
	struct assembly *assembly;
	int raw, blobs; /* files without a name, which vanish with their last descriptor */
	struct image_meter *meter; /* of both */
	uint64_t room; /* bytes that each may have: the tenant's quota leaves no more */
	struct err full; /* with a message: the meter refused what was written */
	struct part *part;
	unsigned nparts;
	/* The image in the archive: */
	struct oci_name called;
	struct oci_config config;
	char digest[OCI_DIGEST_SIZE]; /* of its manifest, "" = there is none */
	unsigned nlayers;
	struct oci_descriptor layer[OCI_LAYERS_MAX];
	const struct part *from[OCI_LAYERS_MAX]; /* NULL: the whole archive is the layer */
	const char *kind;
	archive_import_fn *fn; /* NULL: cancelled */
	void *arg;
};

static void import_free(struct archive_import *x)
{
	image_meter_free(x->meter);
	fd_close(x->raw);
	fd_close(x->blobs);
	for (unsigned i = 0; i < x->nparts; i++)
		free(x->part[i].name);
	free(x->part);
	free(x->name);
	free(x->ref);
	free(x->format);
	free(x->rootfs_config);
	oci_config_done(&x->config);
	free(x);
}

static void end_operation(struct archive_import *x, const struct image *i, const struct err *e)
{
	AUTO(buf_done) struct buf b = BUF_INIT(4096);
	struct json j = JSON_INIT(&b);

	if (i) {
		jout_object(&j, NULL);
		image_write_result(i, &j);
		jout_end(&j);
	}
	operation_end(x->operation, i ? buf_str(&b) : NULL, i ? NULL : e);
}

static void finish(struct archive_import *x, struct image *i, const struct err *e)
{
	struct err gone = { 0 };

	if (!i && (!e || !e->msg[0])) {
		err_set(&gone, WHY_CANCELED, -ECANCELED, "it was canceled");
		e = &gone;
	}
	end_operation(x, i, e);
	if (x->fn)
		x->fn(x->arg, i, e);
	import_free(x);
}

/* --- the parts --- */

static const struct part *find(const struct archive_import *x, const char *name)
{
	/* From the end: of a name that occurs twice the last one counts, as in unpacking. */
	for (unsigned i = x->nparts; i-- > 0;)
		if (!strcmp(x->part[i].name, name))
			return &x->part[i];
	return NULL;
}

static const struct part *find_blob(const struct archive_import *x, const char *digest)
{
	char name[OCI_DIGEST_SIZE + 16];

	snprintf(name, sizeof(name), "blobs/sha256/%s", digest + strlen(OCI_DIGEST_PREFIX));
	return find(x, name);
}

/* Reads a part of at most OCI_MANIFEST_MAX bytes. @digest: the expected one, NULL = any. */
static int read_part(const struct archive_import *x, const struct part *p, const char *what, const char *digest,
		     struct buf *ret, struct err *e)
{
	char is[OCI_DIGEST_SIZE];
	ssize_t n;
	char *to;

	if (!p)
		return err_set(e, WHY_ARCHIVE_INVALID, -ENOENT, "the archive has no %s", what);
	if (p->size >= OCI_MANIFEST_MAX)
		return err_set(e, WHY_ARCHIVE_INVALID, -E2BIG, "the archive's %s is too long", what);
	to = buf_room(ret, (size_t)p->size + 1);
	n = to ? pread(x->blobs, to, (size_t)p->size, (off_t)p->at) : -1;
	if (n != (ssize_t)p->size)
		return err_set(e, ERR_INTERNAL, -EIO, "cannot read the archive's %s again", what);
	buf_added(ret, (size_t)n);
	oci_digest_of(to, (size_t)n, is);
	if (digest && strcmp(is, digest))
		return err_set(e, WHY_ARCHIVE_INVALID, -EBADMSG, "the archive's %s is not what its digest says", what);
	return 0;
}

static int take_parts(struct archive_import *x, const json_t *found, struct err *e)
{
	struct stat st;

	if (fstat(x->blobs, &st) < 0 || json_array_size(found) > PARTS_MAX)
		return err_set(e, ERR_INTERNAL, -EPROTO, "the archive process failed");
	x->part = calloc(json_array_size(found) + 1, sizeof(*x->part));
	if (!x->part)
		abort();
	for (size_t i = 0; i < json_array_size(found); i++) {
		const json_t *o = json_array_get(found, i);
		const char *name = json_string_value(json_object_get(o, "name"));
		struct part p = { .at = (uint64_t)json_integer_value(json_object_get(o, "at")),
				  .size = (uint64_t)json_integer_value(json_object_get(o, "size")) };

		if (!name || p.at > (uint64_t)st.st_size || p.size > (uint64_t)st.st_size - p.at)
			return err_set(e, ERR_INTERNAL, -EPROTO, "the archive process failed");
		p.name = strdup(name);
		if (!p.name)
			abort();
		x->part[x->nparts++] = p;
	}
	return 0;
}

/* --- the image's name --- */

static int call_it(struct archive_import *x, const char *archive_says, struct err *e)
{
	const char *text = x->name ? x->name : archive_says;
	int r;

	if (!text) {
		err_set(e, ERR_INVALID, -EINVAL, "the archive does not say what the image is called");
		err_remedy(e, "give it a name: `name` of the request, or the command's NAME");
		return -EINVAL;
	}
	r = oci_name_parse(text, &x->called, e);
	if (r == 0 && x->called.digest[0])
		r = err_set(e, WHY_BAD_FIELD, -EINVAL,
			    "'%.100s': the name of an image that is imported must not have a digest", text);
	return r < 0 && !x->name ? err_wrap(e, r, "the archive's name for the image") : r;
}

static int read_config(struct archive_import *x, const struct part *p, const char *digest, struct err *e)
{
	AUTO(buf_done) struct buf text = BUF_INIT(OCI_MANIFEST_MAX);
	int r = read_part(x, p, "configuration", digest, &text, e);

	oci_config_done(&x->config);
	if (r == 0)
		r = oci_config_parse(buf_str(&text), text.len, &x->config, e);
	if (r == 0 && x->config.os && strcmp(x->config.os, "linux"))
		r = err_set(e, WHY_WRONG_PLATFORM, -EOPNOTSUPP, "the image is for '%.40s', not for linux",
			    x->config.os);
	if (r == 0 && x->config.architecture && *x->config.architecture &&
	    strcmp(x->config.architecture, oci_architecture()))
		r = err_set(e, WHY_WRONG_PLATFORM, -EOPNOTSUPP, "the image is for %.40s, and this machine is %s",
			    x->config.architecture, oci_architecture());
	return r;
}

/* --- OCI layout --- */

/* Follows an index to an image; an index may refer to another. */
static int read_layout(struct archive_import *x, struct err *e)
{
	struct oci_manifest *m = calloc(1, sizeof(*m));
	const struct part *p = find(x, "index.json");
	char digest[OCI_DIGEST_SIZE] = "";
	int r = m ? 0 : -ENOMEM;

	for (unsigned depth = 0; r == 0; depth++) {
		AUTO(buf_done) struct buf text = BUF_INIT(OCI_MANIFEST_MAX);

		if (depth == 4)
			r = err_set(e, WHY_ARCHIVE_INVALID, -ELOOP, "the archive's index leads to too many others");
		if (r == 0)
			r = read_part(x, p, depth ? "manifest" : "index", digest[0] ? digest : NULL, &text, e);
		if (r == 0)
			r = oci_manifest_parse(buf_str(&text), text.len, depth ? NULL : x->ref, m, e);
		if (r < 0 || m->kind == OCI_IMAGE)
			break;
		memcpy(digest, m->chosen.digest, sizeof(digest));
		p = find_blob(x, digest);
	}
	if (r == 0)
		r = read_config(x, find_blob(x, m->config.digest), m->config.digest, e);
	for (unsigned i = 0; r == 0 && i < m->nlayers; i++) {
		x->layer[i] = m->layer[i];
		x->from[i] = find_blob(x, m->layer[i].digest);
		x->nlayers++;
	}
	if (r == 0)
		memcpy(x->digest, digest, sizeof(digest));
	free(m);
	return r;
}

/* The image's name in the index, if it is valid. */
static int name_of_layout(struct archive_import *x, struct err *e)
{
	AUTO(buf_done) struct buf text = BUF_INIT(OCI_MANIFEST_MAX);
	AUTO(json_decref) json_t *o = NULL;
	const char *name = x->ref;
	struct oci_name n;
	const json_t *list;
	int r = read_part(x, find(x, "index.json"), "index", NULL, &text, e);

	if (r < 0)
		return r;
	o = oci_json(buf_str(&text), text.len, OCI_MANIFEST_MAX, "the archive's index", e);
	list = json_object_get(o, "manifests");
	for (size_t i = 0; !name && i < json_array_size(list) && json_array_size(list) == 1; i++) {
		const json_t *notes = json_object_get(json_array_get(list, i), "annotations");

		name = json_string_value(json_object_get(notes, "io.containerd.image.name"));
		if (!name)
			name = json_string_value(json_object_get(notes, "org.opencontainers.image.ref.name"));
	}
	/* Most tools write only a tag there. */
	if (name && (oci_name_parse(name, &n, NULL) < 0 || !strpbrk(name, ":/")))
		name = NULL;
	return call_it(x, name, e);
}

/* --- docker save --- */

static bool has_tag(const json_t *one, const char *ref)
{
	const json_t *tags = json_object_get(one, "RepoTags");

	for (size_t i = 0; i < json_array_size(tags); i++)
		if (json_string_value(json_array_get(tags, i)) &&
		    !strcmp(json_string_value(json_array_get(tags, i)), ref))
			return true;
	return false;
}

static int choose(struct archive_import *x, const json_t *list, const json_t **ret, struct err *e)
{
	if (!x->ref && json_array_size(list) == 1) {
		*ret = json_array_get(list, 0);
		return 0;
	}
	for (size_t i = 0; x->ref && i < json_array_size(list); i++)
		if (has_tag(json_array_get(list, i), x->ref)) {
			*ret = json_array_get(list, i);
			return 0;
		}
	if (x->ref)
		return err_set(e, WHY_IMAGE_MISSING, -ENOENT, "the archive has no image '%.100s'", x->ref);
	err_set(e, ERR_INVALID, -EINVAL, "the archive has %zu images", json_array_size(list));
	err_remedy(e, "say which: `ref` of the request (--ref)");
	return -EINVAL;
}

static int read_docker(struct archive_import *x, struct err *e)
{
	AUTO(buf_done) struct buf text = BUF_INIT(OCI_MANIFEST_MAX);
	AUTO(json_decref) json_t *list = NULL;
	const json_t *one = NULL, *layers, *tags;
	const char *config;
	json_error_t why;
	int r = read_part(x, find(x, "manifest.json"), "manifest", NULL, &text, e);

	if (r < 0)
		return r;
	list = json_loadb(buf_str(&text), text.len, JSON_REJECT_DUPLICATES, &why);
	if (!json_is_array(list))
		return err_set(e, WHY_ARCHIVE_INVALID, -EBADMSG, "the archive's manifest is not a list of images");
	r = choose(x, list, &one, e);
	if (r < 0)
		return r;
	config = json_string_value(json_object_get(one, "Config"));
	layers = json_object_get(one, "Layers");
	tags = json_object_get(one, "RepoTags");
	if (!config || !json_is_array(layers) || json_array_size(layers) > OCI_LAYERS_MAX)
		return err_set(e, WHY_ARCHIVE_INVALID, -EBADMSG,
			       "the archive's manifest has no configuration, or no layers");
	r = read_config(x, find(x, config), NULL, e);
	for (size_t i = 0; r == 0 && i < json_array_size(layers); i++) {
		const char *name = json_string_value(json_array_get(layers, i));

		x->from[i] = name ? find(x, name) : NULL;
		if (!x->from[i])
			r = err_set(e, WHY_ARCHIVE_INVALID, -ENOENT, "the archive has no layer '%.100s'",
				    name ? name : "?");
		else
			x->layer[i].size = x->from[i]->size;
		x->nlayers++;
	}
	/* Only diff ids identify these layers. */
	if (r == 0 && x->config.ndiff != x->nlayers)
		r = err_set(e, WHY_IMAGE_INVALID, -EBADMSG,
			    "the image's manifest has %u layers, and its configuration %u", x->nlayers,
			    x->config.ndiff);
	return r < 0 ? r : call_it(x, x->ref ? x->ref : json_string_value(json_array_get(tags, 0)), e);
}

/* --- a root filesystem --- */

static int read_rootfs(struct archive_import *x, struct err *e)
{
	static const char nothing[] = "{\"rootfs\":{\"type\":\"layers\",\"diff_ids\":[]}}";
	AUTO(buf_done) struct buf text = BUF_INIT(OCI_MANIFEST_MAX);
	int r = 0;

	if (x->rootfs_config)
		r = buf_addf(&text, "{\"config\":%s,\"rootfs\":{\"type\":\"layers\",\"diff_ids\":[]}}",
			     x->rootfs_config);
	if (r < 0)
		return err_set(e, ERR_TOO_LARGE, r, "the configuration is too long");
	oci_config_done(&x->config);
	r = oci_config_parse(x->rootfs_config ? text.data : nothing, x->rootfs_config ? text.len : sizeof(nothing) - 1,
			     &x->config, e);
	x->nlayers = 1;
	return r < 0 ? r : call_it(x, NULL, e);
}

/* --- the whole archive --- */

static int open_again(int fd)
{
	char path[40];
	int again;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	again = open(path, O_RDONLY | O_CLOEXEC);
	return again < 0 ? -errno : again;
}

static int open_layer(void *arg, unsigned n, struct assembly_layer *ret, struct err *e)
{
	struct archive_import *x = arg;
	const struct part *p = x->from[n];
	AUTO_CLOSE int fd = -1;
	const bool whole = !strcmp(x->kind, "rootfs");
	int r;

	if (!p && !whole)
		return err_set(e, WHY_ARCHIVE_INVALID, -ENOENT, "the archive lacks layer %u of the image, %.80s", n + 1,
			       x->layer[n].digest);
	if (p && x->layer[n].size != p->size)
		return err_set(e, WHY_IMAGE_INVALID, -EBADMSG, "layer %u of the image has %llu bytes instead of %llu",
			       n + 1, (unsigned long long)p->size, (unsigned long long)x->layer[n].size);
	r = fd = open_again(whole ? x->raw : x->blobs);
	if (r >= 0 && lseek(fd, p ? (off_t)p->at : 0, SEEK_SET) < 0)
		r = -errno;
	if (r < 0)
		return err_sys(e, ERR_EXHAUSTED, r, "open a layer of the archive");
	ret->fd = TAKE_FD(fd);
	ret->size = p ? p->size : 0;
	memcpy(ret->digest, x->layer[n].digest, sizeof(ret->digest));
	ret->compressed = x->layer[n].digest[0] != '\0';
	return 0;
}

static void on_progress(void *arg, unsigned n)
{
	const struct archive_import *x = arg;
	char fields[64];

	snprintf(fields, sizeof(fields), "\"layer\":%u,\"layers\":%u", n, x->nlayers);
	operation_progress(x->operation, fields);
}

static void on_assembled(void *arg, struct image *i, const struct err *e)
{
	struct archive_import *x = arg;

	x->assembly = NULL;
	finish(x, i, e);
}

static bool is_image(const struct archive_import *x)
{
	return (find(x, "oci-layout") && find(x, "index.json")) || find(x, "manifest.json");
}

static int look(struct archive_import *x, struct err *e)
{
	const bool rootfs = !strcmp(x->format, "rootfs") || (strcmp(x->format, "image") && !is_image(x));
	int r;

	if (rootfs) {
		x->kind = "rootfs";
		return read_rootfs(x, e);
	}
	if (x->rootfs_config)
		return err_set(e, ERR_INVALID, -EINVAL, "config: this archive has a configuration of its own");
	/* docker writes archives of both formats; names are in the older one. */
	if (find(x, "oci-layout") && find(x, "index.json") && !find(x, "manifest.json")) {
		x->kind = "oci";
		r = read_layout(x, e);
		return r < 0 ? r : name_of_layout(x, e);
	}
	x->kind = "docker";
	return read_docker(x, e);
}

/* Only one of the two files is needed from now on. */
static void drop_other(struct archive_import *x)
{
	int *other = strcmp(x->kind, "rootfs") ? &x->raw : &x->blobs;

	image_meter_drop(x->meter, other == &x->blobs);
	fd_close(*other);
	*other = -1;
}

static void on_parts(void *arg, int r, json_t *result, const struct err *e)
{
	struct archive_import *x = arg;
	struct assembly_plan p = { .name = &x->called,
				   .config = &x->config,
				   .open = open_layer,
				   .done = on_assembled,
				   .progress = on_progress,
				   .arg = x };
	struct err why = e ? *e : (struct err){ 0 };
	char source[64];

	x->child = NULL;
	if (x->full.msg[0])
		why = x->full;
	else if (r < 0 && why.kind == ERR_TOO_LARGE)
		image_bytes_explain(x->who.tenant, x->room, TAR_CHILD_BYTES, &why);
	if (r == 0)
		r = take_parts(x, json_object_get(result, "found"), &why);
	if (r == 0)
		r = look(x, &why);
	if (r == 0)
		drop_other(x);
	if (r == 0) {
		char name[OCI_NAME_MAX], fields[OCI_NAME_MAX + 64];

		oci_name_full(&x->called, name);
		snprintf(fields, sizeof(fields), "\"image\":\"%s\",\"format\":\"%s\",\"layers\":%u", name, x->kind,
			 x->nlayers);
		operation_event(x->operation, "found", fields);
		snprintf(source, sizeof(source), "{\"kind\":\"import\",\"format\":\"%s\"}", x->kind);
		p.source = source;
		p.digest = x->digest[0] ? x->digest : NULL;
		p.layers = x->nlayers;
		r = x->fn ? assemble(x->s, &x->who, &p, &x->assembly, &why) : -ECANCELED;
	}
	if (r < 0)
		finish(x, NULL, &why);
}

static void on_cancel(void *arg);
static void on_full(void *arg, const struct err *e);

static int begin_operation(struct archive_import *x, struct err *e)
{
	const struct operation_new n = { .kind = "import",
					 .what = x->name ? x->name :
						 x->ref	 ? x->ref :
							   "",
					 .cancel = on_cancel,
					 .arg = x };

	return operation_begin(x->s, &x->who, &n, &x->operation, e);
}

static char *copy(const char *text)
{
	char *c = text ? strdup(text) : NULL;

	if (text && !c)
		abort();
	return c;
}

int archive_import(struct service *s, const struct who *who, const struct archive_request *w, archive_import_fn *fn,
		   void *arg, struct archive_import **ret, int *ret_stream, struct err *e)
{
	struct tar_child_plan p = { .mode = "blobs",
				    .option = { "--raw", "--stream", "--blobs" },
				    .tenant = who->tenant };
	AUTO_CLOSE int theirs = -1, ours = -1;
	struct archive_import *x;
	struct oci_name n;
	int pair[2], r = w->name ? oci_name_parse(w->name, &n, e) : 0;

	if (r < 0)
		return r;
	x = calloc(1, sizeof(*x));
	if (!x)
		abort();
	*x = (struct archive_import){ .s = s, .who = *who, .raw = -1, .blobs = -1, .fn = fn, .arg = arg };
	oci_config_init(&x->config);
	x->name = copy(w->name);
	x->ref = copy(w->ref);
	x->format = copy(w->format ? w->format : "auto");
	x->rootfs_config = copy(w->config);
	r = service_room(s, e);
	if (r == 0)
		r = x->raw = image_spool(s, e);
	if (r >= 0)
		r = x->blobs = image_spool(s, e);
	if (r >= 0)
		r = image_meter_new(s, who->tenant, (const int[]){ x->raw, x->blobs }, on_full, x, &x->meter, e);
	p.max_bytes = x->room = image_bytes_room(who->tenant, TAR_CHILD_BYTES);
	if (r >= 0 && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		r = err_sys(e, ERR_EXHAUSTED, -errno, "make a socket");
	if (r >= 0) {
		ours = pair[0];
		theirs = pair[1];
		p.fd[0] = x->raw;
		p.fd[1] = theirs;
		p.fd[2] = x->blobs;
		r = begin_operation(x, e);
	}
	if (r >= 0) {
		r = tar_child_start(s, &p, on_parts, x, &x->child, e);
		if (r < 0)
			operation_end(x->operation, NULL, e);
	}
	if (r < 0) {
		import_free(x);
		return r;
	}
	fd_set_nonblock(ours);
	*ret = x;
	*ret_stream = TAKE_FD(ours);
	return 0;
}

static void give_up(struct archive_import *x)
{
	if (x->child) {
		tar_child_kill(x->child); /* it calls back, and then everything ends */
	} else if (x->assembly) {
		assembly_cancel(TAKE_PTR(x->assembly));
		finish(x, NULL, NULL);
	}
}

static void on_cancel(void *arg)
{
	give_up(arg);
}

static void on_full(void *arg, const struct err *e)
{
	struct archive_import *x = arg;

	x->full = *e;
	if (x->child) {
		tar_child_kill(x->child);
	} else if (x->assembly) {
		assembly_cancel(TAKE_PTR(x->assembly));
		finish(x, NULL, &x->full);
	}
}

void archive_import_cancel(struct archive_import *x)
{
	x->fn = NULL;
	give_up(x);
}

const char *archive_import_operation(const struct archive_import *x)
{
	return operation_id(x->operation);
}
