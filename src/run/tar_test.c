/* cloche-tar between files of the test and real sandboxes. */
#include "base/base.h"
#include "base/test.h"
#include "run/files_test.h"

#include <sys/mman.h>

static struct ft box;
static char said[65536]; /* last line that the program printed */

/* Runs it as @uid on the archive in @fd, from its start. Returns the exit code, or 128 + signal. */
static int run(uint32_t uid, const char *const *more, int fd)
{
	AUTO_CLOSE int sock = ft_worker(&box, uid, "/home/user");
	AUTO_CLOSE int out = memfd_create("out", MFD_CLOEXEC);
	char program[512], files[16], stream[16];
	const char *argv[24] = { program, more[0], "--files", files, "--stream", stream };
	int n = 6, status = -1;
	ssize_t len;
	pid_t pid;

	snprintf(files, sizeof(files), "%d", sock);
	snprintf(stream, sizeof(stream), "%d", fd);
	for (more++; *more; more++)
		argv[n++] = *more;
	if (sock < 0 || out < 0 || lseek(fd, 0, SEEK_SET) < 0 || !wt_program("cloche-tar", program, sizeof(program)))
		return -1;
	pid = fork();
	if (pid == 0) {
		fcntl(sock, F_SETFD, 0);
		fcntl(fd, F_SETFD, 0);
		dup2(out, STDOUT_FILENO);
		execv(program, (char *const *)(uintptr_t)argv);
		_exit(127);
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	len = pread(out, said, sizeof(said) - 1, 0);
	said[len < 0 ? 0 : len] = '\0';
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

#define IN(fd, ...) run(1000, (const char *const[]){ "in", "--path", __VA_ARGS__, NULL }, fd)
#define OUT(fd, ...) run(1000, (const char *const[]){ "out", "--path", __VA_ARGS__, NULL }, fd)

/* Adds one entry of a ustar archive, which may be hostile. */
static void add(int fd, const char *name, char type, const char *link, const char *data, unsigned size)
{
	char head[512] = { 0 }, pad[512] = { 0 };
	unsigned sum = 0;

	memcpy(head, name, strlen(name) < 100 ? strlen(name) : 100);
	memcpy(head + 100, "0006755", 8);
	memcpy(head + 108, "0000000", 8);
	memcpy(head + 116, "0000000", 8);
	snprintf(head + 124, 12, "%011o", size);
	memcpy(head + 136, "12345670123", 12);
	memset(head + 148, ' ', 8);
	head[156] = type;
	memcpy(head + 157, link, strlen(link));
	memcpy(head + 257, "ustar\00000", 8);
	for (size_t i = 0; i < sizeof(head); i++)
		sum += (unsigned char)head[i];
	snprintf(head + 148, 7, "%06o", sum);
	if (fd_write_all(fd, head, sizeof(head)) < 0 || fd_write_all(fd, data, strlen(data)) < 0 ||
	    fd_write_all(fd, pad, (512 - strlen(data) % 512) % 512) < 0)
		abort();
}

static int archive(void)
{
	return memfd_create("tar", MFD_CLOEXEC);
}

static void end(int fd)
{
	char zeros[1024] = { 0 };

	if (fd_write_all(fd, zeros, sizeof(zeros)) < 0)
		abort();
}

static const char tree[] =
	"mkdir -p /tmp/a/b/empty /tmp/a/ro && cd /tmp/a && echo hello > f && head -c 300000 /dev/urandom > b/r && "
	"ln f b/hard && ln -s ../f b/soft && ln -s /nowhere dangling && echo ro > ro/x && mkfifo ff && "
	"echo ü > 'sp ace-ü' && printf x > \"$(printf 'bad\\377')\" && truncate -s 1M sparse && "
	"long=$(printf 'n%.0s' $(seq 200)) && echo l > $long && "
	"chmod 640 f && chmod 555 ro && touch -d @1500000000.123456789 f b/empty && touch -h -d @1400000000 dangling";
static const char look[] = "cd $D && find . ! -name ff -printf '%P %y %m %s %l\\n' | sort | grep -v '^ '; find . -type "
			   "f | sort | xargs -d '\\n' "
			   "sha256sum; stat -c %h f; stat -c %Y.%y f b/empty dangling; rm -f out";

TEST(a_tree_comes_back_as_it_was)
{
	static char first[65536];
	const char *const formats[] = { "tar", "tar.zst" };
	char text[1024];

	CHECK(ft_open(&box));
	CHECK_EQ(ft_sh(&box, 1000, tree), 0);
	snprintf(text, sizeof(text), "D=/tmp/a; %s", look);
	CHECK_EQ(ft_sh(&box, 1000, text), 0);
	snprintf(first, sizeof(first), "%s", box.out);
	CHECK_CONTAINS(first, "b/soft l 777 4 ../f");
	for (int i = 0; i < 2; i++) {
		AUTO_CLOSE int fd = archive();
		struct stat st;

		CHECK_EQ(OUT(fd, "/tmp/a", "--format", formats[i]), 0);
		printf("# %s", said);
		CHECK_CONTAINS(said, "{\"name\":\"ff\",\"why\":\"a FIFO\"}");
		CHECK(fstat(fd, &st) == 0 && st.st_size > 300000 && st.st_size < (i ? 340000 : 1600000));
		snprintf(text, sizeof(text), "/tmp/out%d/deep", i);
		CHECK_EQ(IN(fd, text), 0);
		CHECK_CONTAINS(said, "\"skipped\":[]");
		snprintf(text, sizeof(text), "D=/tmp/out%d/deep; %s", i, look);
		CHECK_EQ(ft_sh(&box, 1000, text), 0);
		if (strcmp(box.out, first))
			printf("# was:\n%s\n# is:\n%s\n", first, box.out);
		CHECK_STR(box.out, first);
	}
	/* One file alone; and a missing file. */
	{
		AUTO_CLOSE int fd = archive();

		CHECK_EQ(OUT(fd, "/tmp/a/f"), 0);
		CHECK_EQ(IN(fd, "/tmp/one"), 0);
		CHECK_EQ(ft_sh(&box, 1000, "cat /tmp/one/f"), 0);
		CHECK_STR(box.out, "hello\n");
		CHECK_EQ(OUT(fd, "/tmp/nope"), 1);
		CHECK_CONTAINS(said, "\"reason\":\"not_found\"");
		CHECK_EQ(OUT(fd, "/tmp/a", "--max-bytes", "200000"), 1);
		CHECK_CONTAINS(said, "\"reason\":\"too_large\"");
		CHECK_EQ(OUT(fd, "/tmp/a", "--max-entries", "3"), 1);
		CHECK_CONTAINS(said, "\"reason\":\"too_large\"");
	}
	ft_close(&box);
}

TEST(names_that_lead_out_are_refused)
{
	static const struct {
		const char *name[2];
		char type[2];
		const char *link[2];
	} bad[] = {
		{ { "/tmp/canary" }, "0", { "" } },
		{ { "../canary" }, "0", { "" } },
		{ { "x/../../canary" }, "0", { "" } },
		{ { "./../canary" }, "0", { "" } },
		{ { "s", "s/canary" }, { '2', '0' }, { "/tmp", "" } },
		{ { "s", "s/canary" }, { '2', '0' }, { "..", "" } },
		{ { "s", "s/d" }, { '2', '5' }, { "/tmp", "" } },
		{ { "s", "s/l" }, { '2', '2' }, { "/tmp", "/etc" } },
		{ { "h", "h" }, { '1', '0' }, { "/tmp/canary", "" } },
		{ { "h", "h" }, { '1', '0' }, { "../canary", "" } },
		{ { "s", "h" }, { '2', '1' }, { "/tmp", "s/canary" } },
	};

	CHECK(ft_open(&box));
	CHECK_EQ(ft_sh(&box, 1000, "mkdir /tmp/t; echo canary > /tmp/canary"), 0);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		AUTO_CLOSE int fd = archive();
		int r;

		for (int k = 0; k < 2 && bad[i].name[k]; k++)
			add(fd, bad[i].name[k], bad[i].type[k], bad[i].link[k], bad[i].type[k] == '0' ? "X" : "",
			    bad[i].type[k] == '0');
		end(fd);
		r = IN(fd, "/tmp/t");
		if (r != 1)
			printf("# case %zu: %s\n", i, said);
		CHECK_EQ(r, 1);
		CHECK_CONTAINS(said, "\"reason\":\"bad_request\"");
		CHECK_CONTAINS(said, "outside the folder");
		CHECK_EQ(ft_sh(&box, 1000, "cat /tmp/canary; stat -c %h /tmp/canary; ls -A /tmp; rm -rf /tmp/t/*"), 0);
		CHECK_STR(box.out, "canary\n1\ncanary\nt\n");
	}
	/* Links within the archive are fine, and a link at the place of a file is replaced, not written through. */
	{
		AUTO_CLOSE int fd = archive();

		add(fd, "in/", '5', "", "", 0);
		add(fd, "l", '2', "in", "", 0);
		add(fd, "l/x", '0', "", "fine", 4);
		add(fd, "c", '2', "/tmp/canary", "", 0);
		add(fd, "c", '0', "", "mine", 4);
		end(fd);
		CHECK_EQ(IN(fd, "/tmp/t"), 0);
		CHECK_EQ(ft_sh(&box, 1000, "cat /tmp/t/in/x /tmp/t/c /tmp/canary"), 0);
		CHECK_STR(box.out, "fineminecanary\n");
	}
	ft_close(&box);
}

TEST(devices_are_left_out_and_set_id_bits_dropped)
{
	AUTO_CLOSE int fd = archive();

	CHECK(ft_open(&box));
	add(fd, "chr", '3', "", "", 0);
	add(fd, "blk", '4', "", "", 0);
	add(fd, "fifo", '6', "", "", 0);
	add(fd, "suid", '0', "", "x", 1);
	add(fd, "dir/", '5', "", "", 0);
	end(fd);
	CHECK_EQ(run(0, (const char *const[]){ "in", "--path", "/tmp/t", NULL }, fd), 0);
	printf("# %s", said);
	CHECK_CONTAINS(said, "\"files\":1,\"bytes\":1");
	CHECK_CONTAINS(said, "{\"name\":\"chr\",\"why\":\"a device\"}");
	CHECK_CONTAINS(said, "\"skipped_total\":3");
	CHECK_EQ(ft_sh(&box, 0, "stat -c '%n %a %Y' /tmp/t/suid /tmp/t/dir; ls /tmp/t"), 0);
	CHECK_STR(box.out, "/tmp/t/suid 755 1402433619\n/tmp/t/dir 755 1402433619\ndir\nsuid\n");
	ft_close(&box);
}

TEST(what_is_no_archive_or_half_of_one_is_an_error)
{
	AUTO_CLOSE int junk = archive();
	AUTO_CLOSE int cut = archive();
	AUTO_CLOSE int gzip = archive();
	AUTO_CLOSE int empty = archive();
	static char data[200000];

	CHECK(ft_open(&box));
	memset(data, 'x', sizeof(data) - 1);
	CHECK_EQ(fd_write_all(junk, data, sizeof(data)), 0);
	CHECK_EQ(IN(junk, "/tmp/t"), 1);
	CHECK_CONTAINS(said, "\"reason\":\"bad_request\"");
	CHECK_EQ(fd_write_all(gzip, "\x1f\x8b\x08\0\0\0\0\0\0\x03\x03\0\0\0\0\0\0\0\0\0", 20), 0);
	CHECK_EQ(IN(gzip, "/tmp/t"), 1);
	CHECK_EQ(IN(empty, "/tmp/t"), 1);
	add(cut, "whole", '0', "", "w", 1);
	add(cut, "half", '0', "", data, 900000);
	CHECK_EQ(IN(cut, "/tmp/t"), 1);
	printf("# %s", said);
	CHECK_CONTAINS(said, "\"reason\":\"bad_request\"");
	CHECK_EQ(ft_sh(&box, 1000, "ls -A /tmp/t"), 0);
	CHECK_STR(box.out, "whole\n"); /* nothing of the incomplete file is left */
	ft_close(&box);
}

TEST(bombs_stop_at_the_limit)
{
	AUTO_CLOSE int many = archive();
	AUTO_CLOSE int bomb = archive();
	struct stat st;
	char name[32];

	CHECK(ft_open(&box));
	for (int i = 0; i < 300; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		add(many, name, '0', "", "", 0);
	}
	end(many);
	CHECK_EQ(IN(many, "/tmp/t", "--max-entries", "100"), 1);
	CHECK_CONTAINS(said, "\"reason\":\"too_large\"");
	CHECK_EQ(ft_sh(&box, 1000, "ls /tmp/t | wc -l; truncate -s 3G /tmp/zeros"), 0);
	CHECK_STR(box.out, "100\n");
	/* A bomb of three gigabytes of zeros, compressed. */
	CHECK_EQ(OUT(bomb, "/tmp/zeros", "--format", "tar.zst"), 0);
	CHECK(fstat(bomb, &st) == 0 && st.st_size < 1000000);
	printf("# the bomb has %lld bytes\n", (long long)st.st_size);
	CHECK_EQ(IN(bomb, "/tmp/u", "--max-bytes", "100000000"), 1);
	CHECK_CONTAINS(said, "more than 100000000 bytes");
	CHECK_EQ(ft_sh(&box, 1000, "ls -A /tmp/u"), 0);
	CHECK_STR(box.out, "");
	/* Without a limit the sandbox's disk is the limit. */
	CHECK_EQ(IN(bomb, "/tmp/u"), 1);
	printf("# %s", said);
	CHECK_CONTAINS(said, "\"reason\":\"too_large\"");
	CHECK_EQ(ft_sh(&box, 1000, "ls -A /tmp/u; echo still here"), 0);
	CHECK_STR(box.out, "still here\n");
	ft_close(&box);
}

TEST(it_is_locked_up_before_the_first_byte)
{
	int files[2], stream[2], status, n = 0;
	char text[4096] = "", path[64];
	pid_t pid;

	CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, files), 0);
	CHECK_EQ(pipe2(stream, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		char program[512];

		dup2(files[1], 20);
		dup2(stream[0], 21);
		dup2(stream[1], 22); /* closed unless requested */
		if (wt_program("cloche-tar", program, sizeof(program)))
			execl(program, program, "in", "--files", "20", "--stream", "21", "--path", "/tmp", NULL);
		_exit(127);
	}
	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	for (; n < 500 && !strstr(text, "Seccomp:\t2"); n++) {
		wt_sleep_ms(10);
		CHECK(fd_get(AT_FDCWD, path, text, sizeof(text)) > 0);
	}
	CHECK_CONTAINS(text, "Seccomp:\t2");
	CHECK_CONTAINS(text, "NoNewPrivs:\t1");
	CHECK_EQ(wt_fds(pid), 5);
	snprintf(path, sizeof(path), "/proc/%d/limits", (int)pid);
	CHECK(fd_get(AT_FDCWD, path, text, sizeof(text)) > 0);
	CHECK_CONTAINS(text, "Max open files            0                    0");
	kill(pid, SIGKILL);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	fd_close_many(files, 2);
	fd_close_many(stream, 2);
}

TEST(without_a_worker_it_ends_with_an_error)
{
	AUTO_CLOSE int fd = archive();
	int pair[2], line[2], status;
	ssize_t n;
	pid_t pid;

	add(fd, "x", '0', "", "x", 1);
	end(fd);
	CHECK(ft_open(&box));
	/* A worker without write access. */
	CHECK_EQ(run(65534, (const char *const[]){ "in", "--path", "/root/x", NULL }, fd), 1);
	CHECK_CONTAINS(said, "Permission denied");
	ft_close(&box);
	CHECK_EQ(lseek(fd, 0, SEEK_SET), 0);
	CHECK_EQ(pipe2(line, O_CLOEXEC), 0);
	CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	fd_close(pair[1]);
	pid = fork();
	if (pid == 0) {
		char program[512], files[16], stream[16];

		snprintf(files, sizeof(files), "%d", pair[0]);
		snprintf(stream, sizeof(stream), "%d", fd);
		fcntl(fd, F_SETFD, 0);
		dup2(line[1], STDOUT_FILENO);
		if (wt_program("cloche-tar", program, sizeof(program)))
			execl(program, program, "in", "--files", files, "--stream", stream, "--path", "/tmp", NULL);
		_exit(127);
	}
	fd_close(pair[0]);
	fd_close(line[1]);
	n = read(line[0], said, sizeof(said) - 1);
	said[n < 0 ? 0 : n] = '\0';
	fd_close(line[0]);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), 1);
	CHECK_CONTAINS(said, "\"reason\":\"sandbox_lost\"");
}
