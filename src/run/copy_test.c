/* cloche-tar context, select and copy between file workers of a real sandbox. */
#include "base/base.h"
#include "base/test.h"
#include "run/files_test.h"

#include <sys/mman.h>

static struct ft box;
static char said[65536]; /* last line that the program printed */

/*
 * Runs the program with descriptors; each of @fd is passed as its number after its option. Returns the exit code, or
 * 128 + signal.
 */
static int run(const char *mode, const char *const *option, const int *fd, int n)
{
	AUTO_CLOSE int out = memfd_create("out", MFD_CLOEXEC);
	char program[512], number[3][16];
	const char *argv[12] = { program, mode };
	int status = -1;
	ssize_t len;
	pid_t pid;

	for (int i = 0; i < n; i++) {
		snprintf(number[i], sizeof(number[i]), "%d", fd[i]);
		argv[2 + 2 * i] = option[i];
		argv[3 + 2 * i] = number[i];
	}
	if (out < 0 || !wt_program("cloche-tar", program, sizeof(program)))
		return -1;
	pid = fork();
	if (pid == 0) {
		for (int i = 0; i < n; i++)
			fcntl(fd[i], F_SETFD, 0);
		dup2(out, STDOUT_FILENO);
		execv(program, (char *const *)(uintptr_t)argv);
		_exit(127);
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	len = pread(out, said, sizeof(said) - 1, 0);
	said[len < 0 ? 0 : len] = '\0';
	printf("# %s", said);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Writes a specification. @text: "key value" lines. */
static int spec(const char *text)
{
	int fd = memfd_create("spec", MFD_CLOEXEC);

	while (*text) {
		size_t n = strcspn(text, " "), m = strcspn(text, "\n");

		if (fd_write_all(fd, text, n) < 0 || fd_write_all(fd, "", 1) < 0 ||
		    fd_write_all(fd, text + n + 1, m - n - 1) < 0 || fd_write_all(fd, "", 1) < 0)
			abort();
		text += m + (text[m] == '\n');
	}
	return lseek(fd, 0, SEEK_SET) < 0 ? -1 : fd;
}

/* Copies from /tmp/ctx to the destination in the text. */
static int copy(const char *text)
{
	static const char *const option[] = { "--from", "--spec", "--files" };
	char all[4096];
	int fd[3], r;

	snprintf(all, sizeof(all), "under /tmp/ctx\n%s", text);
	fd[0] = ft_worker(&box, 0, "/");
	fd[1] = spec(all);
	fd[2] = ft_worker(&box, 0, "/");
	r = run("copy", option, fd, 3);
	fd_close_many(fd, 3);
	return r;
}

static const char *digest(const char *text)
{
	static const char *const option[] = { "--from", "--spec" };
	static char ret[65];
	char all[4096];
	int fd[2], r;

	snprintf(all, sizeof(all), "under /tmp/ctx\n%s", text);
	fd[0] = ft_worker(&box, 0, "/");
	fd[1] = spec(all);
	r = run("select", option, fd, 2);
	fd_close_many(fd, 2);
	snprintf(ret, sizeof(ret), "%.64s",
		 r == 0 && strstr(said, "\"digest\":\"") ? strstr(said, "\"digest\":\"") + 10 : "");
	return ret;
}

static const char tree[] =
	"mkdir -p /tmp/ctx/d/sub/empty /tmp/ctx/d/.hid /tmp/t && cd /tmp/ctx && echo a > a.txt && echo b > b.txt && "
	"echo s > d/sub/s.txt && "
	"echo h > d/.hid/h && ln d/sub/s.txt d/hard && ln -s ../a.txt d/soft && ln -s d link && ln -s /a.txt abs && "
	"ln -s ../../../etc/passwd out && chmod 4755 b.txt && chmod 700 d/sub && chown 7:8 d/sub/s.txt && "
	"touch -d @1500000000 a.txt d/sub d/sub/s.txt && tar czf x.tgz -C d . && echo no > no.tar && cd / && "
	"mkdir -p /tmp/t/etc /tmp/t/real && ln -s /tmp/t/real /tmp/t/lnk";
#define LOOK(path) "cd " path " && find . -mindepth 1 -printf '%P %y %m %U:%G %n %l\\n' | sed 's/ [0-9]* $/ /' | sort"

static bool open_box(void)
{
	return ft_open(&box) && ft_sh(&box, 0, tree) == 0;
}

TEST(files_and_folders_are_copied_by_the_rules_of_dockerfiles)
{
	CHECK(open_box());
	/* A file to a name, into a folder, and into a link to one; several files; a pattern; a folder's content. */
	CHECK_EQ(copy("owner 1\nsource a.txt\ndest /tmp/t/n1/new"), 0);
	CHECK_EQ(copy("owner 1\nsource /a.txt\ndest /tmp/t/n2\nfolder 1"), 0);
	CHECK_EQ(copy("owner 1\nsource ../a.txt\nsource b.txt\ndest /tmp/t/lnk"), 0);
	CHECK_EQ(copy("owner 1\nsource *.txt\ndest /tmp/t/n3\nfolder 1"), 0);
	CHECK_EQ(copy("source d\ndest /tmp/t/n4"), 0);
	CHECK_EQ(ft_sh(&box, 0, "cat /tmp/t/n1/new; " LOOK("/tmp/t")), 0);
	CHECK_STR(box.out,
		  "a\netc d 755 0:0 \nlnk l 777 0:0 1 /tmp/t/real\nn1 d 755 0:0 \nn1/new f 644 0:0 \nn2 d 755 0:0 \n"
		  "n2/a.txt f 644 0:0 \nn3 d 755 0:0 \nn3/a.txt f 644 0:0 \nn3/b.txt f 4755 0:0 \nn4 d 755 0:0 \n"
		  "n4/.hid d 755 0:0 \nn4/.hid/h f 644 0:0 \nn4/hard f 644 7:8 \nn4/soft l 777 0:0 1 ../a.txt\n"
		  "n4/sub d 700 0:0 \nn4/sub/empty d 755 0:0 \nn4/sub/s.txt f 644 7:8 \nreal d 755 0:0 \n"
		  "real/a.txt f 644 0:0 \nreal/b.txt f 4755 0:0 \n");
	CHECK_EQ(ft_sh(&box, 0, "stat -c '%h %Y' /tmp/t/n4/hard /tmp/t/n4/sub /tmp/t/n1/new"), 0);
	CHECK_STR(box.out, "2 1500000000\n3 1500000000\n1 1500000000\n");
	ft_close(&box);
}

TEST(owners_modes_parents_and_exclusions_are_as_asked)
{
	CHECK(open_box());
	CHECK_EQ(copy("owner 1\nchown 5:6\nchmod 640\nsource d\nexclude d/.hid\nexclude **/soft\ndest /tmp/t/n/deep"),
		 0);
	CHECK_EQ(copy("owner 1\nparents 1\nsource d/./sub/*.txt\nsource d/.hid\ndest /tmp/t/p"), 0);
	CHECK_EQ(copy("owner 1\nchown daemon:bin\nhere f1\ncontent one\nhere f2\ncontent two\ndest /tmp/t/h/"
		      "\nfolder 1"),
		 0);
	CHECK_EQ(ft_sh(&box, 0,
		       "cat /tmp/t/h/f1 /tmp/t/h/f2; echo; rmdir /tmp/t/etc /tmp/t/real; rm /tmp/t/lnk; " LOOK(
			       "/tmp/t")),
		 0);
	CHECK_STR(box.out, "onetwo\nh d 755 1:2 \nh/f1 f 644 1:2 \nh/f2 f 644 1:2 \nn d 755 5:6 \nn/deep d 755 5:6 \n"
			   "n/deep/hard f 640 5:6 \nn/deep/sub d 640 5:6 \nn/deep/sub/empty d 640 5:6 \n"
			   "n/deep/sub/s.txt f 640 5:6 \np d 755 0:0 \np/d d 755 0:0 \np/d/.hid d 755 0:0 \np/d/.hid/h "
			   "f 644 0:0 \n"
			   "p/sub d 755 0:0 \np/sub/s.txt f 644 0:0 \n");
	CHECK_EQ(copy("owner 1\nchown nobody-here\nsource a.txt\ndest /tmp/t/x"), 1);
	CHECK_CONTAINS(said, "the image has no such user");
	ft_close(&box);
}

TEST(links_of_the_context_lead_nowhere_else)
{
	CHECK(open_box());
	CHECK_EQ(copy("owner 1\nsource abs\ndest /tmp/t/abs"), 0);
	CHECK_EQ(copy("owner 1\nsource link\ndest /tmp/t/link"), 0);
	CHECK_EQ(ft_sh(&box, 0, "cat /tmp/t/abs /tmp/t/link/sub/s.txt"), 0);
	CHECK_STR(box.out, "a\ns\n");
	CHECK_EQ(copy("owner 1\nsource out\ndest /tmp/t/out"), 1);
	CHECK_CONTAINS(said, "\"reason\":\"not_found\"");
	CHECK_EQ(copy("owner 1\nsource nothing*\ndest /tmp/t/out"), 1);
	CHECK_CONTAINS(said, "no file matches 'nothing*'");
	CHECK_EQ(copy("owner 1\nsource nothing*\nsource a.txt\ndest /tmp/t/one"), 0);
	CHECK_EQ(copy("owner 1\nsource a.txt\nsource b.txt\ndest /tmp/t/many"), 1);
	CHECK_CONTAINS(said, "must end with a slash");
	CHECK_EQ(copy("owner 1\nsource a.txt\ndest /tmp/t/one/x"), 1);
	CHECK_CONTAINS(said, "'/tmp/t/one' is not a folder");
	ft_close(&box);
}

TEST(archives_are_unpacked_only_when_they_are_some)
{
	CHECK(open_box());
	CHECK_EQ(copy("owner 1\nunpack 1\nsource x.tgz\nsource no.tar\ndest /tmp/t/u\nfolder 1"), 0);
	CHECK_EQ(ft_sh(&box, 0, "cd /tmp/t/u; ls -A; cat no.tar sub/s.txt; stat -c '%u:%g %h' sub/s.txt hard"), 0);
	CHECK_STR(box.out, ".hid\nhard\nno.tar\nsoft\nsub\nno\ns\n7:8 2\n7:8 2\n");
	CHECK_EQ(copy("owner 1\nsource x.tgz\ndest /tmp/t/v/"
		      "\nfolder 1"),
		 0);
	CHECK_EQ(ft_sh(&box, 0, "cmp /tmp/ctx/x.tgz /tmp/t/v/x.tgz"), 0);
	ft_close(&box);
}

TEST(a_digest_changes_with_what_is_selected_and_nothing_else)
{
	char first[65], with[65];

	CHECK(open_box());
	snprintf(first, sizeof(first), "%s", digest("owner 1\nsource d\ndest /x"));
	CHECK_EQ(strlen(first), 64);
	CHECK_EQ(ft_sh(&box, 0, "touch /tmp/ctx/d/sub/s.txt; echo c > /tmp/ctx/a.txt; chown 3 /tmp/ctx/d/sub"), 0);
	CHECK_STR(digest("owner 1\nsource d\ndest /x"), first);
	CHECK(strcmp(digest("source d\ndest /x"), first) != 0); /* owners count in this mode */
	CHECK_EQ(ft_sh(&box, 0, "chmod 750 /tmp/ctx/d/sub"), 0);
	snprintf(with, sizeof(with), "%s", digest("owner 1\nsource d\ndest /x"));
	CHECK(*with && strcmp(with, first) != 0);
	CHECK_EQ(ft_sh(&box, 0, "echo S > /tmp/ctx/d/sub/s.txt"), 0);
	CHECK(strcmp(digest("owner 1\nsource d\ndest /x"), with) != 0);
	CHECK_EQ(ft_sh(&box, 0, "echo s > /tmp/ctx/d/sub/s.txt; printf 'd/sub\\n' > /tmp/ctx/.dockerignore"), 0);
	CHECK_STR(digest("owner 1\nsource d\ndest /x"), with);
	CHECK(strcmp(digest("owner 1\nignore 1\nsource d\ndest /x"), with) != 0);
	CHECK_STR(digest("owner 1\nignore 1\nsource d/sub/s.txt\ndest /x"), "");
	CHECK_CONTAINS(said, "left out by .dockerignore");
	ft_close(&box);
}

TEST(a_context_is_made_as_it_was_packed)
{
	static const char *const option[] = { "--files", "--stream" };
	AUTO_CLOSE int tar = memfd_create("tar", MFD_CLOEXEC);
	int fd[2], r;
	static const char pack[] = "d=$(mktemp -d) && cd $d && mkdir -p a/b && echo x > a/b/x && chmod 4711 a/b/x && "
				   "ln a/b/x y && ln -s a z && "
				   "touch -d @1400000000 a && tar cf - --owner 1234 . | zstd; rm -r $d";
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		dup2(tar, STDOUT_FILENO);
		execl("/bin/sh", "sh", "-c", pack, NULL);
		_exit(127);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
	CHECK(ft_open(&box));
	CHECK_EQ(lseek(tar, 0, SEEK_SET), 0);
	fd[0] = ft_worker(&box, 0, "/");
	fd[1] = tar;
	r = run("context", option, fd, 2);
	fd_close(fd[0]);
	if (r)
		printf("# %s\n", said);
	CHECK_EQ(r, 0);
	CHECK_EQ(ft_sh(&box, 0,
		       "cd /context && find . -mindepth 1 -printf '%P %y %m %U:%G %l\\n' | sort; stat -c %h y; stat -c "
		       "%Y a"),
		 0);
	CHECK_STR(box.out, "a d 755 0:0 \na/b d 755 0:0 \na/b/x f 4711 0:0 \ny f 4711 0:0 \nz l 777 0:0 a\n"
			   "2\n1400000000\n");
	ft_close(&box);
}
