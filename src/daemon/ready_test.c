#include "daemon/ready.h"
#include "base/base.h"
#include "base/test.h"
#include "config.h"
#include "daemon/conf.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* A real datagram socket, as systemd has it. */
static int open_at(const char *path)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));

	memcpy(a.sun_path, path, strlen(path));
	if (path[0] == '@')
		a.sun_path[0] = '\0';
	return bind(fd, (struct sockaddr *)&a, len + (path[0] != '@')) < 0 ? -errno : fd;
}

static void check_sent(const char *path)
{
	AUTO_CLOSE int fd = open_at(path);
	char got[64] = "";

	CHECK(fd >= 0);
	setenv("NOTIFY_SOCKET", path, 1);
	CHECK_EQ(ready_notify("READY=1\nMAINPID=5"), 1);
	CHECK_EQ(recv(fd, got, sizeof(got) - 1, 0), 17);
	CHECK_STR(got, "READY=1\nMAINPID=5");
}

TEST(systemd_is_told_by_path_and_by_abstract_name)
{
	char dir[] = "/tmp/cloche-ready-XXXXXX", path[64], name[64];

	CHECK(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/n", dir);
	check_sent(path);
	unlink(path);
	rmdir(dir);
	snprintf(name, sizeof(name), "@cloche-ready-%d", getpid());
	check_sent(name);
}

TEST(nobody_there_is_told_and_nothing_asked_is_nothing_done)
{
	unsetenv("NOTIFY_SOCKET");
	CHECK_EQ(ready_notify("READY=1"), 0);
	setenv("NOTIFY_SOCKET", "/tmp/cloche-nobody-is-here", 1);
	CHECK_EQ(ready_notify("READY=1"), -ENOENT);
	setenv("NOTIFY_SOCKET", "relative", 1);
	CHECK_EQ(ready_notify("READY=1"), -EINVAL);
	unsetenv("NOTIFY_SOCKET");
}

static struct daemon_config c;

static const char *lines(const char *token, struct buf *b)
{
	struct err e;

	if (conf_finish(&c, &e) < 0 ||
	    ready_lines(&(struct ready_text){ .config = &c, .shown = c.nlisten, .token = token }, b) < 0)
		return "failed";
	return buf_str(b);
}

TEST(a_new_token_is_printed_with_a_line_to_try)
{
	AUTO(buf_done) struct buf b = BUF_INIT(4096);

	conf_init(&c);
	CHECK_STR(lines("cloche_x", &b),
		  "cloche " CLOCHE_VERSION " serving on http://127.0.0.1:7070 (data /var/lib/cloche)\n"
		  "token: cloche_x\n"
		  "try: curl -sX POST -H 'Authorization: Bearer cloche_x' "
		  "http://127.0.0.1:7070/v1/sandboxes\n");
}

TEST(without_a_token_only_the_address_is_printed)
{
	AUTO(buf_done) struct buf b = BUF_INIT(4096);

	conf_init(&c);
	CHECK_STR(lines("", &b), "cloche " CLOCHE_VERSION " serving on http://127.0.0.1:7070 (data /var/lib/cloche)\n");
}

TEST(a_token_in_a_file_is_not_printed)
{
	AUTO(buf_done) struct buf b = BUF_INIT(4096);
	struct err e;

	conf_init(&c);
	CHECK_EQ(conf_set(&c, "token_file", "/a b/it's", &e), 0);
	CHECK_EQ(conf_set(&c, "listen", "unix:/x y", &e), 0);
	CHECK_EQ(conf_set(&c, "listen", "[::1]:5", &e), 0);
	CHECK_EQ(conf_set(&c, "tls_cert", "/c", &e), 0);
	CHECK_EQ(conf_set(&c, "tls_key", "/k", &e), 0);
	CHECK_STR(lines("secret", &b),
		  "cloche " CLOCHE_VERSION " serving on unix:/x y and https://[::1]:5 (data /var/lib/cloche)\n"
		  "try: curl -sX POST --unix-socket '/x y' -H \"Authorization: Bearer $(cat '/a b/it'\\''s')\" "
		  "http://localhost/v1/sandboxes\n");
}
