/* Applies the changes of one sandbox to another. Sockets are left out: they would have no listener. */
#include "tar/tar.h"
#include "base/base.h"

#include <sys/stat.h>

struct apply {
	struct changes c;
	struct maker m;
	struct links *links;
	uint64_t size, at; /* of the file under way */
};

static ssize_t read_content(void *arg, uint8_t *buf, size_t room, struct err *e)
{
	struct apply *a = arg;

	return changes_data(&a->c, a->size, &a->at, buf, room, e);
}

static int apply_one(struct apply *a, const struct change_entry *x, struct err *e)
{
	/* The entry's frame is overwritten when its content is read. */
	char path[CHANGE_PATH_MAX], target[CHANGE_PATH_MAX];
	static uint8_t xattrs[CHANGE_XATTRS_MAX];
	struct thing t = { .path = path, .target = target, .xattrs = xattrs, .read = read_content, .arg = a };
	int r = 0;

	memcpy(path, x->path + 1, strlen(x->path));
	memcpy(target, x->target, strlen(x->target) + 1);
	memcpy(xattrs, x->xattrs, x->xattrs_len);
	if (S_ISSOCK(x->mode)) {
		tar_skip(a->m.r, path, "a socket");
		/* what it took the place of is gone */
		return x->flags & CHANGE_REPLACED ? make_thing(&a->m, &t, e) : 0;
	}
	if (x->what == CHANGE_REMOVED)
		return make_thing(&a->m, &t, e);
	if (x->flags & CHANGE_REPLACED)
		r = make_thing(&a->m, &t, e);
	t.mode = x->mode;
	t.uid = x->uid;
	t.gid = x->gid;
	t.mtime = x->mtime;
	t.xattrs_len = x->xattrs_len;
	if (S_ISREG(x->mode) && x->nlink > 1)
		t.link = links_find(a->links, x->dev, x->ino, path);
	a->size = x->size;
	a->at = 0;
	return r < 0 ? r : make_thing(&a->m, &t, e);
}

int tar_apply(const struct tar_opts *o, struct host *h, struct tar_result *res, struct err *e)
{
	static struct apply a;
	struct change_entry x;
	int r;

	a.c.fd = TAR_STREAM;
	a.m = (struct maker){
		.h = h, .r = res, .max_bytes = o->max_bytes, .max_entries = o->max_entries, .replace = true
	};
	a.links = links_new();
	if (!a.links)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "out of memory");
	while ((r = changes_entry(&a.c, &x, e)) == 1) {
		r = apply_one(&a, &x, e);
		if (r < 0)
			return r;
	}
	return r < 0 ? r : make_finish(&a.m, e);
}
