/* A worker's frames, and which operation serves which. */
#include "agent/files/worker.h"
#include "base/base.h"
#include "base/sys.h"

#include <unistd.h>

/* ---- frames ------------------------------------------------------------------------------------------------------ */

static int recv_exact(uint8_t *to, size_t len)
{
	while (len) {
		ssize_t n = sys_read(WORKER_SOCK, to, len);

		if (n == -EINTR)
			continue;
		if (n <= 0)
			return -EPIPE;
		to += n;
		len -= (size_t)n;
	}
	return 0;
}

int worker_recv(struct worker *w, struct file_frame *ret)
{
	uint32_t len;
	long n;

	if (w->gone)
		return 0;
	w->gone = true;
	if (recv_exact(w->in, FILE_HEAD) < 0)
		return 0;
	n = file_decode(FILE_FROM_HOST, w->in, FILE_HEAD, ret);
	if (n == 0) {
		memcpy(&len, w->in + 8, sizeof(len)); /* checked: not beyond what a frame may have */
		if (recv_exact(w->in + FILE_HEAD, len) < 0)
			return 0;
		n = file_decode(FILE_FROM_HOST, w->in, FILE_HEAD + len, ret);
	}
	w->gone = n <= 0;
	return !w->gone;
}

int worker_send(struct worker *w, enum file_type type, unsigned flags, size_t len)
{
	if (w->gone)
		return -EPIPE;
	file_head(w->out, type, flags, w->tag, (uint32_t)len);
	if (fd_send(WORKER_SOCK, w->out, FILE_HEAD + len, NULL, 0) < 0)
		w->gone = true;
	return w->gone ? -EPIPE : 0;
}

struct timespec worker_time(int64_t ns)
{
	int64_t rest = ns % 1000000000;

	return (struct timespec){ .tv_sec = ns / 1000000000 - (rest < 0),
				  .tv_nsec = rest < 0 ? rest + 1000000000 : rest };
}

int worker_entry(struct worker *w, const char *path, const struct stat *st, const char *target, int errnum)
{
	struct file_entry x = {
		.mode = st->st_mode,
		.uid = st->st_uid,
		.gid = st->st_gid,
		.nlink = (uint32_t)st->st_nlink,
		.errnum = (uint32_t)errnum,
		.size = st->st_size < 0 ? 0 : (uint64_t)st->st_size,
		.dev = st->st_dev,
		.ino = st->st_ino,
		.mtime = (int64_t)((uint64_t)st->st_mtim.tv_sec * 1000000000U + (uint64_t)st->st_mtim.tv_nsec),
		.path = path,
		.target = target,
	};
	long n = file_entry_encode(&x, w->out + FILE_HEAD, FILE_SMALL_MAX);

	return n < 0 ? (int)n : worker_send(w, FILE_ENTRY, 0, (size_t)n);
}

int worker_entry_at(struct worker *w, const char *path, int dir, const char *name)
{
	char target[FILE_PATH_MAX] = "";
	struct stat st;
	ssize_t n;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW | (*name ? 0 : AT_EMPTY_PATH)) < 0)
		return -errno;
	if (S_ISLNK(st.st_mode)) {
		n = readlinkat(dir, name, target, sizeof(target) - 1);
		target[n < 0 ? 0 : n] = '\0';
	}
	return worker_entry(w, path, &st, target, 0);
}

static void end(struct worker *w, int r)
{
	struct file_end x = { .errnum = (uint32_t)-r, .step = r ? w->step : FILE_STEP_NONE, .count = w->count };
	long n = file_end_encode(&x, w->out + FILE_HEAD, FILE_SMALL_MAX);

	worker_send(w, FILE_END, w->end_flags, (size_t)n);
}

void worker_fail(struct worker *w, int r)
{
	end(w, r);
}

/* ---- operations -------------------------------------------------------------------------------------------------- */

/* clang-format off */
static int (*const operations[])(struct worker *w, const struct file_request *q) = {
	[FILE_STAT] = files_stat,     [FILE_READ] = files_read,	      [FILE_WRITE] = files_write,
	[FILE_LIST] = files_list,     [FILE_MKDIR] = files_mkdir,     [FILE_MOVE] = files_move,
	[FILE_REMOVE] = files_remove, [FILE_SYMLINK] = files_symlink, [FILE_LINK] = files_link,
	[FILE_ATTR] = files_attr,     [FILE_WATCH] = files_watch,
	[FILE_FIFO] = files_fifo,
};
/* clang-format on */

void worker_serve(struct worker *w)
{
	struct file_request q;
	struct file_dress x;
	struct file_frame f;

	while (worker_recv(w, &f)) {
		int r;

		if (f.type == FILE_DRESS ? file_dress_decode(&f, &x) < 0 :
					   f.type >= ARRAY_LEN(operations) || file_request_decode(&f, &q) < 0)
			return; /* not our host */
		w->tag = f.tag;
		w->flags = f.flags;
		w->step = FILE_STEP_PROTOCOL;
		w->end_flags = 0;
		w->count = 0;
		r = f.type == FILE_DRESS ? files_dress(w, &x) : operations[f.type](w, &q);
		if (r != WORKER_TOLD)
			end(w, r);
	}
}
