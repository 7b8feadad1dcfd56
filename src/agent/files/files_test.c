/* The worker's code in a process of ours, where sanitizers see it; run/files_test.c has it in sandboxes. */
#include "agent/files/worker.h"
#include "base/base.h"
#include "base/sys.h"
#include "base/test.h"

#include <sys/wait.h>
#include <unistd.h>

static int sock;
static pid_t pid;
static uint8_t buf[FILE_FRAME_MAX];
static unsigned entries;
static uint64_t bytes;
static char last[FILE_PATH_MAX], dir[] = "/var/tmp/cloche-files-XXXXXX";

static bool begin(void)
{
	int pair[2];

	memcpy(strrchr(dir, '-'), "-XXXXXX", 8);
	if (!mkdtemp(dir) || socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0)
		return false;
	pid = fork();
	if (pid == 0) {
		static uint8_t in[FILE_FRAME_MAX], out[FILE_FRAME_MAX];
		struct worker w = { .in = in, .out = out };

		dup2(pair[1], WORKER_SOCK);
		sys_close_range(WORKER_SOCK + 1, ~0U, 0);
		umask(022);
		w.root = open("/", O_PATH | O_DIRECTORY);
		snprintf(w.cwd, sizeof(w.cwd), "%s", dir);
		worker_serve(&w);
		exit(0); /* with what a sanitizer has to say */
	}
	fd_close(pair[1]);
	sock = pair[0];
	return pid > 0;
}

/* The worker's exit status; anything but 0 is a fault. */
static int finish(void)
{
	int status = -1;

	fd_close(sock);
	waitpid(pid, &status, 0);
	return status;
}

static bool send_frame(enum file_type type, unsigned flags, const void *data, size_t len)
{
	uint8_t head[FILE_HEAD];

	file_head(head, type, flags, 5, (uint32_t)len);
	return fd_write_all(sock, head, sizeof(head)) == 0 && fd_write_all(sock, data, len) == 0;
}

static bool ask(enum file_type type, unsigned flags, const struct file_request *q)
{
	uint8_t payload[FILE_SMALL_MAX];
	long n = file_request_encode(q, payload, sizeof(payload));

	entries = 0;
	bytes = 0;
	return n > 0 && send_frame(type, flags, payload, (size_t)n);
}

/* One frame into buf. */
static bool next(struct file_frame *f)
{
	size_t have = 0;

	for (;;) {
		uint32_t len = 0;
		ssize_t n;

		if (have >= FILE_HEAD)
			memcpy(&len, buf + 8, 4);
		if (have >= FILE_HEAD && file_decode(FILE_FROM_WORKER, buf, have, f) > 0)
			return true;
		if (len > FILE_DATA_MAX)
			return false;
		n = read(sock, buf + have, (have < FILE_HEAD ? FILE_HEAD : FILE_HEAD + len) - have);
		if (n <= 0)
			return false;
		have += (size_t)n;
	}
}

static int answer(void)
{
	struct file_frame f;
	struct file_entry x;
	struct file_end d;

	while (next(&f)) {
		if (f.type == FILE_DATA)
			bytes += f.len;
		if (f.type == FILE_ENTRY && file_entry_decode(&f, &x) == 0) {
			entries++;
			snprintf(last, sizeof(last), "%s", x.path);
		}
		if (f.type == FILE_END)
			return file_end_decode(&f, &d) < 0 ? -EBADMSG : -(int)d.errnum;
	}
	return -EPIPE;
}

static int op(enum file_type type, unsigned flags, const struct file_request *q)
{
	return ask(type, flags, q) ? answer() : -EPIPE;
}

static int put(const char *path, unsigned flags, const char *text)
{
	const struct file_request q = { .path = path, .under = ".", .mode = 0600, .mtime = -1 };

	if (!ask(FILE_WRITE, flags, &q) || !send_frame(FILE_DATA, 0, text, strlen(text)) ||
	    !send_frame(FILE_END, 0, "", 0))
		return -EPIPE;
	return answer();
}

TEST(a_path_is_cut_into_folder_and_name)
{
	static const char *const cases[][3] = {
		{ "/a/b", "/a/", "b" },	  { "a", ".", "a" },  { "a/", ".", "a" },     { "/", "/", "" },
		{ "/a//", "/", "a" },	  { ".", ".", "" },   { "a/..", "a/..", "" }, { "/a/.", "/a/.", "" },
		{ "a/b/c", "a/b/", "c" }, { "///", "/", "" }, { "..", "..", "" },     { "", ".", "" },
	};
	char folder[FILE_PATH_MAX], name[NAME_MAX + 1], longest[FILE_PATH_MAX];

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		CHECK_EQ(path_split(cases[i][0], folder, name), 0);
		CHECK_STR(folder, cases[i][1]);
		CHECK_STR(name, cases[i][2]);
	}
	memset(longest, 'x', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	CHECK_EQ(path_split(longest, folder, name), -ENAMETOOLONG);
	longest[NAME_MAX] = '\0';
	CHECK_EQ(path_split(longest, folder, name), 0);
}

TEST(every_operation_leaves_the_worker_sound)
{
	static char longest[FILE_PATH_MAX];

	CHECK(begin());
	CHECK_EQ(put("a/b/f", FILE_PARENTS | FILE_MODE | FILE_MTIME, "hello"), 0);
	CHECK_EQ(put("a/b/f", FILE_APPEND, "more"), 0);
	CHECK_EQ(put("a/b", 0, "x"), -EISDIR);
	CHECK_EQ(put("a/b/g", FILE_BENEATH, "x"), 0);
	CHECK_EQ(put("../g", FILE_BENEATH, "x"), -EXDEV);
	CHECK_EQ(op(FILE_SYMLINK, 0, &(struct file_request){ .path = "l", .to = "a/b/f" }), 0);
	CHECK_EQ(op(FILE_SYMLINK, 0, &(struct file_request){ .path = "l", .to = "a/b/f" }), 0);
	CHECK_EQ(op(FILE_SYMLINK, FILE_EXCLUSIVE, &(struct file_request){ .path = "l", .to = "x" }), -EEXIST);
	CHECK_EQ(put("l", 0, "through"), 0);
	CHECK_EQ(op(FILE_READ, 0, &(struct file_request){ .path = "a/b/f", .length = FILE_ALL }), 0);
	CHECK_EQ(bytes, 7);
	CHECK_EQ(op(FILE_LINK, 0, &(struct file_request){ .path = "h", .to = "a/b/f" }), 0);
	CHECK_EQ(op(FILE_LINK, 0, &(struct file_request){ .path = "h", .to = "a/b/f" }), 0);
	CHECK_EQ(op(FILE_LINK, 0, &(struct file_request){ .path = "h", .to = "a" }), -EISDIR);
	CHECK_EQ(op(FILE_ATTR, FILE_MODE | FILE_MTIME,
		    &(struct file_request){ .path = "a", .mode = 0711, .mtime = INT64_MIN }),
		 0);
	CHECK_EQ(op(FILE_MKDIR, FILE_PARENTS, &(struct file_request){ .path = "x/y/z/" }), 0);
	CHECK_EQ(op(FILE_MOVE, 0, &(struct file_request){ .path = "x", .to = "a/x" }), 0);
	CHECK_EQ(op(FILE_MOVE, 0, &(struct file_request){ .path = "a", .to = "a/x/in" }), -EINVAL);
	/* Between file systems a file is copied. */
	CHECK_EQ(op(FILE_MOVE, 0, &(struct file_request){ .path = "h", .to = "/dev/shm/cloche-files-test" }), 0);
	CHECK_EQ(op(FILE_MOVE, 0, &(struct file_request){ .path = "/dev/shm/cloche-files-test", .to = "h2" }), 0);
	CHECK_EQ(op(FILE_STAT, 0, &(struct file_request){ .path = "/" }), 0);
	CHECK_EQ(op(FILE_LIST, FILE_CONTENT, &(struct file_request){ .path = ".", .depth = UINT32_MAX }), 0);
	CHECK_EQ(entries, 10);
	memset(longest, 'y', sizeof(longest) - 1);
	CHECK_EQ(op(FILE_STAT, 0, &(struct file_request){ .path = longest }), -ENAMETOOLONG);
	CHECK_EQ(op(FILE_MKDIR, FILE_PARENTS, &(struct file_request){ .path = longest + 3000, .under = longest }),
		 -ENAMETOOLONG);
	CHECK_EQ(op(FILE_REMOVE, FILE_RECURSIVE, &(struct file_request){ .path = "." }), -EBUSY);
	CHECK_EQ(op(FILE_REMOVE, FILE_RECURSIVE, &(struct file_request){ .path = dir }), 0);
	CHECK(access(dir, F_OK) < 0);
	CHECK_EQ(finish(), 0);
}

TEST(deep_trees_and_watches_leave_the_worker_sound)
{
	AUTO_CLOSE int at = -1;
	struct file_frame f;
	struct file_event v = { 0 };
	char name[200], other[FILE_PATH_MAX];

	CHECK(begin());
	at = open(dir, O_PATH | O_DIRECTORY);
	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	for (int i = 0; i < 300; i++) {
		int sub;

		CHECK_EQ(mkdirat(at, name, 0755), 0);
		sub = openat(at, name, O_PATH | O_DIRECTORY);
		fd_close(at);
		at = sub;
	}
	CHECK_EQ(op(FILE_LIST, 0, &(struct file_request){ .path = ".", .depth = UINT32_MAX }), 0);
	CHECK_EQ(entries, 21); /* 20 paths of 199 characters and their slashes fit */
	CHECK_EQ(op(FILE_REMOVE, FILE_RECURSIVE, &(struct file_request){ .path = name }), 0);
	CHECK_EQ(put("d/e/f", FILE_PARENTS, "x"), 0);
	CHECK(ask(FILE_WATCH, FILE_RECURSIVE, &(struct file_request){ .path = dir }));
	CHECK(next(&f) && f.type == FILE_ENTRY);
	snprintf(last, sizeof(last), "%s/d", dir);
	snprintf(name, sizeof(name), "%s/moved", dir);
	CHECK_EQ(rename(last, name), 0);
	CHECK(next(&f) && file_event_decode(&f, &v) == 0);
	CHECK_EQ(v.kind, FILE_EVENT_MOVED);
	snprintf(last, sizeof(last), "%s/moved/e/f", dir);
	snprintf(other, sizeof(other), "%s/moved/e/g", dir);
	for (int i = 0; i < 400; i++) { /* it may be awake between the two halves of a move */
		CHECK_EQ(rename(i % 2 ? other : last, i % 2 ? last : other), 0);
		CHECK(next(&f) && file_event_decode(&f, &v) == 0);
		CHECK_EQ(v.kind, FILE_EVENT_MOVED);
	}
	CHECK_EQ(unlink(last), 0);
	CHECK(next(&f) && file_event_decode(&f, &v) == 0);
	CHECK_EQ(v.kind, FILE_EVENT_REMOVED);
	CHECK_STR(v.path, "moved/e/f");
	CHECK_EQ(finish(), 0);
	CHECK(begin()); /* another, in a folder of its own; it removes what is left */
	CHECK_EQ(op(FILE_REMOVE, FILE_RECURSIVE, &(struct file_request){ .path = name }), 0);
	*strrchr(name, '/') = '\0';
	CHECK_EQ(op(FILE_REMOVE, 0, &(struct file_request){ .path = name }), 0);
	CHECK_EQ(op(FILE_REMOVE, 0, &(struct file_request){ .path = dir }), 0);
	CHECK_EQ(finish(), 0);
}
