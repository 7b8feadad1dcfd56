/* Packs a layer: cloche-tar turns a stream of changes into an archive. */
#include "service/image/layer_pack.h"
#include "base/base.h"
#include "service/file/tar_child.h"
#include "service/image/struct.h"
#include "service/state/json_read.h"
#include "service/struct.h"

#include <fcntl.h>
#include <unistd.h>

struct layer_pack {
	struct service *s;
	struct who who;
	int fd; /* the archive */
	struct tar_child *child;
	layer_pack_fn *fn; /* NULL: cancelled */
	void *arg;
};

int image_spool(const struct service *s, struct err *e)
{
	char path[1100];
	int fd;

	snprintf(path, sizeof(path), "%s/spool", s->o.data);
	fd = open(path, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	return fd < 0 ? err_sys(e, ERR_EXHAUSTED, -errno, "make a file in the data folder") : fd;
}

static void finish(struct layer_pack *p, const struct oci_descriptor *d, const struct err *e)
{
	int fd = d ? TAKE_FD(p->fd) : -1;

	if (p->fn)
		p->fn(p->arg, fd, d, e);
	else
		fd_close(fd);
	fd_close(p->fd);
	free(p);
}

static void on_packed(void *arg, int r, json_t *result, const struct err *e)
{
	const char *digest = json_string_value(json_object_get(result, "digest"));
	struct oci_descriptor d = { .type = OCI_TYPE_LAYER };
	struct layer_pack *p = arg;
	struct err why = e ? *e : (struct err){ 0 };

	p->child = NULL;
	if (r == 0 && (!digest || !oci_digest_ok(digest)))
		r = err_set(&why, ERR_INTERNAL, -EPROTO, "cloche-tar did not say what the layer is");
	if (r == 0) {
		memcpy(d.digest, digest, OCI_DIGEST_SIZE);
		d.size = (uint64_t)json_integer_value(json_object_get(result, "in"));
		if (lseek(p->fd, 0, SEEK_SET) < 0)
			r = err_sys(&why, ERR_INTERNAL, -errno, "read a layer again");
	}
	finish(p, r < 0 ? NULL : &d, &why);
}

static void on_changes(void *arg, int fd, const struct err *e)
{
	struct tar_child_plan plan = { .mode = "layer-out", .option = { "--changes", "--stream" } };
	AUTO_CLOSE int changes = fd;
	struct layer_pack *p = arg;
	struct err why = e ? *e : (struct err){ 0 };
	int r = fd < 0 ? -EIO : 0;

	if (r == 0 && !p->fn)
		r = -ECANCELED;
	if (r == 0) {
		plan.tenant = p->who.tenant;
		plan.fd[0] = changes;
		plan.fd[1] = p->fd;
		r = tar_child_start(p->s, &plan, on_packed, p, &p->child, &why);
	}
	if (r < 0)
		finish(p, NULL, &why);
}

int layer_pack(struct service *s, const struct who *who, struct compare_request *w, layer_pack_fn *fn, void *arg,
	       struct layer_pack **ret, struct err *e)
{
	struct layer_pack *p = calloc(1, sizeof(*p));
	int r;

	if (!p)
		abort();
	*p = (struct layer_pack){ .s = s, .who = *who, .fn = fn, .arg = arg };
	w->flags |= DIFF_DATA;
	r = p->fd = image_spool(s, e);
	if (r >= 0)
		r = compare_open(s, w, on_changes, p, e);
	if (r < 0) {
		fd_close(p->fd);
		free(p);
		return r;
	}
	*ret = p;
	return 0;
}

void layer_pack_cancel(struct layer_pack *p)
{
	p->fn = NULL;
	if (p->child)
		tar_child_kill(p->child);
}
