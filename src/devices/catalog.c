/* Loads files of CDI, finds devices in them. */
#include "devices/catalog.h"
#include "base/base.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* What others can write is not the administrator's. */
static int check_owner(int fd, const struct catalog_opts *o, bool folder, struct err *e)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return err_sys(e, ERR_INTERNAL, -errno, "stat");
	if (!(folder ? S_ISDIR(st.st_mode) : S_ISREG(st.st_mode)))
		return err_set(e, ERR_INVALID, -EINVAL, folder ? "not a folder" : "not a regular file");
	if ((o->any_owner || st.st_uid == 0 || st.st_uid == o->owner) && !(st.st_mode & 022))
		return 0;
	err_set(e, ERR_DENIED, -EACCES, "others than its owner, who must be root, could change it");
	err_remedy(e, "chown root:root and chmod go-w, then try again");
	return -EACCES;
}

static int read_file(int dir, const char *name, const struct catalog_opts *o, struct tree_doc *ret, struct err *e)
{
	AUTO(buf_done) struct buf text = BUF_INIT(TREE_BYTES + 1);
	AUTO_CLOSE int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct tree_doc doc = { 0 };
	ssize_t n = 1;
	int r = fd < 0 ? err_sys(e, WHY_DEVICE_MISSING, -errno, "open") : check_owner(fd, o, false, e);

	while (r == 0 && n > 0 && text.len <= TREE_BYTES) {
		char *room = buf_room(&text, TREE_BYTES + 1 - text.len < 65536 ? TREE_BYTES + 1 - text.len : 65536);

		n = room ? read(fd, room, TREE_BYTES + 1 - text.len < 65536 ? TREE_BYTES + 1 - text.len : 65536) : -1;
		if (n < 0)
			return err_sys(e, ERR_INTERNAL, room ? -errno : -ENOMEM, "read");
		buf_added(&text, (size_t)n);
	}
	if (r == 0)
		r = tree_parse(buf_str(&text), text.len, &doc, e);
	if (r == 0)
		r = cdi_check(doc.root, e);
	if (r < 0)
		tree_done(&doc);
	else
		*ret = doc;
	return r;
}

static bool is_file_of_ours(const char *name)
{
	const char *dot = strrchr(name, '.');

	return dot && dot != name && (!strcmp(dot, ".json") || !strcmp(dot, ".yaml"));
}

static int load_folder(const struct catalog_opts *o, unsigned k, struct catalog *c, struct err *e)
{
	AUTO_CLOSE int fd = open(o->folder[k], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct dirent **names = NULL;
	int n, r = fd < 0 ? -errno : check_owner(fd, o, true, e);

	if (r == -ENOENT && fd < 0)
		return 0;
	if (r < 0)
		return fd < 0 ? err_sys(e, ERR_INTERNAL, r, "%s", o->folder[k]) : err_wrap(e, r, "%s", o->folder[k]);
	n = scandirat(fd, ".", &names, NULL, alphasort);
	for (int i = 0; i < n; i++) {
		struct catalog_file *f = &c->file[c->n];

		if (r == 0 && is_file_of_ours(names[i]->d_name)) {
			if (c->n == CATALOG_FILES) {
				r = err_set(e, ERR_TOO_LARGE, -E2BIG, "%s: more than %d files", o->folder[k],
					    CATALOG_FILES);
			} else {
				snprintf(f->path, sizeof(f->path), "%s/%s", o->folder[k], names[i]->d_name);
				f->priority = (int)k;
				(void)read_file(fd, names[i]->d_name, o, &f->doc, &f->e);
				c->n++;
			}
		}
		free(names[i]);
	}
	free(names);
	return r;
}

const char *catalog_kind(const struct catalog_file *f)
{
	const struct tree *kind = f->doc.root ? cdi_field(f->doc.root, "kind") : NULL;

	return kind ? kind->text : "";
}

static bool has_kind(const struct catalog *c, const char *kind)
{
	for (unsigned i = 0; i < c->n; i++)
		if (!strcmp(catalog_kind(&c->file[i]), kind))
			return true;
	return false;
}

static int add_found(struct catalog *c, const char *kind, const char *root,
		     int (*describe)(const char *root, struct buf *ret), struct err *e)
{
	AUTO(buf_done) struct buf text = BUF_INIT(TREE_BYTES);
	struct catalog_file *f = &c->file[c->n];
	int r;

	if (has_kind(c, kind) || c->n == CATALOG_FILES)
		return 0;
	r = describe(root, &text);
	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "look for devices of %s", kind);
	if (!text.len)
		return 0;
	snprintf(f->path, sizeof(f->path), "found on this machine");
	f->priority = CATALOG_FOUND;
	r = tree_parse(buf_str(&text), text.len, &f->doc, &f->e);
	if (r == 0)
		(void)cdi_check(f->doc.root, &f->e);
	if (f->e.msg[0])
		tree_done(&f->doc);
	c->n++;
	return 0;
}

int catalog_load(const struct catalog_opts *o, struct catalog *ret, struct err *e)
{
	int r = 0;

	memset(ret, 0, sizeof(*ret));
	for (unsigned k = 0; r == 0 && k < o->folders; k++)
		r = load_folder(o, k, ret, e);
	if (r == 0)
		r = add_found(ret, "nvidia.com/gpu", o->root, gpu_describe_nvidia, e);
	if (r == 0)
		r = add_found(ret, "amd.com/gpu", o->root, gpu_describe_amd, e);
	if (r < 0)
		catalog_done(ret);
	return r;
}

void catalog_done(struct catalog *c)
{
	for (unsigned i = 0; i < c->n; i++)
		tree_done(&c->file[i].doc);
	c->n = 0;
}

static const struct tree *device_of(const struct catalog_file *f, const char *name)
{
	const struct tree *list = f->doc.root ? cdi_field(f->doc.root, "devices") : NULL;

	for (const struct tree *d = list ? list->child : NULL; d; d = d->next)
		if (!strcmp(cdi_field(d, "name")->text, name))
			return d;
	return NULL;
}

static int none(const struct catalog *c, const char *name, struct err *e)
{
	err_set(e, WHY_DEVICE_MISSING, -ENOENT, "device '%.90s': this machine has none of that name", name);
	for (unsigned i = 0; i < c->n; i++)
		if (c->file[i].e.msg[0])
			err_remedy(e, "%.60s cannot be used: %.100s", c->file[i].path, c->file[i].e.msg);
	err_remedy(e, "`cloche doctor` lists those that there are");
	return -ENOENT;
}

int catalog_find(const struct catalog *c, const char *name, struct catalog_found *ret, struct err *e)
{
	const struct catalog_file *other = NULL;
	struct catalog_found best = { 0 };
	char kind[DEVICE_KIND_MAX];
	size_t n;
	int r = cdi_check_name(name, &n, e);

	if (r < 0)
		return r;
	if (n >= sizeof(kind))
		return none(c, name, e);
	memcpy(kind, name, n);
	kind[n] = '\0';
	for (unsigned i = 0; i < c->n; i++) {
		const struct catalog_file *f = &c->file[i];
		const struct tree *d = strcmp(catalog_kind(f), kind) ? NULL : device_of(f, name + n + 1);

		if (!d || (best.file && f->priority < best.file->priority))
			continue;
		other = best.file && f->priority == best.file->priority ? best.file : NULL;
		best = (struct catalog_found){ f, d };
	}
	if (!best.file)
		return none(c, name, e);
	if (other) {
		err_set(e, WHY_DEVICE_UNUSABLE, -EEXIST, "device '%.60s': both %.70s and %.70s describe it", name,
			other->path, best.file->path);
		err_remedy(e, "remove one of the files");
		return -EEXIST;
	}
	*ret = best;
	return 0;
}

int catalog_each(const struct catalog *c, int (*fn)(void *arg, const char *kind, const struct catalog_found *f),
		 void *arg)
{
	int r = 0;

	for (unsigned i = 0; i < c->n; i++) {
		const struct catalog_file *f = &c->file[i];
		const struct tree *list = f->doc.root ? cdi_field(f->doc.root, "devices") : NULL;

		for (const struct tree *d = list ? list->child : NULL; r == 0 && d; d = d->next) {
			struct catalog_found found, this = { f, d };
			char name[1024];

			snprintf(name, sizeof(name), "%s=%s", catalog_kind(f), cdi_field(d, "name")->text);
			/* What another folder's file replaces is that file's. */
			if (catalog_find(c, name, &found, NULL) < 0 || found.file == f)
				r = fn(arg, catalog_kind(f), &this);
		}
	}
	return r;
}
