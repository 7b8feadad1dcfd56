/* File workers in real sandboxes. */
#include "run/files_test.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/test.h"

static struct ft box;
static struct fw w;

static uint64_t now_ms(void)
{
	return clock_mono_ns() / 1000000;
}

#define PUT(path_, flags, text) fw_put(&w, &(struct file_request){ .path = (path_) }, flags, text)

TEST(a_file_is_written_read_moved_and_removed)
{
	CHECK(ft_open(&box));
	CHECK(fw_open(&w, &box, 1000));
	CHECK_EQ(PUT("a.txt", 0, "hello"), 0);
	CHECK_EQ(w.entry.size, 5);
	CHECK_EQ(w.entry.mode, S_IFREG | 0644);
	CHECK_EQ(w.entry.uid, 1000);
	CHECK_EQ(w.end.count, 5);
	CHECK_EQ(ft_sh(&box, 1000, "cat /home/user/a.txt; ls -A /home/user | grep cloche"), 1);
	CHECK_STR(box.out, "hello");
	CHECK_EQ(PUT("a.txt", FILE_APPEND, " world"), 0);
	CHECK_EQ(fw_path(&w, FILE_READ, 0, "/home/user/a.txt"), 0);
	CHECK_STR(w.data, "hello world");
	CHECK_EQ(w.entry.size, 11);
	CHECK_EQ(fw_do(&w, FILE_READ, 0, &(struct file_request){ .path = "a.txt", .offset = 6, .length = 3 }), 0);
	CHECK_STR(w.data, "wor");
	CHECK_EQ(fw_do(&w, FILE_READ, 0, &(struct file_request){ .path = "a.txt", .offset = 60, .length = 3 }), 0);
	CHECK_EQ(w.bytes, 0);
	CHECK_EQ(PUT("a.txt", FILE_EXCLUSIVE, "x"), -EEXIST);
	CHECK_EQ(PUT("d/e/f.txt", 0, "x"), -ENOENT);
	CHECK_EQ(w.end.step, FILE_STEP_PATH);
	CHECK_EQ(PUT("d/e/f.txt", FILE_PARENTS, "deep"), 0);
	CHECK_EQ(fw_do(&w, FILE_MOVE, FILE_PARENTS, &(struct file_request){ .path = "d/e/f.txt", .to = "n/m" }), 0);
	CHECK_EQ(fw_path(&w, FILE_STAT, 0, "d/e/f.txt"), -ENOENT);
	CHECK_EQ(fw_path(&w, FILE_READ, 0, "n/m"), 0);
	CHECK_STR(w.data, "deep");
	CHECK_EQ(fw_path(&w, FILE_REMOVE, 0, "d"), -ENOTEMPTY);
	CHECK_EQ(fw_path(&w, FILE_REMOVE, FILE_RECURSIVE, "d"), 0);
	CHECK_EQ(fw_path(&w, FILE_STAT, 0, "d"), -ENOENT);
	CHECK_EQ(fw_path(&w, FILE_REMOVE, 0, "n/m"), 0);
	CHECK_EQ(fw_path(&w, FILE_REMOVE, 0, "n/m"), -ENOENT);
	CHECK_EQ(fw_path(&w, FILE_REMOVE, FILE_RECURSIVE, "/"), -EBUSY);
	fw_close(&w);
	ft_close(&box);
}

TEST(modes_owners_and_times_are_kept_or_set)
{
	const struct file_request set = { .path = "b", .mode = 04751, .mtime = 1500000000123456789 };

	CHECK(ft_open(&box));
	CHECK(fw_open(&w, &box, 1000));
	CHECK_EQ(fw_put(&w, &set, FILE_MODE | FILE_MTIME, "x"), 0);
	CHECK_EQ(w.entry.mode, S_IFREG | 0751);
	CHECK_EQ(w.entry.mtime, 1500000000123456789);
	CHECK_EQ(PUT("b", 0, "y"), 0);
	CHECK_EQ(w.entry.mode, S_IFREG | 0751);
	CHECK_EQ(fw_do(&w, FILE_MKDIR, FILE_MODE | FILE_PARENTS, &(struct file_request){ .path = "p/q", .mode = 0700 }),
		 0);
	CHECK_EQ(w.entry.mode, S_IFDIR | 0700);
	CHECK_EQ(fw_path(&w, FILE_STAT, 0, "p"), 0);
	CHECK_EQ(w.entry.mode, S_IFDIR | 0755);
	CHECK_EQ(fw_path(&w, FILE_MKDIR, 0, "p"), -EEXIST);
	CHECK_EQ(fw_path(&w, FILE_MKDIR, FILE_PARENTS, "p"), 0);
	CHECK_EQ(fw_path(&w, FILE_MKDIR, FILE_PARENTS, "b"), -EEXIST);
	/* Another user's file that is writable keeps its owner; one that is not writable is not changed. */
	CHECK_EQ(ft_sh(&box, 0, "echo old > /home/user/r; chmod 666 /home/user/r; echo old > /home/user/s"), 0);
	CHECK_EQ(PUT("r", 0, "new"), 0);
	CHECK_EQ(w.entry.uid, 0);
	CHECK_EQ(w.entry.mode, S_IFREG | 0666);
	CHECK_EQ(PUT("s", 0, "new"), -EACCES);
	CHECK_EQ(ft_sh(&box, 0, "cat /home/user/r /home/user/s; ls -A /home/user | grep cloche-"), 1);
	CHECK_STR(box.out, "newold\n");
	/* Where no file can be made beside it, the file itself is written to. */
	CHECK_EQ(ft_sh(&box, 0, "mkdir /srv/x; echo old > /srv/x/f; chmod 666 /srv/x/f"), 0);
	CHECK_EQ(PUT("/srv/x/f", 0, "in place"), 0);
	CHECK_EQ(ft_sh(&box, 0, "cat /srv/x/f"), 0);
	CHECK_STR(box.out, "in place");
	fw_close(&w);
	/* Written by root, the user's file stays the user's. */
	CHECK(fw_open(&w, &box, 0));
	CHECK_EQ(PUT("b", 0, "by root"), 0);
	CHECK_EQ(w.entry.uid, 1000);
	CHECK_EQ(w.entry.mode, S_IFREG | 0751);
	fw_close(&w);
	ft_close(&box);
}

TEST(links_lead_within_the_sandbox_only_and_magic_ones_nowhere)
{
	static const char *const magic[] = { "/proc/self/root/etc/hostname",
					     "/proc/1/root/etc/hostname",
					     "/proc/self/cwd/x",
					     "/proc/self/exe",
					     "/dev/fd/0",
					     "/proc/self/fd/3",
					     "/tmp/e/etc/hostname" };
	char canary[] = "/var/tmp/cloche-canary-XXXXXX", path[256];
	int fd = mkstemp(canary);

	CHECK(fd >= 0 && write(fd, "CANARY", 6) == 6);
	fd_close(fd);
	CHECK(ft_open(&box));
	CHECK(fw_open(&w, &box, 0));
	CHECK_EQ(ft_sh(&box, 0,
		       "ln -s /proc/1/root /tmp/e; ln -s / /tmp/d; echo t > /tmp/target; ln -s target /tmp/l;"
		       "ln -s /tmp/l /tmp/l2; ln -s nowhere /tmp/dangling; ln -s loop /tmp/loop"),
		 0);
	for (size_t i = 0; i < ARRAY_LEN(magic); i++) {
		int r = fw_path(&w, FILE_READ, 0, magic[i]);

		printf("# %s: %d\n", magic[i], r);
		CHECK(r == -ELOOP || r == -EACCES);
		CHECK_EQ(w.bytes, 0);
		r = PUT(magic[i], 0, "OVERWRITTEN");
		CHECK(r == -ELOOP || r == -EACCES || r == -EROFS || r == -EPERM);
	}
	for (int i = 0; i < 3; i++) {
		snprintf(path, sizeof(path), "%s%s",
			 i == 0 ? "" :
			 i == 1 ? "/tmp/../../../../../.." :
				  "/tmp/d",
			 canary);
		CHECK_EQ(fw_path(&w, FILE_READ, 0, path), -ENOENT);
	}
	CHECK_EQ(PUT("/tmp/l2", 0, "through"), 0);
	CHECK_EQ(fw_path(&w, FILE_STAT, 0, "/tmp/l2"), 0);
	CHECK_EQ(w.entry.mode & S_IFMT, S_IFLNK);
	CHECK_STR(w.target, "/tmp/l");
	CHECK_EQ(fw_path(&w, FILE_READ, 0, "/tmp/target"), 0);
	CHECK_STR(w.data, "through");
	CHECK_EQ(PUT("/tmp/dangling", 0, "now there"), 0);
	CHECK_EQ(fw_path(&w, FILE_READ, 0, "/tmp/nowhere"), 0);
	CHECK_EQ(PUT("/tmp/loop", 0, "x"), -ELOOP);
	/* With a folder to stay below, links do not lead out of it, and a link as the last part is replaced. */
	CHECK_EQ(ft_sh(&box, 0,
		       "mkdir /tmp/u /tmp/v; ln -s /tmp/v /tmp/u/abs; ln -s ../v /tmp/u/rel; mkdir /tmp/u/in;"
		       "ln -s in /tmp/u/ok; ln -s /tmp/target /tmp/u/f"),
		 0);
	CHECK_EQ(fw_put(&w, &(struct file_request){ .path = "abs/x", .under = "/tmp/u" }, FILE_BENEATH, "x"), -EXDEV);
	CHECK_EQ(fw_put(&w, &(struct file_request){ .path = "rel/x", .under = "/tmp/u" }, FILE_BENEATH, "x"), -EXDEV);
	CHECK_EQ(fw_put(&w, &(struct file_request){ .path = "../v/x", .under = "/tmp/u" }, FILE_BENEATH, "x"), -EXDEV);
	CHECK_EQ(fw_put(&w, &(struct file_request){ .path = "/tmp/v/x", .under = "/tmp/u" }, FILE_BENEATH, "x"),
		 -EXDEV);
	CHECK_EQ(fw_put(&w, &(struct file_request){ .path = "ok/x", .under = "/tmp/u" }, FILE_BENEATH, "x"), 0);
	CHECK_EQ(fw_put(&w, &(struct file_request){ .path = "f", .under = "/tmp/u" }, FILE_BENEATH, "mine"), 0);
	CHECK_EQ(ft_sh(&box, 0, "cat /tmp/target; test ! -L /tmp/u/f; ls /tmp/v"), 0);
	CHECK_STR(box.out, "through");
	fw_close(&w);
	ft_close(&box);
	CHECK(fd_get(AT_FDCWD, canary, path, sizeof(path)) == 6 && !strcmp(path, "CANARY"));
	unlink(canary);
}

TEST(what_is_no_file_is_refused_at_once)
{
	uint64_t start = now_ms();

	CHECK(ft_open(&box));
	CHECK(fw_open(&w, &box, 1000));
	CHECK_EQ(ft_sh(&box, 1000,
		       "mkfifo /tmp/ff; mkdir /tmp/dd; python3 -c 'import socket; "
		       "socket.socket(socket.AF_UNIX).bind(\"/tmp/so\")'"),
		 0);
	for (int i = 0; i < 2; i++) {
		static const char *const paths[] = { "/tmp/ff", "/dev/zero", "/dev/null", "/tmp/so", "/dev/ptmx" };

		for (size_t k = 0; k < ARRAY_LEN(paths); k++) {
			int r = i ? PUT(paths[k], 0, "x") : fw_path(&w, FILE_READ, 0, paths[k]);

			if (r != -EOPNOTSUPP)
				printf("# %s %d\n", paths[k], r);
			CHECK_EQ(r, -EOPNOTSUPP);
			CHECK_EQ(w.end.step, FILE_STEP_TYPE);
			CHECK_EQ(w.bytes, 0);
		}
		CHECK_EQ(i ? PUT("/tmp/dd", 0, "x") : fw_path(&w, FILE_READ, 0, "/tmp/dd"), -EISDIR);
	}
	CHECK_EQ(PUT("/tmp/ff", FILE_APPEND, "x"), -EOPNOTSUPP);
	CHECK(now_ms() - start < 5000);
	/* Of a sparse file only the requested part is sent, and that can be cancelled. */
	CHECK_EQ(ft_sh(&box, 1000, "truncate -s 1T /tmp/sp"), 0);
	CHECK_EQ(fw_do(&w, FILE_READ, 0,
		       &(struct file_request){ .path = "/tmp/sp", .offset = 1ULL << 39, .length = 100000 }),
		 0);
	CHECK_EQ(w.bytes, 100000);
	CHECK_EQ(w.entry.size, 1LL << 40);
	CHECK(fw_ask(&w, FILE_READ, 0, &(struct file_request){ .path = "/tmp/sp", .length = FILE_ALL }));
	fw_close(&w);
	CHECK(fw_open(&w, &box, 1000));
	CHECK_EQ(fw_path(&w, FILE_STAT, 0, "/tmp/sp"), 0);
	fw_close(&w);
	ft_close(&box);
}

TEST(a_write_that_is_aborted_or_cut_leaves_nothing)
{
	CHECK(ft_open(&box));
	CHECK(fw_open(&w, &box, 1000));
	CHECK_EQ(PUT("a", 0, "old"), 0);
	CHECK(fw_ask(&w, FILE_WRITE, 0, &(struct file_request){ .path = "a" }));
	CHECK(fw_send(&w, FILE_DATA, 0, "new", 3));
	CHECK(fw_send(&w, FILE_ABORT, 0, NULL, 0));
	CHECK_EQ(fw_wait(&w), -ECANCELED);
	CHECK_EQ(fw_path(&w, FILE_READ, 0, "a"), 0);
	CHECK_STR(w.data, "old");
	/* A failure is reported while the host still sends; then the worker continues. */
	CHECK(fw_ask(&w, FILE_WRITE, 0, &(struct file_request){ .path = "/etc/nope" }));
	CHECK_EQ(fw_wait(&w), -EACCES);
	CHECK(fw_send(&w, FILE_DATA, 0, "new", 3));
	CHECK(fw_send(&w, FILE_END, 0, NULL, 0));
	CHECK_EQ(fw_path(&w, FILE_STAT, 0, "a"), 0);
	CHECK(fw_ask(&w, FILE_WRITE, 0, &(struct file_request){ .path = "a" }));
	CHECK(fw_send(&w, FILE_DATA, 0, "new", 3));
	wt_sleep_ms(50);
	fw_close(&w);
	wt_sleep_ms(100);
	CHECK_EQ(ft_sh(&box, 1000, "cat /home/user/a; ls -A /home/user | grep cloche-"), 1);
	CHECK_STR(box.out, "old");
	/* A full disk is reported, and leaves no file either. */
	CHECK(fw_open(&w, &box, 1000));
	CHECK(fw_ask(&w, FILE_WRITE, 0, &(struct file_request){ .path = "full" }));
	for (int i = 0; i < 12000; i++) {
		static const uint8_t zeros[FILE_DATA_MAX];
		struct pollfd p = { .fd = w.sock, .events = POLLIN };

		if (poll(&p, 1, 0) == 1)
			break;
		CHECK(fw_send(&w, FILE_DATA, 0, zeros, sizeof(zeros)));
	}
	CHECK_EQ(fw_wait(&w), -ENOSPC);
	CHECK(fw_send(&w, FILE_ABORT, 0, NULL, 0));
	CHECK_EQ(PUT("small", 0, "fits again"), 0);
	fw_close(&w);
	ft_close(&box);
}

TEST(folders_are_listed_to_a_depth_and_a_number)
{
	CHECK(ft_open(&box));
	CHECK(fw_open(&w, &box, 1000));
	CHECK_EQ(ft_sh(&box, 1000, "mkdir -p /tmp/a/b/c; echo x > /tmp/a/f; ln -s /etc /tmp/a/l; echo yy > /tmp/a/b/g"),
		 0);
	CHECK_EQ(fw_do(&w, FILE_LIST, 0, &(struct file_request){ .path = "/tmp/a", .depth = 1 }), 0);
	CHECK_EQ(w.entries, 4);
	CHECK_CONTAINS(w.names, "l -> /etc\n");
	CHECK_EQ(w.end.count, 3);
	CHECK_EQ(fw_do(&w, FILE_LIST, 0, &(struct file_request){ .path = "/tmp/a", .depth = UINT32_MAX }), 0);
	CHECK_EQ(w.entries, 6);
	CHECK_CONTAINS(w.names, "b/c\n");
	CHECK_CONTAINS(w.names, "b/g\n");
	CHECK_EQ(fw_do(&w, FILE_LIST, FILE_CONTENT, &(struct file_request){ .path = "/tmp/a", .depth = UINT32_MAX }),
		 0);
	CHECK_EQ(w.bytes, 5);
	CHECK_EQ(fw_do(&w, FILE_LIST, 0, &(struct file_request){ .path = "/tmp/a", .depth = 9, .max = 2 }), 0);
	CHECK_EQ(w.entries, 3);
	CHECK_EQ(w.end_flags, FILE_TRUNCATED);
	CHECK_EQ(fw_path(&w, FILE_LIST, 0, "/tmp/a/f"), -ENOTDIR);
	CHECK_EQ(fw_path(&w, FILE_LIST, FILE_CONTENT, "/tmp/a/f"), 0);
	CHECK_STR(w.data, "x\n");
	CHECK_EQ(fw_path(&w, FILE_LIST, 0, "/nope"), -ENOENT);
	fw_close(&w);
	ft_close(&box);
}

TEST(ten_thousand_levels_are_listed_and_removed)
{
	/* Made in short steps: by full paths from the top, each level would cost more than the last. */
	static const char deep[] = "import os\n"
				   "whole = None\n"
				   "for k in range(100):\n"
				   "    top = p = '/tmp/c%d' % k\n"
				   "    os.mkdir(p)\n"
				   "    for i in range(99):\n"
				   "        open(p + '/f', 'w').close(); p += '/d'; os.mkdir(p)\n"
				   "    if whole: os.rename(whole, p + '/d')\n"
				   "    whole = top\n"
				   "os.rename(whole, '/tmp/deep')\n";
	char text[512];
	uint64_t start;

	CHECK(ft_open(&box));
	CHECK(fw_open(&w, &box, 1000));
	snprintf(text, sizeof(text), "python3 -c \"%s\"", deep);
	CHECK_EQ(ft_sh(&box, 1000, text), 0);
	start = now_ms();
	CHECK_EQ(fw_do(&w, FILE_LIST, 0, &(struct file_request){ .path = "/tmp/deep", .depth = UINT32_MAX }), 0);
	CHECK_EQ(w.end_flags, FILE_TRUNCATED); /* paths reach their limit before the tree ends */
	CHECK(w.entries > 3000);
	printf("# listed %u in %llu ms\n", w.entries, (unsigned long long)(now_ms() - start));
	start = now_ms();
	CHECK_EQ(fw_path(&w, FILE_REMOVE, FILE_RECURSIVE, "/tmp/deep"), 0);
	printf("# removed %llu in %llu ms\n", (unsigned long long)w.end.count, (unsigned long long)(now_ms() - start));
	CHECK_EQ(w.end.count, 10000 + 9900);
	CHECK_EQ(fw_path(&w, FILE_STAT, 0, "/tmp/deep"), -ENOENT);
	/* Many wide folders are removed completely, too. */
	CHECK_EQ(ft_sh(&box, 1000,
		       "mkdir /tmp/wide; cd /tmp/wide; for i in $(seq 300); do mkdir $i; touch $i/a $i/b; done"),
		 0);
	CHECK_EQ(fw_path(&w, FILE_REMOVE, FILE_RECURSIVE, "/tmp/wide"), 0);
	CHECK_EQ(w.end.count, 901);
	/* A link to a folder is removed, its target is not. */
	CHECK_EQ(ft_sh(&box, 1000, "mkdir -p /tmp/keep/x /tmp/r; ln -s /tmp/keep /tmp/r/l; ln -s /tmp/keep /tmp/l"), 0);
	CHECK_EQ(fw_path(&w, FILE_REMOVE, FILE_RECURSIVE, "/tmp/r"), 0);
	CHECK_EQ(fw_path(&w, FILE_REMOVE, FILE_RECURSIVE, "/tmp/l"), 0);
	CHECK_EQ(fw_path(&w, FILE_STAT, 0, "/tmp/keep/x"), 0);
	fw_close(&w);
	ft_close(&box);
}

/* Waits for an event of a path; other events are skipped. */
static bool event(enum file_event_kind kind, const char *path)
{
	struct file_frame f;
	struct file_event v;

	while (fw_next(&w, &f, 5000) == 1) {
		if (f.type != FILE_EVENT || file_event_decode(&f, &v) < 0)
			continue;
		if (v.kind == kind && !strcmp(v.path, path))
			return true;
	}
	printf("# no event %d of '%s'\n", kind, path);
	return false;
}

static bool watch(const char *path, unsigned flags, uint32_t max)
{
	struct file_frame f;

	return fw_ask(&w, FILE_WATCH, flags, &(struct file_request){ .path = path, .max = max }) &&
	       fw_next(&w, &f, 5000) == 1 && f.type == FILE_ENTRY;
}

TEST(changes_are_told)
{
	CHECK(ft_open(&box));
	CHECK(fw_open(&w, &box, 1000));
	CHECK_EQ(ft_sh(&box, 1000, "mkdir -p /tmp/w/sub"), 0);
	CHECK(watch("/tmp/w", FILE_RECURSIVE, 0));
	wt_sleep_ms(50);
	CHECK_EQ(ft_sh(&box, 1000,
		       "cd /tmp/w; echo x > a; echo y >> a; mv a b; rm b; echo z > sub/c; mkdir -p new/er; sleep 0.2;"
		       "echo q > new/er/f; mv new old; echo r > old/er/g; rm -r old"),
		 0);
	CHECK(event(FILE_EVENT_CREATED, "a"));
	CHECK(event(FILE_EVENT_MODIFIED, "a"));
	CHECK(event(FILE_EVENT_MOVED, "a"));
	CHECK(event(FILE_EVENT_REMOVED, "b"));
	CHECK(event(FILE_EVENT_CREATED, "sub/c"));
	CHECK(event(FILE_EVENT_CREATED, "new"));
	CHECK(event(FILE_EVENT_CREATED, "new/er/f"));
	CHECK(event(FILE_EVENT_MOVED, "new"));
	CHECK(event(FILE_EVENT_CREATED, "old/er/g"));
	CHECK(event(FILE_EVENT_REMOVED, "old"));
	CHECK_EQ(ft_sh(&box, 1000, "rm -r /tmp/w"), 0);
	CHECK(event(FILE_EVENT_GONE, ""));
	CHECK_EQ(fw_wait(&w), -ENOENT);
	/* There is a limit of watches, and reaching it is reported. */
	CHECK_EQ(ft_sh(&box, 1000, "mkdir -p /tmp/m/1 /tmp/m/2 /tmp/m/3 /tmp/m/4"), 0);
	CHECK(watch("/tmp/m", FILE_RECURSIVE, 3));
	CHECK(event(FILE_EVENT_OVERFLOW, ""));
	fw_close(&w);
	CHECK(fw_open(&w, &box, 1000));
	CHECK_EQ(ft_sh(&box, 1000, "echo a > /tmp/one"), 0);
	CHECK(watch("/tmp/one", 0, 0));
	wt_sleep_ms(50);
	CHECK_EQ(ft_sh(&box, 1000, "echo b >> /tmp/one; rm /tmp/one"), 0);
	CHECK(event(FILE_EVENT_MODIFIED, ""));
	CHECK(event(FILE_EVENT_GONE, ""));
	fw_close(&w);
	/* Without a reader the kernel's queue overflows, and that is reported, too. */
	CHECK(fw_open(&w, &box, 1000));
	CHECK_EQ(ft_sh(&box, 1000, "mkdir /tmp/o"), 0);
	CHECK(watch("/tmp/o", 0, 0));
	wt_sleep_ms(50);
	CHECK_EQ(ft_sh(&box, 1000,
		       "python3 -c \"\nimport os\nfor i in range(15000): os.close(os.open('/tmp/o/%d' % (i % 9), 577, "
		       "438)); "
		       "os.unlink('/tmp/o/%d' % (i % 9))\""),
		 0);
	CHECK(event(FILE_EVENT_OVERFLOW, ""));
	fw_close(&w);
	ft_close(&box);
}

TEST(a_worker_that_is_killed_is_an_error_and_not_a_wait)
{
	CHECK(ft_open(&box));
	CHECK(fw_open(&w, &box, 1000));
	CHECK_EQ(fw_path(&w, FILE_STAT, 0, "/tmp"), 0);
	/* Its own user can kill it, but not inspect it. */
	CHECK_EQ(ft_sh(&box, 1000,
		       "for p in /proc/[0-9]*; do read -r c < $p/comm; [ $c = cloche-files ] && "
		       "{ ls $p/fd; head -c1 $p/mem; cat $p/environ; readlink $p/root; grep Uid $p/status; "
		       "kill -9 ${p#/proc/}; } done 2>&1 | grep -v denied"),
		 0);
	CHECK_STR(box.out, "Uid:\t1000\t1000\t1000\t1000\n");
	CHECK_EQ(fw_path(&w, FILE_STAT, 0, "/tmp"), FT_LOST);
	fw_close(&w);
	CHECK(fw_open(&w, &box, 1000));
	CHECK_EQ(fw_path(&w, FILE_STAT, 0, "/tmp"), 0);
	fw_close(&w);
	ft_close(&box);
}

TEST(workers_are_counted_and_reaped)
{
	static int socks[70];
	struct frame_failed d;
	struct frame f;
	int fd = -1;

	CHECK(ft_open(&box));
	for (int i = 0; i < 65; i++) {
		socks[i] = ft_worker(&box, 1000, "/");
		CHECK(socks[i] >= 0);
	}
	CHECK_EQ(link_next(&box.s.link, 5000, &f, &fd), 1);
	CHECK_EQ(f.type, FRAME_FAILED);
	CHECK_EQ(frame_failed_decode(&f, &d), 0);
	CHECK_EQ(d.stage, FRAME_STAGE_LIMIT);
	for (int i = 0; i < 65; i++)
		fd_close(socks[i]);
	wt_sleep_ms(300);
	CHECK_EQ(ft_sh(&box, 0, "grep -lxE 'init|cloche-files' /proc/[0-9]*/comm | wc -l"), 0);
	CHECK_STR(box.out, "1\n");
	for (int i = 0; i < 40; i++) {
		CHECK(fw_open(&w, &box, 1000));
		CHECK_EQ(fw_path(&w, FILE_STAT, 0, "/"), 0);
		fw_close(&w);
	}
	/* Invalid bytes end one worker only. */
	CHECK(fw_open(&w, &box, 1000));
	CHECK_EQ(fd_write_all(w.sock, "\x01\x63nonsense.........", 20), 0);
	CHECK_EQ(fw_wait(&w), FT_LOST);
	fw_close(&w);
	CHECK_EQ(ft_sh(&box, 1000, "true"), 0);
	ft_close(&box);
}

TEST(a_worker_starts_quickly_and_is_small)
{
	uint64_t start, first, next;

	CHECK(ft_open(&box));
	start = clock_mono_ns();
	CHECK(fw_open(&w, &box, 1000));
	CHECK_EQ(fw_path(&w, FILE_STAT, 0, "/"), 0);
	first = clock_mono_ns() - start;
	start = clock_mono_ns();
	for (int i = 0; i < 1000; i++)
		CHECK_EQ(fw_path(&w, FILE_STAT, 0, "/"), 0);
	next = (clock_mono_ns() - start) / 1000;
	CHECK_EQ(
		ft_sh(&box, 0,
		      "for p in /proc/[0-9]*; do read -r c < $p/comm; [ $c = cloche-files ] && grep -E 'RssAnon' $p/status; done; "
		      "true"),
		0);
	printf("# first answer %llu us, then %llu us; %s", (unsigned long long)first / 1000,
	       (unsigned long long)next / 1000, box.out);
	CHECK(first < 50000000 && strtol(strpbrk(box.out, "0123456789"), NULL, 10) < 1024);
	fw_close(&w);
	ft_close(&box);
}

TEST(two_hundred_megabytes_go_both_ways)
{
	static uint8_t block[FILE_DATA_MAX];
	const unsigned blocks = 3200;
	uint64_t start;

	for (size_t i = 0; i < sizeof(block); i++)
		block[i] = (uint8_t)(i * 31 >> 3);
	CHECK(ft_open(&box));
	CHECK(fw_open(&w, &box, 1000));
	start = now_ms();
	CHECK(fw_ask(&w, FILE_WRITE, 0, &(struct file_request){ .path = "big" }));
	for (unsigned i = 0; i < blocks; i++)
		CHECK(fw_send(&w, FILE_DATA, 0, block, sizeof(block)));
	CHECK(fw_send(&w, FILE_END, 0, NULL, 0));
	CHECK_EQ(fw_wait(&w), 0);
	CHECK_EQ(w.entry.size, (uint64_t)blocks * sizeof(block));
	printf("# in: %llu MB/s\n", (unsigned long long)(blocks * sizeof(block) / 1000 / (now_ms() - start + 1)));
	start = now_ms();
	CHECK_EQ(fw_path(&w, FILE_READ, 0, "big"), 0);
	CHECK_EQ(w.bytes, (uint64_t)blocks * sizeof(block));
	CHECK(!memcmp(w.data, block, sizeof(w.data) - 1));
	printf("# out: %llu MB/s\n", (unsigned long long)(blocks * sizeof(block) / 1000 / (now_ms() - start + 1)));
	fw_close(&w);
	ft_close(&box);
}
