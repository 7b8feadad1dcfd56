/* Writes a folder as tar, and unpacks one. */
#include "client/tree.h"
#include "base/base.h"
#include "base/buf.h"
#include "client/show.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <fts.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- reading ---- */

struct tree_reader {
	struct archive *disk, *tar;
	struct archive_entry *entry;
	char *path, *prefix;
	struct buf out; /* tar bytes that were not sent yet */
	size_t taken;
	int64_t left; /* of the file that is open */
	int fd;
	bool ended;
	tree_pick_fn *pick; /* NULL: everything is taken */
	void *pick_arg;
	struct err err;
};

static la_ssize_t on_tar(struct archive *a, void *arg, const void *data, size_t len)
{
	struct tree_reader *t = arg;

	if (buf_add(&t->out, data, len) < 0) {
		archive_set_error(a, ENOMEM, "no memory");
		return -1;
	}
	return (la_ssize_t)len;
}

int tree_read_open(const char *path, const char *prefix, struct tree_reader **ret, struct err *e)
{
	AUTO(tree_read_free) struct tree_reader *t = calloc(1, sizeof(*t));

	if (!t)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory");
	t->fd = -1;
	t->out.max = 4 * MIB;
	t->path = strdup(path);
	t->prefix = strdup(prefix);
	t->disk = archive_read_disk_new();
	t->tar = archive_write_new();
	t->entry = archive_entry_new();
	if (!t->path || !t->prefix || !t->disk || !t->tar || !t->entry)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory");
	/* "dir/" and "dir" are the same; the length decides where names below begin. */
	for (size_t n = strlen(t->path); n > 1 && t->path[n - 1] == '/'; n--)
		t->path[n - 1] = '\0';
	archive_read_disk_set_symlink_physical(t->disk);
	archive_read_disk_set_behavior(t->disk, ARCHIVE_READDISK_NO_XATTR | ARCHIVE_READDISK_NO_ACL |
							ARCHIVE_READDISK_NO_FFLAGS);
	archive_write_set_format_pax_restricted(t->tar);
	archive_write_set_bytes_per_block(t->tar, 0);
	if (archive_write_open(t->tar, t, NULL, on_tar, NULL) != ARCHIVE_OK)
		return err_set(e, ERR_INTERNAL, -EIO, "tar: %s", archive_error_string(t->tar));
	if (archive_read_disk_open(t->disk, t->path) != ARCHIVE_OK)
		return err_set(e, ERR_NOT_FOUND, -ENOENT, "%.100s: %.100s", t->path, archive_error_string(t->disk));
	*ret = TAKE_PTR(t);
	return 0;
}

void tree_read_free(struct tree_reader *t)
{
	if (!t)
		return;
	archive_entry_free(t->entry);
	archive_read_free(t->disk);
	/* Free before the buffer: closing writes the end of the tar. */
	archive_write_free(t->tar);
	fd_close(t->fd);
	buf_done(&t->out);
	free(t->path);
	free(t->prefix);
	free(t);
}

/* The name within the stream, or NULL for the top folder when it has none. */
static char *name_for(const struct tree_reader *t, const char *found)
{
	const char *below = found + strlen(t->path);
	AUTO(buf_done) struct buf b = BUF_INIT(64 * KIB);

	while (*below == '/')
		below++;
	if (!*below && !t->prefix[0])
		return NULL;
	if (buf_adds(&b, t->prefix) < 0 || (t->prefix[0] && *below && buf_addc(&b, '/') < 0) || buf_adds(&b, below) < 0)
		return NULL;
	return buf_take(&b);
}

static int open_file(struct tree_reader *t, const char *path)
{
	struct stat st;

	t->left = archive_entry_size(t->entry);
	if (!t->left)
		return 0;
	/* The tree is the user's own, but may change under us: no link is followed, and a FIFO does not hold us. */
	t->fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (t->fd < 0 || fstat(t->fd, &st) < 0)
		return err_sys(&t->err, ERR_DENIED, -errno, "%.150s", path);
	return S_ISREG(st.st_mode) ? 0 : err_set(&t->err, ERR_INVALID, -EINVAL, "%.150s is no longer a file", path);
}

static int next_entry(struct tree_reader *t)
{
	AUTO_FREE char *name = NULL, *path = NULL;
	enum tree_pick what;
	int r;

	archive_entry_clear(t->entry);
	r = archive_read_next_header2(t->disk, t->entry);
	if (r == ARCHIVE_EOF) {
		t->ended = true;
		return archive_write_close(t->tar) == ARCHIVE_OK ?
			       0 :
			       err_set(&t->err, ERR_INTERNAL, -EIO, "tar: %s", archive_error_string(t->tar));
	}
	if (r < ARCHIVE_WARN)
		return err_set(&t->err, ERR_DENIED, -EIO, "%.200s", archive_error_string(t->disk));
	path = strdup(archive_entry_sourcepath(t->entry) ? archive_entry_sourcepath(t->entry) :
							   archive_entry_pathname(t->entry));
	name = path ? name_for(t, path) : NULL;
	what = name && *path && t->pick ? t->pick(t->pick_arg, name, archive_entry_filetype(t->entry) == AE_IFDIR) :
					  TREE_TAKE;
	if (what != TREE_SKIP)
		archive_read_disk_descend(t->disk);
	if (!name || what != TREE_TAKE)
		return 0;
	if (archive_entry_filetype(t->entry) != AE_IFREG && archive_entry_filetype(t->entry) != AE_IFDIR &&
	    archive_entry_filetype(t->entry) != AE_IFLNK)
		return 0; /* sockets, FIFOs and devices mean nothing elsewhere */
	archive_entry_set_pathname(t->entry, name);
	/* Hard links become separate files, and the sandbox decides on the owner inside. */
	archive_entry_set_hardlink(t->entry, NULL);
	archive_entry_set_nlink(t->entry, 1);
	archive_entry_set_uid(t->entry, 0);
	archive_entry_set_gid(t->entry, 0);
	archive_entry_set_uname(t->entry, NULL);
	archive_entry_set_gname(t->entry, NULL);
	archive_entry_set_perm(t->entry, archive_entry_perm(t->entry) & (t->pick ? 07777 : 0777));
	if (archive_entry_filetype(t->entry) != AE_IFREG)
		archive_entry_set_size(t->entry, 0);
	else if ((r = open_file(t, path)) < 0)
		return r;
	if (archive_write_header(t->tar, t->entry) < ARCHIVE_WARN)
		return err_set(&t->err, ERR_INTERNAL, -EIO, "tar: %.150s: %s", path, archive_error_string(t->tar));
	if (archive_entry_filetype(t->entry) != AE_IFREG)
		t->left = 0;
	return 0;
}

static int next_piece(struct tree_reader *t)
{
	char data[64 * KIB];
	size_t want = t->left < (int64_t)sizeof(data) ? (size_t)t->left : sizeof(data);
	ssize_t n = read(t->fd, data, want);

	if (n < 0 && errno == EINTR)
		return 0;
	/* Its length is promised already. */
	if (n <= 0)
		return err_set(&t->err, ERR_CONFLICT, -EIO, "%.150s became shorter while it was being read",
			       archive_entry_pathname(t->entry));
	if (archive_write_data(t->tar, data, (size_t)n) < 0)
		return err_set(&t->err, ERR_INTERNAL, -EIO, "tar: %s", archive_error_string(t->tar));
	t->left -= n;
	if (!t->left) {
		fd_close(t->fd);
		t->fd = -1;
	}
	return 0;
}

ssize_t tree_read(struct tree_reader *t, char *buf, size_t len)
{
	size_t n;

	while (t->taken == t->out.len && !t->ended) {
		int r;

		buf_clear(&t->out);
		t->taken = 0;
		r = t->left ? next_piece(t) : next_entry(t);
		if (r < 0)
			return r;
	}
	n = t->out.len - t->taken < len ? t->out.len - t->taken : len;
	memcpy(buf, buf_str(&t->out) + t->taken, n);
	t->taken += n;
	return (ssize_t)n;
}

void tree_read_exactly(struct tree_reader *t, tree_pick_fn *pick, void *arg)
{
	t->pick = pick;
	t->pick_arg = arg;
}

int tree_measure(const char *path, tree_pick_fn *pick, void *arg, uint64_t *ret_bytes, struct err *e)
{
	AUTO_FREE char *top = strdup(path);
	char *argv[] = { top, NULL };
	FTS *f = top ? fts_open(argv, FTS_PHYSICAL | FTS_NOCHDIR, NULL) : NULL;
	size_t skip = strlen(path);
	uint64_t bytes = 0;
	FTSENT *x;

	if (!f)
		return err_sys(e, ERR_INVALID, -errno, "%.150s", path);
	while ((x = fts_read(f))) {
		const char *name = x->fts_path + (skip < x->fts_pathlen ? skip : x->fts_pathlen);
		enum tree_pick what;

		while (*name == '/')
			name++;
		if (x->fts_info == FTS_DP || !*name)
			continue;
		what = pick(arg, name, x->fts_info == FTS_D);
		if (what == TREE_SKIP && x->fts_info == FTS_D)
			fts_set(f, x, FTS_SKIP);
		if (what == TREE_TAKE && x->fts_info == FTS_F)
			bytes += (uint64_t)x->fts_statp->st_size;
	}
	fts_close(f);
	*ret_bytes = bytes;
	return 0;
}

const struct err *tree_read_error(const struct tree_reader *t)
{
	return t->err.msg[0] ? &t->err : NULL;
}

/* ---- writing ---- */

struct unpack {
	ssize_t (*source)(void *arg, const void **ret_data);
	void *arg;
};

static la_ssize_t on_read(struct archive *a, void *arg, const void **ret_data)
{
	struct unpack *u = arg;
	ssize_t n = u->source(u->arg, ret_data);

	if (n < 0)
		archive_set_error(a, (int)-n, "the stream ended early");
	return n;
}

static bool has_dotdot(const char *name)
{
	while (*name) {
		size_t n = strcspn(name, "/");

		if (n == 2 && name[0] == '.' && name[1] == '.')
			return true;
		name += n;
		name += strspn(name, "/");
	}
	return false;
}

/* Why an entry is not to be unpacked, or NULL. libarchive refuses most of it as well: two locks on this door. */
static const char *unwanted(struct archive_entry *entry)
{
	const char *name = archive_entry_pathname(entry), *link = archive_entry_hardlink(entry);

	if (!name || !*name)
		return "it has no name";
	if (name[0] == '/' || has_dotdot(name))
		return "its name points outside the folder";
	if (link)
		return link[0] == '/' || has_dotdot(link) ? "it links to a file outside the folder" : NULL;
	if (archive_entry_filetype(entry) != AE_IFREG && archive_entry_filetype(entry) != AE_IFDIR &&
	    archive_entry_filetype(entry) != AE_IFLNK)
		return "it is neither a file nor a folder nor a link";
	return NULL;
}

static int copy_data(struct archive *from, struct archive *to, struct tree_stats *s, struct err *e)
{
	for (;;) {
		const void *data;
		la_int64_t offset;
		size_t len;
		int r = archive_read_data_block(from, &data, &len, &offset);

		if (r == ARCHIVE_EOF)
			return 0;
		if (r < ARCHIVE_WARN)
			return err_set(e, ERR_LOST, -EIO, "tar: %s", archive_error_string(from));
		if (archive_write_data_block(to, data, len, offset) < ARCHIVE_WARN)
			return err_set(e, ERR_EXHAUSTED, -EIO, "%s", archive_error_string(to));
		s->bytes += len;
	}
}

static int unpack_one(struct archive *from, struct archive *to, struct archive_entry *entry, struct tree_stats *s,
		      struct err *e)
{
	const char *name = archive_entry_pathname(entry), *why = unwanted(entry);
	int r;

	if (!why && (!strcmp(name, ".") || !strcmp(name, "./")))
		return 0; /* the destination itself: it has the mode its owner gave it */
	if (!why) {
		/* The local user owns the file; a set-id bit from a sandbox is dropped. */
		archive_entry_set_perm(entry, archive_entry_perm(entry) & 0777);
		if (archive_write_header(to, entry) < ARCHIVE_WARN)
			why = archive_error_string(to);
	}
	if (why) {
		s->skipped++;
		show_warn("skipped %s: %s", name ? name : "?", why);
		return 0;
	}
	s->files++;
	r = archive_entry_size(entry) > 0 ? copy_data(from, to, s, e) : 0;
	if (r == 0 && archive_write_finish_entry(to) < ARCHIVE_WARN)
		r = err_set(e, ERR_EXHAUSTED, -EIO, "%s", archive_error_string(to));
	return r < 0 ? err_wrap(e, r, "%.100s", name) : 0;
}

static int unpack_here(struct unpack *u, struct tree_stats *s, struct err *e)
{
	struct archive *from = archive_read_new(), *to = archive_write_disk_new();
	struct archive_entry *entry;
	int r = 0;

	if (!from || !to) {
		archive_read_free(from);
		archive_write_free(to);
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory");
	}
	archive_read_support_format_tar(from);
	archive_write_disk_set_options(to, ARCHIVE_EXTRACT_TIME | ARCHIVE_EXTRACT_PERM |
						   ARCHIVE_EXTRACT_SECURE_NODOTDOT | ARCHIVE_EXTRACT_SECURE_SYMLINKS |
						   ARCHIVE_EXTRACT_SECURE_NOABSOLUTEPATHS);
	if (archive_read_open(from, u, NULL, on_read, NULL) != ARCHIVE_OK)
		r = err_set(e, ERR_LOST, -EIO, "%s", archive_error_string(from));
	while (r == 0) {
		int got = archive_read_next_header(from, &entry);

		if (got == ARCHIVE_EOF)
			break;
		if (got < ARCHIVE_WARN)
			r = err_set(e, ERR_LOST, -EIO, "tar: %s", archive_error_string(from));
		else
			r = unpack_one(from, to, entry, s, e);
	}
	archive_read_free(from);
	/* Folders get their modes and times at the very end. */
	if (archive_write_free(to) < ARCHIVE_WARN && r == 0)
		r = err_set(e, ERR_INTERNAL, -EIO, "set the modes of folders");
	return r;
}

int tree_unpack(const char *path, ssize_t (*source)(void *arg, const void **ret_data), void *arg,
		struct tree_stats *ret, struct err *e)
{
	AUTO_CLOSE int back = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct unpack u = { .source = source, .arg = arg };
	int r;

	*ret = (struct tree_stats){ 0 };
	/* Only relative names are let through, so they must be relative to the destination. */
	if (chdir(path) < 0)
		return err_sys(e, ERR_NOT_FOUND, -errno, "%.150s", path);
	r = unpack_here(&u, ret, e);
	if (back >= 0 && fchdir(back) < 0 && r == 0)
		r = err_sys(e, ERR_INTERNAL, -errno, "return to the working folder");
	return r;
}
