/* Compares the database with the mark in the data folder. */
#include "daemon/state_check.h"
#include "base/base.h"
#include "base/id.h"
#include "base/log.h"
#include "base/sys.h"
#include "engine/blank/record.h"
#include "layers/layers.h"
#include "layers/manifest.h"
#include "store/db.h"
#include "store/note.h"
#include "store/witness.h"

#include <dirent.h>
#include <sys/wait.h>
#include <unistd.h>

#define STATE_DB "state.db"
#define UNFINISHED "unfinished" /* in the quarantine */

/*
 * Names of a database's files, in the order in which they are moved. Pending rows ("late") are still good, unless they
 * belong to another database: then they are moved first, so that an interrupted move can be continued without them. The
 * log is moved before the database: a database without its log is recognized as old, but a log without a database would
 * be removed.
 */
static const char *const names[] = { STATE_DB "-late", STATE_DB "-wal", STATE_DB "-shm", STATE_DB, WITNESS_FILE };

struct verdict {
	int r;
	struct err e;
};

struct beside {
	unsigned layers, notes, live;
};

/* --- what is there --- */

static unsigned count_names(int dirfd, const char *path, bool (*is)(const char *name))
{
	int fd = sys_openat(dirfd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *x;
	unsigned n = 0;

	if (!dir) {
		if (fd >= 0)
			fd_close(fd);
		return 0;
	}
	while ((x = readdir(dir)))
		n += is(x->d_name);
	closedir(dir);
	return n;
}

static bool is_note(const char *name)
{
	return !strncmp(name, "boxes-", 6) || !strncmp(name, "checkpoints-", 12);
}

/* Sandboxes that run, by the warden's records: it is not started yet. */
static unsigned count_live(const char *state)
{
	char path[128], boot[40] = "";
	AUTO_CLOSE int fd = -1;
	struct record x;
	unsigned n = 0;

	snprintf(path, sizeof(path), "%s/boxes", state);
	fd = sys_openat(AT_FDCWD, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC, 0);
	if (fd < 0 || fd_get(AT_FDCWD, "/proc/sys/kernel/random/boot_id", boot, sizeof(boot)) < 0)
		return 0;
	for (off_t at = 0; pread(fd, &x, sizeof(x), at) == (ssize_t)sizeof(x); at += (off_t)sizeof(x)) {
		uint64_t start;

		n += x.handle && x.pid && x.pid <= INT32_MAX && !memcmp(x.boot, boot, sizeof(boot)) &&
		     record_start((pid_t)x.pid, &start) == 0 && start == x.start;
	}
	return n;
}

static void look_around(const struct places *p, struct beside *ret)
{
	const struct daemon_config *c = &p->config;

	ret->layers =
		c->layers[0] ? count_names(AT_FDCWD, c->layers, id_valid) : count_names(p->data, "layers", id_valid);
	ret->layers += count_names(p->data, "disks", id_valid);
	ret->notes = count_names(p->data, NOTES_FOLDER, is_note);
	ret->live = count_live(p->state);
}

/* --- the look at the database --- */

_Noreturn static void look(const struct places *p, const struct db_opts *o, pid_t parent, int to)
{
	char folder[DAEMON_PATH], path[DAEMON_PATH + 16];
	struct db_opts mine = *o;
	struct verdict v = { 0 };

	if (p->reached)
		snprintf(folder, sizeof(folder), "%s", p->config.data);
	else
		snprintf(folder, sizeof(folder), "/proc/self/fd/%d", p->data);
	snprintf(path, sizeof(path), "%s/" STATE_DB, folder);
	mine.folder = folder;
	umask(077);
	v.r = identity_become(&p->who, parent, &v.e);
	if (v.r == 0)
		v.r = db_check(path, &mine, &v.e);
	_exit(fd_write_all(to, &v, sizeof(v)) == 0 ? 0 : 1);
}

static void plain(char *text, size_t size)
{
	text[size - 1] = '\0';
	for (; *text; text++)
		if (*text < ' ')
			*text = '?';
}

static int ask(const struct places *p, const struct db_opts *o, struct verdict *ret, struct err *e)
{
	AUTO_CLOSE int from = -1;
	pid_t parent = getpid(), pid;
	size_t got = 0;
	ssize_t n = 1;
	int pipe[2], r = sys_pipe2(pipe, O_CLOEXEC);

	if (r < 0)
		return err_sys(e, ERR_EXHAUSTED, r, "make a pipe");
	pid = fork();
	if (pid == 0) {
		fd_close(pipe[0]);
		look(p, o, parent, pipe[1]);
	}
	r = pid < 0 ? -errno : 0;
	fd_close(pipe[1]);
	from = pipe[0];
	if (r < 0)
		return err_sys(e, ERR_EXHAUSTED, r, "fork");
	while (got < sizeof(*ret) && n > 0) {
		n = sys_read(from, (char *)ret + got, sizeof(*ret) - got);
		got += n > 0 ? (size_t)n : 0;
		n = n == -EINTR ? 1 : n;
	}
	waitpid(pid, NULL, 0);
	if (got != sizeof(*ret)) {
		err_set(e, ERR_CONFLICT, -EBADMSG, "the process that checked the database died");
		ret->r = -EBADMSG;
		ret->e = *e;
	}
	plain(ret->e.msg, sizeof(ret->e.msg));
	plain(ret->e.remedy, sizeof(ret->e.remedy));
	return 0;
}

/* What another start, or a full disk, would explain is left to the API process, which says so itself. */
static bool is_wrong(int r)
{
	return r == -ENODATA || r == -EBADMSG || r == -EXDEV || r == -ESTALE;
}

/* --- the way out --- */

static int move(int data, int to, const char *name, struct err *e)
{
	if (renameat(data, name, to, name) < 0 && errno != ENOENT)
		return err_sys(e, ERR_INTERNAL, -errno, "move '%s' to the quarantine", name);
	return 0;
}

static bool is_there(int dirfd, const char *name)
{
	struct stat st;

	return fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_size;
}

static int sync_folder(int dirfd, struct err *e)
{
	return fsync(dirfd) < 0 ? err_sys(e, ERR_INTERNAL, -errno, "write the quarantine to the disk") : 0;
}

/*
 * The files of one database stay together: they are collected in a folder with a fixed name, which the next start continues with
 * if this one is killed. The folder gets its id when all are in it.
 */
static int move_database(const struct places *p, bool foreign, struct err *e)
{
	char path[DAEMON_PATH + 32], id[ID_SIZE];
	AUTO_CLOSE int top = -1, dir = -1;
	int r;

	snprintf(path, sizeof(path), "%s/" STATE_QUARANTINE, p->config.data);
	top = layers_open_dir(path, e);
	if (top < 0)
		return top;
	r = sys_mkdirat(top, UNFINISHED, 0700);
	if (r == 0 || r == -EEXIST)
		r = dir = sys_openat(top, UNFINISHED, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
	if (r >= 0)
		r = id_new(id, sizeof(id));
	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "make a folder in '%.200s'", path);
	for (size_t i = foreign ? 0 : 1; r == 0 && i < ARRAY_LEN(names); i++)
		r = move(p->data, dir, names[i], e);
	if (r == 0)
		r = sync_folder(dir, e);
	if (r == 0)
		r = sync_folder(p->data, e);
	if (r == 0 && renameat(top, UNFINISHED, top, id) < 0)
		r = err_sys(e, ERR_INTERNAL, -errno, "name a folder in '%.200s'", path);
	if (r == 0)
		r = sync_folder(top, e);
	if (r == 0)
		log_warn("recover: the old database was moved to %s/%s", path, id);
	return r;
}

/* An earlier start was killed while it moved a database. */
static bool is_unfinished(const struct places *p)
{
	AUTO_CLOSE int dir = sys_openat(p->data, STATE_QUARANTINE "/" UNFINISHED,
					O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);

	for (size_t i = 0; dir >= 0 && i < ARRAY_LEN(names); i++)
		if (faccessat(dir, names[i], F_OK, AT_SYMLINK_NOFOLLOW) == 0)
			return true;
	return false;
}

static int put_aside(const struct places *p, bool foreign, struct err *e)
{
	int r = 0;

	if (is_there(p->data, STATE_DB) || is_there(p->data, STATE_DB "-wal"))
		return move_database(p, foreign, e);
	for (size_t i = foreign ? 0 : 1; i < ARRAY_LEN(names); i++) /* nothing is worth keeping */
		if (unlinkat(p->data, names[i], 0) < 0 && errno != ENOENT)
			r = -errno;
	return r < 0 ? err_sys(e, ERR_INTERNAL, r, "remove what is left of the database") : 0;
}

static int start_over(const struct places *p, const struct verdict *v, const struct beside *b, struct err *e)
{
	log_warn("recover: %s", v->e.msg);
	/* Without notes it is the best there is. */
	if (v->r == -ESTALE && !b->notes) {
		if (unlinkat(p->data, WITNESS_FILE, 0) < 0 && errno != ENOENT)
			return err_sys(e, ERR_INTERNAL, -errno, "remove '" WITNESS_FILE "'");
		return 0;
	}
	return put_aside(p, v->r == -EXDEV, e);
}

static int read_manifests(const struct places *p, struct state_found *ret, struct err *e)
{
	const struct daemon_config *c = &p->config;
	int fd = c->layers[0] ? sys_openat(AT_FDCWD, c->layers, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0) :
				sys_openat(p->data, "layers", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *x;
	int r = 0;

	while (r == 0 && dir && (x = readdir(dir))) {
		AUTO_CLOSE int layer =
			id_valid(x->d_name) ?
				sys_openat(fd, x->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0) :
				-1;
		struct manifest m, *more;

		/* An unsettled one belongs to a fork, whose sandboxes need it: it is no checkpoint. */
		if (layer < 0 || manifest_read(layer, x->d_name, &m) < 0 || manifest_unsettled(&m))
			continue;
		more = reallocarray(ret->layers, ret->nlayers + 1, sizeof(*more));
		if (!more) {
			r = err_sys(e, ERR_EXHAUSTED, -ENOMEM, "read the layers");
			break;
		}
		ret->layers = more;
		ret->layers[ret->nlayers++] = m;
	}
	if (dir)
		closedir(dir);
	else if (fd >= 0)
		fd_close(fd);
	return r;
}

int state_check(const struct places *p, bool recover, struct state_found *ret, struct err *e)
{
	struct beside b = { 0 };
	struct verdict v = { 0 };
	struct db_opts o = { 0 };
	int r;

	if (is_unfinished(p)) {
		if (!recover) {
			err_set(e, ERR_CONFLICT, -EBADMSG,
				"data folder '%.80s': a start with --recover was interrupted while it moved the database",
				p->config.data);
			err_remedy(e, "start with --recover again");
			return -EBADMSG;
		}
		r = move_database(p, false, e);
		if (r < 0)
			return r;
	}
	look_around(p, &b);
	o.beside = b.layers || b.notes || b.live;
	r = ask(p, &o, &v, e);
	if (r < 0)
		return r;
	*ret = (struct state_found){ .beside = o.beside };
	if (!is_wrong(v.r)) {
		if (recover && v.r >= 0)
			log_warn("recover: the database is intact: nothing to do");
		return 0;
	}
	if (recover) {
		ret->recover = true;
		r = start_over(p, &v, &b, e);
		return r == 0 && !b.notes && v.r != -ESTALE ? read_manifests(p, ret, e) : r;
	}
	*e = v.e;
	err_wrap(e, v.r, "data folder '%.80s' (%u layers, %u running sandboxes)", p->config.data, b.layers, b.live);
	return v.r;
}
