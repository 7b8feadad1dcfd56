/* Writes an image as one tar file, while it is read. */
#include "service/image/export.h"
#include "base/base.h"
#include "base/json.h"
#include "engine/spec.h"
#include "service/access/struct.h"
#include "service/image/book.h"
#include "service/image/layer_pack.h"
#include "service/image/manifest.h"
#include "service/image/struct.h"
#include "service/struct.h"

#include <unistd.h>

#define BLOCK 512U
#define TEXTS_MAX (16 * MIB)
#define AT_ONCE 2U /* of a tenant: their files are in no quota, and stay while a slow client reads them */

/* A part of the file: bytes in ->text, or in a descriptor. */
struct part {
	uint64_t at, size; /* at: offset in ->text */
	int fd; /* -1: in ->text */
};

struct image_export {
	struct service *s;
	struct who who;
	char name[OCI_NAME_MAX];
	struct oci_config config;
	unsigned n, done; /* number of layers */
	struct image_chain *chain[OCI_LAYERS_MAX]; /* pinned; from the lowest on */
	struct oci_descriptor layer[OCI_LAYERS_MAX];
	int fd[OCI_LAYERS_MAX];
	struct sandbox_spec older, newer;
	struct layer_pack *pack;
	struct buf text; /* headers of entries, small files, padding */
	struct part *part;
	unsigned nparts, at;
	uint64_t size, offset; /* of the whole file; offset in the present part */
	image_export_fn *fn;
	void *arg;
	bool ready;
	struct err e;
	struct turn_wait wait;
};

void image_export_free(struct image_export *x)
{
	if (!x)
		return;
	turn_cancel(&x->wait);
	if (x->pack)
		layer_pack_cancel(x->pack);
	for (unsigned i = 0; i < x->n; i++) {
		image_chain_unpin(x->chain[i]);
		fd_close(x->fd[i]);
	}
	x->who.tenant->calls.exports--;
	oci_config_done(&x->config);
	buf_done(&x->text);
	free(x->part);
	free(x);
}

/* --- the file --- */

static int add_part(struct image_export *x, int fd, uint64_t at, uint64_t size)
{
	struct part *more = realloc(x->part, (x->nparts + 1) * sizeof(*more));

	if (!more)
		return -ENOMEM;
	x->part = more;
	more[x->nparts++] = (struct part){ .at = at, .size = size, .fd = fd };
	x->size += size;
	return 0;
}

/* Adds what was appended to ->text since @from. */
static int add_text(struct image_export *x, size_t from)
{
	return add_part(x, -1, from, x->text.len - from);
}

/* Writes the header of a tar entry in POSIX format. */
static int put_head(struct image_export *x, const char *name, uint64_t size)
{
	char head[BLOCK] = "";
	unsigned sum = 0;

	if (strlen(name) > 99 || size > 077777777777ULL)
		return -E2BIG;
	memcpy(head, name, strlen(name));
	memcpy(head + 100, "0000644", 8);
	memcpy(head + 108, "0000000", 8);
	memcpy(head + 116, "0000000", 8);
	snprintf(head + 124, 12, "%011llo", (unsigned long long)size);
	memcpy(head + 136, "00000000000", 12);
	memset(head + 148, ' ', 8);
	head[156] = '0';
	memcpy(head + 257, "ustar\00000", 8);
	for (unsigned i = 0; i < BLOCK; i++)
		sum += (unsigned char)head[i];
	snprintf(head + 148, 8, "%06o", sum);
	return buf_add(&x->text, head, BLOCK);
}

static int pad(struct image_export *x, uint64_t size)
{
	static const char zeros[BLOCK] = "";
	const size_t rest = (size_t)(size % BLOCK);

	return rest ? buf_add(&x->text, zeros, BLOCK - rest) : 0;
}

static int put_file(struct image_export *x, const char *name, const char *data, size_t len)
{
	const size_t from = x->text.len;
	int r = put_head(x, name, len);

	if (r == 0)
		r = buf_add(&x->text, data, len);
	if (r == 0)
		r = pad(x, len);
	return r < 0 ? r : add_text(x, from);
}

static void blob_name(const char *digest, char ret[OCI_DIGEST_SIZE + 16])
{
	snprintf(ret, OCI_DIGEST_SIZE + 16, "blobs/sha256/%.64s", digest + strlen(OCI_DIGEST_PREFIX));
}

static int put_blob(struct image_export *x, const struct buf *b, char digest[OCI_DIGEST_SIZE])
{
	char name[OCI_DIGEST_SIZE + 16];

	oci_digest_of(buf_str(b), b->len, digest);
	blob_name(digest, name);
	return put_file(x, name, buf_str(b), b->len);
}

static bool is_first(const struct image_export *x, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (!strcmp(x->layer[i].digest, x->layer[n].digest))
			return false;
	return true;
}

static int put_layers(struct image_export *x)
{
	int r = 0;

	for (unsigned i = 0; r == 0 && i < x->n; i++) {
		char name[OCI_DIGEST_SIZE + 16];
		size_t from = x->text.len;

		if (!is_first(x, i))
			continue;
		blob_name(x->layer[i].digest, name);
		r = put_head(x, name, x->layer[i].size);
		if (r == 0)
			r = add_text(x, from);
		if (r == 0)
			r = add_part(x, x->fd[i], 0, x->layer[i].size);
		from = x->text.len;
		if (r == 0)
			r = pad(x, x->layer[i].size);
		if (r == 0)
			r = add_text(x, from);
	}
	return r;
}

static int put_index(struct image_export *x, const char *digest, uint64_t size)
{
	AUTO(buf_done) struct buf b = BUF_INIT(64 * KIB);
	struct json j = JSON_INIT(&b);
	struct oci_name n;

	jout_object(&j, NULL);
	jout_u64(&j, "schemaVersion", 2);
	jout_str(&j, "mediaType", OCI_TYPE_INDEX);
	jout_array(&j, "manifests");
	jout_object(&j, NULL);
	jout_str(&j, "mediaType", OCI_TYPE_MANIFEST);
	jout_str(&j, "digest", digest);
	jout_u64(&j, "size", size);
	jout_object(&j, "annotations");
	jout_str(&j, "io.containerd.image.name", x->name);
	if (oci_name_parse(x->name, &n, NULL) == 0 && n.tag[0])
		jout_str(&j, "org.opencontainers.image.ref.name", n.tag);
	jout_end(&j);
	jout_end(&j);
	jout_end(&j);
	jout_end(&j);
	return jout_done(&j) < 0 ? -E2BIG : put_file(x, "index.json", b.data, b.len);
}

/* Writes the files that `docker load` reads. */
static int put_docker(struct image_export *x, const char *config)
{
	AUTO(buf_done) struct buf b = BUF_INIT(256 * KIB);
	char name[OCI_DIGEST_SIZE + 16], shorter[OCI_NAME_MAX];
	struct json j = JSON_INIT(&b);
	struct oci_name n;

	if (oci_name_parse(x->name, &n, NULL) < 0)
		return -EINVAL;
	oci_name_short(&n, shorter);
	jout_array(&j, NULL);
	jout_object(&j, NULL);
	blob_name(config, name);
	jout_str(&j, "Config", name);
	jout_array(&j, "RepoTags");
	jout_str(&j, NULL, shorter);
	jout_end(&j);
	jout_array(&j, "Layers");
	for (unsigned i = 0; i < x->n; i++) {
		blob_name(x->layer[i].digest, name);
		jout_str(&j, NULL, name);
	}
	jout_end(&j);
	jout_end(&j);
	jout_end(&j);
	return jout_done(&j) < 0 ? -E2BIG : put_file(x, "manifest.json", b.data, b.len);
}

static int write_all(struct image_export *x, struct err *e)
{
	static const char layout[] = "{\"imageLayoutVersion\":\"1.0.0\"}", end[2 * BLOCK] = "";
	AUTO(buf_done) struct buf config = BUF_INIT(4 * OCI_CONFIG_MAX), manifest = BUF_INIT(OCI_MANIFEST_MAX);
	char digest[2][OCI_DIGEST_SIZE];
	size_t from;
	int r;

	for (unsigned i = 0; i < x->n; i++)
		memcpy(x->config.diff[i], x->layer[i].digest, OCI_DIGEST_SIZE);
	r = oci_config_write(&x->config, &config, e);
	if (r == 0)
		r = image_manifest_write(&config, x->layer, x->n, &manifest, e);
	if (r < 0)
		return r;
	r = put_file(x, "oci-layout", layout, sizeof(layout) - 1);
	if (r == 0)
		r = put_blob(x, &config, digest[0]);
	if (r == 0)
		r = put_blob(x, &manifest, digest[1]);
	if (r == 0)
		r = put_index(x, digest[1], manifest.len);
	if (r == 0)
		r = put_docker(x, digest[0]);
	if (r == 0)
		r = put_layers(x);
	from = x->text.len;
	if (r == 0)
		r = buf_add(&x->text, end, sizeof(end));
	if (r == 0)
		r = add_text(x, from);
	return r < 0 ? err_set(e, ERR_TOO_LARGE, r, "the image does not fit into an archive") : 0;
}

/* --- its layers --- */

static void on_told(void *arg)
{
	struct image_export *x = arg;

	x->fn(x->arg, x->ready ? x : NULL, x->ready ? NULL : &x->e);
}

static void tell(struct image_export *x)
{
	turn_after(x->s->turn, &x->wait, on_told, x);
}

static void next(struct image_export *x);

static void on_packed(void *arg, int fd, const struct oci_descriptor *d, const struct err *e)
{
	struct image_export *x = arg;

	x->pack = NULL;
	if (fd < 0) {
		x->e = *e;
		tell(x);
		return;
	}
	x->fd[x->done] = fd;
	x->layer[x->done++] = *d;
	next(x);
}

static void put_chain(struct sandbox_spec *spec, const struct image_chain *c)
{
	spec->layers = c ? c->layers : 0;
	memset(spec->layer, 0, sizeof(spec->layer));
	if (c)
		memcpy(spec->layer, c->layer, sizeof(spec->layer));
}

static void next(struct image_export *x)
{
	struct compare_request w = { .from.chain = &x->older, .to.chain = &x->newer, .flags = DIFF_MACHINE_ID };

	if (x->done == x->n) {
		x->ready = write_all(x, &x->e) == 0;
		tell(x);
		return;
	}
	put_chain(&x->older, x->done ? x->chain[x->done - 1] : NULL);
	put_chain(&x->newer, x->chain[x->done]);
	if (layer_pack(x->s, &x->who, &w, on_packed, x, &x->pack, &x->e) < 0)
		tell(x);
}

static int check_room(struct service *s, const struct tenant *t, struct err *e)
{
	if (t->calls.exports < AT_ONCE)
		return service_room(s, e);
	err_set(e, ERR_EXHAUSTED, -EAGAIN, "%u images of this tenant are being exported, which is the limit",
		t->calls.exports);
	err_remedy(e, "try again when one of them has been received");
	return -EAGAIN;
}

int image_export(struct image *i, const struct who *who, image_export_fn *fn, void *arg, struct image_export **ret,
		 struct err *e)
{
	struct image_export *x;
	unsigned n = 0;
	int r = check_room(i->service, who->tenant, e);

	if (r < 0)
		return r;
	x = calloc(1, sizeof(*x));
	if (!x)
		abort();
	x->s = i->service;
	x->who = *who;
	x->who.tenant->calls.exports++;
	x->fn = fn;
	x->arg = arg;
	x->text = (struct buf)BUF_INIT(TEXTS_MAX);
	memcpy(x->name, i->name, sizeof(x->name));
	r = oci_config_copy(&i->config, &x->config, e);
	for (struct image_chain *c = image_chain_find(x->s, i->chain); c; c = image_chain_find(x->s, c->parent))
		n++;
	if (r == 0 && n != x->config.ndiff)
		r = err_set(e, ERR_INTERNAL, -EBADMSG, "layers of the image are not known");
	if (r < 0) {
		image_export_free(x);
		return r;
	}
	x->n = n;
	for (struct image_chain *c = image_chain_find(x->s, i->chain); c; c = image_chain_find(x->s, c->parent)) {
		x->chain[--n] = c;
		x->fd[n] = -1;
		image_chain_pin(c);
	}
	snprintf(x->older.image, sizeof(x->older.image), SPEC_SCRATCH);
	snprintf(x->older.workdir, sizeof(x->older.workdir), "/");
	x->older.tenant = who->tenant->number;
	x->older.flags = SPEC_SYSTEM_WRITABLE;
	x->newer = x->older;
	next(x);
	*ret = x;
	return 0;
}

uint64_t image_export_size(const struct image_export *x)
{
	return x->size;
}

ssize_t image_export_read(struct image_export *x, void *buf, size_t len)
{
	while (x->at < x->nparts) {
		const struct part *p = &x->part[x->at];
		const uint64_t left = p->size - x->offset;
		ssize_t n;

		if (!left) {
			x->at++;
			x->offset = 0;
			continue;
		}
		len = left < len ? (size_t)left : len;
		if (p->fd < 0) {
			memcpy(buf, x->text.data + p->at + x->offset, len);
			n = (ssize_t)len;
		} else {
			n = pread(p->fd, buf, len, (off_t)x->offset);
			if (n < 0 && errno == EINTR)
				continue;
			if (n <= 0)
				return n < 0 ? -errno : -EIO;
		}
		x->offset += (uint64_t)n;
		return n;
	}
	return 0;
}
