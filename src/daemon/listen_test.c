#include "daemon/listen.h"
#include "base/base.h"
#include "base/test.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct err e;

TEST(what_other_machines_reach_is_known)
{
	CHECK(listen_is_local("127.0.0.1:7070"));
	CHECK(listen_is_local("127.9.9.9:1"));
	CHECK(listen_is_local("[::1]:1"));
	CHECK(listen_is_local("localhost:1"));
	CHECK(listen_is_local("unix:/run/x"));
	CHECK(!listen_is_local("0.0.0.0:7070"));
	CHECK(!listen_is_local("[::]:7070"));
	CHECK(!listen_is_local("192.168.0.5:1"));
	CHECK(!listen_is_local("example:1"));
}

TEST(addresses_are_understood)
{
	struct listen_addr a;

	CHECK_EQ(listen_parse("127.0.0.1:7070", &a, &e), 0);
	CHECK_STR(a.host, "127.0.0.1");
	CHECK_STR(a.port, "7070");
	CHECK(!a.is_unix);
	CHECK_EQ(listen_parse("[::1]:0", &a, &e), 0);
	CHECK_STR(a.host, "::1");
	CHECK_STR(a.port, "0");
	CHECK_EQ(listen_parse("localhost:65535", &a, &e), 0);
	CHECK_STR(a.host, "localhost");
	CHECK_EQ(listen_parse("unix:/run/x.sock", &a, &e), 0);
	CHECK(a.is_unix);
	CHECK_STR(a.path, "/run/x.sock");
}

TEST(what_is_no_address_is_refused)
{
	static const char *const bad[] = { "",
					   "7070",
					   ":7070",
					   "127.0.0.1",
					   "127.0.0.1:",
					   "127.0.0.1:x",
					   "127.0.0.1:65536",
					   "127.0.0.1:-1",
					   "127.0.0.1:+1",
					   "::1:7070",
					   "[::1]",
					   "[::1:7070",
					   "[::1]7070",
					   "[]:1",
					   "[127.0.0.1]:1",
					   "1.2.3:1",
					   "1.2.3.4.5:1",
					   "a b:1",
					   "unix:x",
					   "unix:",
					   "unix:/",
					   "127.0.0.1:00000080",
					   "tcp://1.2.3.4:5" };
	struct listen_addr a;

	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		if (listen_parse(bad[i], &a, &e) != -EINVAL)
			TEST_FAIL("'%s' was taken", bad[i]);
}

static int reach(const char *text)
{
	unsigned port = 0;
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
	AUTO_CLOSE int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (sscanf(text, "127.0.0.1:%u", &port) != 1)
		return -EINVAL;
	a.sin_port = htons((uint16_t)port);
	return connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0 ? -errno : 0;
}

TEST(port_0_becomes_a_port_that_can_be_reached)
{
	AUTO_CLOSE int fd = listen_open("127.0.0.1:0", &e), again = -1;
	char text[64], url[80];

	CHECK(fd >= 0);
	CHECK_EQ(listen_text(fd, text, sizeof(text), &e), 0);
	CHECK(strcmp(text, "127.0.0.1:0") != 0);
	CHECK_EQ(reach(text), 0);
	listen_url(text, true, url, sizeof(url));
	CHECK_EQ(strncmp(url, "https://127.0.0.1:", 18), 0);
	again = listen_open(text, &e);
	CHECK_EQ(again, -EADDRINUSE);
	CHECK_CONTAINS(e.remedy, "--listen");
	CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	CHECK(fcntl(fd, F_GETFL) & O_NONBLOCK);
}

TEST(both_families_have_the_same_port)
{
	AUTO_CLOSE int six = listen_open("[::]:0", &e), four = -1;
	char text[64], other[80];

	CHECK(six >= 0);
	CHECK_EQ(listen_text(six, text, sizeof(text), &e), 0);
	CHECK_EQ(strncmp(text, "[::]:", 5), 0);
	snprintf(other, sizeof(other), "0.0.0.0:%s", text + 5);
	four = listen_open(other, &e);
	CHECK(four >= 0);
}

static char dir[64];

static int begin(void)
{
	snprintf(dir, sizeof(dir), "/tmp/cloche-listen-XXXXXX");
	return mkdtemp(dir) ? open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
}

TEST(a_unix_socket_has_its_mode_and_replaces_only_a_dead_one)
{
	const struct listen_unix_opts o = { .type = SOCK_STREAM, .mode = 0666 };
	AUTO_CLOSE int dirfd = begin(), fd = -1, again = -1;
	char text[96];
	struct stat st;

	CHECK(dirfd >= 0);
	fd = listen_unix_at(dirfd, "s", &o, &e);
	CHECK(fd >= 0);
	CHECK_EQ(fstatat(dirfd, "s", &st, 0), 0);
	CHECK_EQ(st.st_mode & 07777, 0666);
	CHECK_EQ(listen_unix_at(dirfd, "s", &o, &e), -EADDRINUSE);
	snprintf(text, sizeof(text), "unix:%s/s", dir);
	CHECK_EQ(listen_open(text, &e), -EADDRINUSE);
	fd_close(TAKE_FD(fd));
	again = listen_open(text, &e);
	CHECK(again >= 0);
	unlinkat(dirfd, "s", 0);
	CHECK_EQ(mkdirat(dirfd, "s", 0700), 0);
	CHECK_EQ(listen_unix_at(dirfd, "s", &o, &e), -EEXIST);
	unlinkat(dirfd, "s", AT_REMOVEDIR);
	rmdir(dir);
}

TEST(a_link_in_the_way_is_not_followed)
{
	const struct listen_unix_opts o = { .type = SOCK_SEQPACKET, .mode = 0600, .ours = true };
	AUTO_CLOSE int dirfd = begin(), fd = -1;
	struct stat st;

	CHECK(dirfd >= 0);
	CHECK_EQ(symlinkat("/tmp/cloche-elsewhere", dirfd, "s"), 0);
	fd = listen_unix_at(dirfd, "s", &o, &e);
	CHECK(fd >= 0);
	CHECK_EQ(fstatat(dirfd, "s", &st, AT_SYMLINK_NOFOLLOW), 0);
	CHECK(S_ISSOCK(st.st_mode));
	CHECK_EQ(st.st_mode & 07777, 0600);
	CHECK(access("/tmp/cloche-elsewhere", F_OK) < 0);
	unlinkat(dirfd, "s", 0);
	rmdir(dir);
}

TEST(a_path_too_long_for_an_address_works)
{
	const struct listen_unix_opts o = { .type = SOCK_STREAM, .mode = 0666 };
	AUTO_CLOSE int dirfd = begin(), deep = -1, fd = -1;
	char name[121];

	CHECK(dirfd >= 0);
	memset(name, 'd', 120);
	name[120] = '\0';
	CHECK_EQ(mkdirat(dirfd, name, 0700), 0);
	deep = openat(dirfd, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
	fd = listen_unix_at(deep, "s", &o, &e);
	CHECK(fd >= 0);
	unlinkat(deep, "s", 0);
	unlinkat(dirfd, name, AT_REMOVEDIR);
	rmdir(dir);
}

/* ---- socket activation: this program, started again as systemd would -------------------------------------------- */

/* In the started one, before main(): its exit code says what it saw. */
__attribute__((constructor)) static void activated(void)
{
	const char *want = getenv("CLOCHE_TEST_ACTIVATED");
	char text[128];

	if (!want)
		return;
	if (listen_activated() != 2 || getenv("LISTEN_FDS") || getenv("LISTEN_PID") || listen_activated() != 0)
		_exit(1);
	if (listen_adopt(3, &e) < 0 || listen_text(3, text, sizeof(text), &e) < 0 || strcmp(text, want) != 0)
		_exit(2);
	if (listen_adopt(4, &e) < 0 || listen_text(4, text, sizeof(text), &e) < 0 ||
	    strncmp(text, "unix:/tmp/", 10) != 0)
		_exit(3);
	if (!(fcntl(3, F_GETFD) & FD_CLOEXEC) || !(fcntl(4, F_GETFL) & O_NONBLOCK))
		_exit(4);
	_exit(42);
}

static int start(int tcp, int un, const char *want, int pid_off)
{
	pid_t pid = fork();
	char number[16];
	int status = 0;

	if (pid == 0) {
		/* Out of the way of 3 and 4 first. */
		int a = fcntl(tcp, F_DUPFD, 100), b = fcntl(un, F_DUPFD, 100);

		dup2(a, 3);
		dup2(b, 4);
		snprintf(number, sizeof(number), "%d", getpid() + pid_off);
		setenv("LISTEN_PID", number, 1);
		setenv("LISTEN_FDS", "2", 1);
		setenv("CLOCHE_TEST_ACTIVATED", want, 1);
		execl("/proc/self/exe", "again", NULL);
		_exit(100);
	}
	return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(sockets_passed_by_systemd_are_found)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	AUTO_CLOSE int dirfd = begin(), tcp = listen_open("127.0.0.1:0", &e);
	AUTO_CLOSE int un = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char text[128];

	CHECK(dirfd >= 0 && tcp >= 0 && un >= 0);
	snprintf(a.sun_path, sizeof(a.sun_path), "%s/s", dir);
	CHECK_EQ(bind(un, (struct sockaddr *)&a, sizeof(a)), 0);
	CHECK_EQ(listen(un, 1), 0);
	CHECK_EQ(listen_text(tcp, text, sizeof(text), &e), 0);
	CHECK_EQ(start(tcp, un, text, 0), 42);
	/* Meant for another process: as if there were none. */
	CHECK_EQ(start(tcp, un, text, 1), 1);
	unlinkat(dirfd, "s", 0);
	rmdir(dir);
}

TEST(only_a_listening_stream_socket_is_taken)
{
	AUTO_CLOSE int plain = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	AUTO_CLOSE int datagram = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	AUTO_CLOSE int file = open("/dev/null", O_RDONLY | O_CLOEXEC);

	CHECK_EQ(listen_adopt(plain, &e), -EINVAL);
	CHECK_EQ(listen_adopt(datagram, &e), -EINVAL);
	CHECK_EQ(listen_adopt(file, &e), -ENOTSOCK);
}
