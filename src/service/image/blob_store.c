/* Stores blobs in files, and removes old ones. */
#include "service/image/blob_store.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/str.h"
#include "service/access/struct.h"
#include "service/image/book.h"
#include "service/image/usage.h"
#include "service/struct.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOLDER "blobs"
#define PART ".part"
#define DIGITS 64U
#define KEPT_NS (24ULL * 3600 * 1000000000)

/* A complete blob. In a map, by its file's name. */
struct kept {
	struct tenant *tenant;
	uint64_t size, since_ns; /* wall clock */
	unsigned users;
	char name[BLOB_PART]; /* of its file */
};

/* "blobs/<64 digits>.<tenant's number>" */
static void name_of(const struct tenant *t, const struct oci_descriptor *d, char name[BLOB_PART])
{
	snprintf(name, BLOB_PART, FOLDER "/%s.%llu", d->digest + strlen(OCI_DIGEST_PREFIX),
		 (unsigned long long)t->number);
}

static int path_of(const struct service *s, const char *name, char path[4096])
{
	return (size_t)snprintf(path, 4096, "%s/%s", s->o.data, name) < 4096 ? 0 : -ENAMETOOLONG;
}

static void remove_file(const struct service *s, const char *name)
{
	char path[4096];

	if (*name && path_of(s, name, path) == 0)
		unlink(path);
}

static struct kept *kept_of(const struct service *s, const struct tenant *t, const struct oci_descriptor *d)
{
	char name[BLOB_PART];

	name_of(t, d, name);
	return map_get(&s->images->blobs, name);
}

static void note(struct service *s, const struct kept *from)
{
	struct kept *k = malloc(sizeof(*k));

	if (!k || map_put(&s->images->blobs, from->name, k) < 0)
		abort(); /* some hundred bytes */
	*k = *from;
}

/* Its file has gone. */
static void forget(struct service *s, struct kept *k)
{
	image_bytes_give(k->tenant, k->size);
	map_del(&s->images->blobs, k->name);
	free(k);
}

static struct tenant *tenant_numbered(struct service *s, uint64_t number)
{
	struct tenant *t = tenant_first(s->access);

	while (t && t->number != number)
		t = tenant_next(t);
	return t;
}

/* A file of an earlier process. Returns false when it is of no use. */
static bool take_over(struct service *s, int folder, const char *name, uint64_t now_ns)
{
	struct kept k = { 0 };
	struct stat st;
	uint64_t number;

	if (strlen(name) <= DIGITS + 1 || strlen(name) > DIGITS + 24 || name[DIGITS] != '.' ||
	    parse_u64(name + DIGITS + 1, &number, NULL) < 0 || fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
	    !S_ISREG(st.st_mode))
		return false;
	k.tenant = tenant_numbered(s, number);
	k.size = (uint64_t)st.st_size;
	k.since_ns = (uint64_t)st.st_mtim.tv_sec * 1000000000ULL;
	snprintf(k.name, sizeof(k.name), FOLDER "/%s", name);
	if (!k.tenant || k.since_ns + KEPT_NS < now_ns)
		return false;
	tenant_force(k.tenant, &(struct tenant_quota){ .image_bytes = k.size });
	note(s, &k);
	return true;
}

int blob_store_start(struct service *s, struct err *e)
{
	const uint64_t now_ns = clock_real_ns();
	const struct dirent *d;
	char path[4096];
	DIR *folder;

	if (path_of(s, FOLDER, path) < 0 || (mkdir(path, 0700) < 0 && errno != EEXIST))
		return err_sys(e, ERR_INTERNAL, -errno, "make the folder '" FOLDER "' of the data folder");
	folder = opendir(path);
	while (folder && (d = readdir(folder)))
		if (d->d_name[0] != '.' && !take_over(s, dirfd(folder), d->d_name, now_ns))
			unlinkat(dirfd(folder), d->d_name, 0);
	if (folder)
		closedir(folder);
	return 0;
}

void blob_store_sweep(struct service *s, uint64_t now_ns)
{
	struct kept *k;
	size_t at = 0;

	while ((k = map_next(&s->images->blobs, &at)))
		if (!k->users && k->since_ns + KEPT_NS < now_ns) {
			remove_file(s, k->name);
			forget(s, k);
		}
}

uint64_t blob_store_forget(struct service *s, struct tenant *t)
{
	uint64_t bytes = 0;
	struct kept *k;
	size_t at = 0;

	while ((k = map_next(&s->images->blobs, &at)))
		if (k->tenant == t && !k->users) {
			bytes += k->size;
			remove_file(s, k->name);
			forget(s, k);
		}
	return bytes;
}

bool blob_store_has(const struct service *s, const struct tenant *t, const struct oci_descriptor *d)
{
	return kept_of(s, t, d) != NULL;
}

int blob_store_open(struct service *s, struct tenant *t, const struct oci_descriptor *d)
{
	struct kept *k = kept_of(s, t, d);
	AUTO_CLOSE int fd = -1;
	char path[4096];
	struct stat st;

	if (!k)
		return -ENOENT;
	if (path_of(s, k->name, path) < 0)
		return -ENAMETOOLONG;
	fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != d->size)
		return -ENOENT;
	k->users++;
	return TAKE_FD(fd);
}

int blob_store_new(struct service *s, struct tenant *t, const struct oci_descriptor *d, char part[BLOB_PART],
		   struct err *e)
{
	char name[BLOB_PART], path[4096], id[ID_SIZE];
	int r, fd;

	r = image_bytes_take_in(s, t, d->size, e);
	if (r < 0)
		return r;
	name_of(t, d, name);
	r = id_new(id, sizeof(id));
	snprintf(part, BLOB_PART, "%.100s.%s" PART, name, id);
	if (r == 0)
		r = path_of(s, part, path);
	fd = r < 0 ? r : open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd >= 0)
		return fd;
	image_bytes_give(t, d->size);
	return err_sys(e, ERR_EXHAUSTED, r < 0 ? r : -errno, "make a file for a layer");
}

int blob_store_keep(struct service *s, struct tenant *t, const struct oci_descriptor *d, const char *part,
		    struct err *e)
{
	struct kept k = { .tenant = t, .size = d->size, .since_ns = clock_real_ns(), .users = 1 },
		    *old = kept_of(s, t, d);
	char from[4096], to[4096];

	name_of(t, d, k.name);
	if (path_of(s, part, from) < 0 || path_of(s, k.name, to) < 0 || rename(from, to) < 0)
		return err_sys(e, ERR_INTERNAL, -errno, "keep the file of a layer");
	if (old) { /* two pulls fetched the same at once, and the file is replaced */
		image_bytes_give(t, old->size);
		old->size = d->size; /* manifests can differ in what they say of it */
		old->users++;
	} else {
		note(s, &k);
	}
	return 0;
}

void blob_store_drop(struct service *s, struct tenant *t, const struct oci_descriptor *d, const char *part)
{
	remove_file(s, part);
	image_bytes_give(t, d->size);
}

void blob_store_release(struct service *s, struct tenant *t, const struct oci_descriptor *d)
{
	struct kept *k = kept_of(s, t, d);

	if (k && k->users)
		k->users--;
}

void blob_store_remove(struct service *s, struct tenant *t, const struct oci_descriptor *d)
{
	struct kept *k = kept_of(s, t, d);

	if (!k)
		return;
	remove_file(s, k->name);
	forget(s, k);
}
