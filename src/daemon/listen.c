/* Opens listening sockets, those passed by systemd among them. */
#include "daemon/listen.h"
#include "base/base.h"
#include "base/log.h"
#include "base/str.h"
#include "base/sys.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <unistd.h>

static int bad(struct err *e, const char *text, const char *why)
{
	return err_set(e, ERR_INVALID, -EINVAL, "address '%.60s': %s", text, why);
}

static int parse_unix(const char *text, struct listen_addr *ret, struct err *e)
{
	size_t len = strlen(text);

	*ret = (struct listen_addr){ .is_unix = true, .path = text + 5 };
	if (text[5] != '/' || text[len - 1] == '/')
		return bad(e, text, "must be unix: and the absolute path of a socket");
	return 0;
}

static bool host_ok(const char *host, bool v6)
{
	unsigned char addr[16];

	if (v6)
		return inet_pton(AF_INET6, host, addr) == 1;
	if (!host[strspn(host, "0123456789.")])
		return inet_pton(AF_INET, host, addr) == 1;
	return !host[strspn(host, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-")];
}

int listen_parse(const char *text, struct listen_addr *ret, struct err *e)
{
	static const char form[] = "must be HOST:PORT, [V6ADDRESS]:PORT or unix:/PATH";
	bool v6 = text[0] == '[';
	struct listen_addr a = { 0 };
	const char *host = text, *end, *port;
	uint64_t n;

	if (!strncmp(text, "unix:", 5))
		return parse_unix(text, ret, e);
	if (v6) {
		host++;
		end = strchr(host, ']');
		port = end && end[1] == ':' ? end + 2 : NULL;
	} else {
		end = strchr(host, ':');
		port = end ? end + 1 : NULL;
	}
	if (!port || (!v6 && strchr(port, ':')))
		return bad(e, text, form);
	if (end == host)
		return bad(e, text, "the host is missing; use 0.0.0.0 for all addresses");
	if ((size_t)(end - host) >= sizeof(a.host))
		return bad(e, text, "the host is too long");
	memcpy(a.host, host, (size_t)(end - host));
	if (!host_ok(a.host, v6))
		return bad(e, text, "the host is invalid");
	if (parse_u64(port, &n, NULL) < 0 || n > 65535 || strlen(port) > 5)
		return bad(e, text, "the port must be between 0 and 65535");
	snprintf(a.port, sizeof(a.port), "%llu", (unsigned long long)n);
	*ret = a;
	return 0;
}

static void tell_backlog(void)
{
	unsigned long long max;

	if (fd_get_u64(AT_FDCWD, "/proc/sys/net/core/somaxconn", &max) == 0 && max < LISTEN_BACKLOG)
		log_debug("net.core.somaxconn is %llu: no more connections wait than that", max);
}

static int open_tcp(const struct addrinfo *ai)
{
	AUTO_CLOSE int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	const int on = 1;

	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0)
		return -errno;
	/* Else [::] would take the port of 0.0.0.0 along. */
	if (ai->ai_family == AF_INET6 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on)) < 0)
		return -errno;
	if (bind(fd, ai->ai_addr, ai->ai_addrlen) < 0 || listen(fd, LISTEN_BACKLOG) < 0)
		return -errno;
	return TAKE_FD(fd);
}

static int open_host(const char *text, const struct listen_addr *a, struct err *e)
{
	struct addrinfo hint = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV | AI_NUMERICHOST };
	struct addrinfo *found;
	int r;

	r = getaddrinfo(a->host, a->port, &hint, &found);
	if (r == EAI_NONAME) {
		hint.ai_flags &= ~AI_NUMERICHOST;
		r = getaddrinfo(a->host, a->port, &hint, &found);
	}
	if (r)
		return err_set(e, ERR_INVALID, -EADDRNOTAVAIL, "address '%.60s': %s", text, gai_strerror(r));
	r = open_tcp(found);
	freeaddrinfo(found);
	if (r < 0)
		err_sys(e, ERR_CONFLICT, r, "listen on '%.60s'", text);
	if (r == -EADDRINUSE)
		err_remedy(e, "use another address with --listen, or stop the program that listens there");
	return r;
}

/* Long paths do not fit into an address, and folders may be renamed: by the folder's descriptor neither matters. */
static int place_of(int dirfd, const char *name, struct sockaddr_un *a, struct err *e)
{
	*a = (struct sockaddr_un){ .sun_family = AF_UNIX };
	if ((size_t)snprintf(a->sun_path, sizeof(a->sun_path), "/proc/self/fd/%d/%s", dirfd, name) >=
	    sizeof(a->sun_path))
		return err_set(e, ERR_INVALID, -ENAMETOOLONG, "socket '%.60s': the path is too long", name);
	return 0;
}

static int clear_place(int dirfd, const char *name, const struct sockaddr_un *a, const struct listen_unix_opts *o,
		       struct err *e)
{
	AUTO_CLOSE int probe = -1;
	struct stat st;
	int r;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : err_sys(e, ERR_INVALID, -errno, "socket '%.60s'", name);
	if (!S_ISSOCK(st.st_mode) && !o->ours)
		return err_set(e, ERR_CONFLICT, -EEXIST, "socket '%.60s': the path exists and is not a socket", name);
	if (!o->ours) {
		probe = socket(AF_UNIX, o->type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		if (probe < 0)
			return err_sys(e, ERR_EXHAUSTED, -errno, "make a socket");
		if (connect(probe, (const struct sockaddr *)a, sizeof(*a)) == 0 || errno != ECONNREFUSED)
			return err_set(e, ERR_CONFLICT, -EADDRINUSE, "socket '%.60s': another program listens there",
				       name);
	}
	r = sys_unlinkat(dirfd, name, 0);
	return r < 0 && r != -ENOENT ? err_sys(e, ERR_INVALID, r, "remove the old socket '%.60s'", name) : 0;
}

int listen_unix_at(int dirfd, const char *name, const struct listen_unix_opts *o, struct err *e)
{
	AUTO_CLOSE int fd = -1;
	struct sockaddr_un a;
	mode_t old;
	int r = place_of(dirfd, name, &a, e);

	if (r == 0)
		r = clear_place(dirfd, name, &a, o, e);
	if (r < 0)
		return r;
	fd = socket(AF_UNIX, o->type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return err_sys(e, ERR_EXHAUSTED, -errno, "make a socket");
	/* By the mask, since a later chmod could reach another file. */
	old = umask(0777 & ~(mode_t)o->mode);
	r = bind(fd, (const struct sockaddr *)&a, sizeof(a)) < 0 ? -errno : 0;
	umask(old);
	if (r == 0 && listen(fd, LISTEN_BACKLOG) < 0)
		r = -errno;
	return r < 0 ? err_sys(e, ERR_CONFLICT, r, "listen on socket '%.60s'", name) : TAKE_FD(fd);
}

static int open_path(const char *text, const char *path, struct err *e)
{
	const struct listen_unix_opts o = { .type = SOCK_STREAM, .mode = 0666 };
	const char *slash = strrchr(path, '/');
	AUTO_CLOSE int dirfd = -1;
	char dir[DAEMON_PATH];
	int r;

	if ((size_t)snprintf(dir, sizeof(dir), "%.*s/", (int)(slash - path), path) >= sizeof(dir))
		return bad(e, text, "too long");
	dirfd = sys_openat(AT_FDCWD, dir, O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
	if (dirfd < 0)
		return err_sys(e, ERR_INVALID, dirfd, "address '%.120s'", text);
	r = listen_unix_at(dirfd, slash + 1, &o, e);
	return r < 0 ? err_wrap(e, r, "%.100s", text) : r;
}

int listen_open(const char *text, struct err *e)
{
	struct listen_addr a;
	int r = listen_parse(text, &a, e);

	if (r < 0)
		return r;
	tell_backlog();
	return a.is_unix ? open_path(text, a.path, e) : open_host(text, &a, e);
}

int listen_text(int fd, char *text, size_t size, struct err *e)
{
	union {
		struct sockaddr sa;
		struct sockaddr_in in;
		struct sockaddr_in6 in6;
		struct sockaddr_un un;
		struct sockaddr_storage all;
	} a = { 0 };
	socklen_t len = sizeof(a);
	char host[INET6_ADDRSTRLEN];
	int n = -1;

	if (getsockname(fd, &a.sa, &len) < 0)
		return err_sys(e, ERR_INVALID, -errno, "descriptor %d", fd);
	if (a.sa.sa_family == AF_INET && inet_ntop(AF_INET, &a.in.sin_addr, host, sizeof(host)))
		n = snprintf(text, size, "%s:%u", host, ntohs(a.in.sin_port));
	else if (a.sa.sa_family == AF_INET6 && inet_ntop(AF_INET6, &a.in6.sin6_addr, host, sizeof(host)))
		n = snprintf(text, size, "[%s]:%u", host, ntohs(a.in6.sin6_port));
	else if (a.sa.sa_family == AF_UNIX && len > offsetof(struct sockaddr_un, sun_path) && a.un.sun_path[0])
		n = snprintf(text, size, "unix:%.*s", (int)sizeof(a.un.sun_path), a.un.sun_path);
	else if (a.sa.sa_family == AF_UNIX)
		n = snprintf(text, size, "unix:@"); /* no path: reachable, but not by a name we could print */
	if (n < 0 || (size_t)n >= size)
		return err_set(e, ERR_INVALID, -EAFNOSUPPORT, "descriptor %d: unknown kind of address", fd);
	return 0;
}

bool listen_is_local(const char *text)
{
	struct listen_addr a;
	struct in6_addr six;
	struct in_addr four;

	if (listen_parse(text, &a, NULL) < 0 || a.is_unix)
		return true;
	if (inet_pton(AF_INET, a.host, &four) == 1)
		return ntohl(four.s_addr) >> 24 == 127;
	if (inet_pton(AF_INET6, a.host, &six) == 1)
		return IN6_IS_ADDR_LOOPBACK(&six) || (IN6_IS_ADDR_V4MAPPED(&six) && six.s6_addr[12] == 127);
	return !strcmp(a.host, "localhost");
}

void listen_url(const char *text, bool tls, char *url, size_t size)
{
	bool is_unix = !strncmp(text, "unix:", 5);

	snprintf(url, size, "%s%s", is_unix ? "" : tls ? "https://" : "http://", text);
}

int listen_activated(void)
{
	const char *pid = getenv("LISTEN_PID"), *fds = getenv("LISTEN_FDS");
	uint64_t who, n = 0;

	if (!pid || !fds || parse_u64(pid, &who, NULL) < 0 || who != (uint64_t)getpid() ||
	    parse_u64(fds, &n, NULL) < 0 || n > 1024)
		n = 0;
	unsetenv("LISTEN_PID");
	unsetenv("LISTEN_FDS");
	unsetenv("LISTEN_FDNAMES");
	return (int)n;
}

int listen_adopt(int fd, struct err *e)
{
	int type = 0, listening = 0, r;
	socklen_t len = sizeof(int);

	if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) < 0)
		return err_sys(e, ERR_INVALID, -errno, "passed descriptor %d", fd);
	len = sizeof(int);
	if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &len) < 0 || type != SOCK_STREAM || !listening)
		return err_set(e, ERR_INVALID, -EINVAL, "passed descriptor %d: not a listening stream socket", fd);
	r = fd_set_nonblock(fd);
	if (r == 0)
		r = sys_fcntl(fd, F_SETFD, FD_CLOEXEC);
	return r < 0 ? err_sys(e, ERR_INTERNAL, r, "passed descriptor %d", fd) : 0;
}
