/* Finds the daemon's address and the caller's token. */
#include "client/settings.h"
#include "base/base.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_MAX (64 * KIB)

void settings_done(struct settings *s)
{
	free(s->url);
	free(s->socket);
	free(s->token);
	free(s->cacert);
	*s = (struct settings){ 0 };
}

static char *trim(char *text)
{
	char *end;

	text += strspn(text, " \t\r");
	end = text + strlen(text);
	while (end > text && strchr(" \t\r", end[-1]))
		*--end = '\0';
	return text;
}

static int take_line(char *line, const char *path, unsigned n, struct settings *s, struct err *e)
{
	char *key = trim(line), *value, **to;

	if (!*key || *key == '#')
		return 0;
	value = strchr(key, '=');
	if (!value)
		return err_set(e, ERR_INVALID, -EINVAL, "%s: line %u: expected NAME = VALUE", path, n);
	*value++ = '\0';
	key = trim(key);
	value = trim(value);
	to = !strcmp(key, "url")    ? &s->url :
	     !strcmp(key, "token")  ? &s->token :
	     !strcmp(key, "cacert") ? &s->cacert :
				      NULL;
	if (!to) {
		err_set(e, ERR_INVALID, -EINVAL, "%s: line %u: unknown setting '%.40s'", path, n, key);
		err_remedy(e, "valid settings are url, token and cacert");
		return -EINVAL;
	}
	free(*to);
	*to = strdup(value);
	return *to ? 0 : err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory");
}

static int read_all(int fd, const char *path, struct buf *b, struct err *e)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return err_sys(e, ERR_INVALID, -errno, "%s", path);
	if (!S_ISREG(st.st_mode))
		return err_set(e, ERR_INVALID, -EINVAL, "%s is not a regular file", path);
	if (st.st_uid != geteuid() && st.st_uid != 0) {
		err_set(e, ERR_DENIED, -EPERM, "%s belongs to another user", path);
		err_remedy(e, "make your own file");
		return -EPERM;
	}
	if (st.st_mode & 077) {
		err_set(e, ERR_DENIED, -EPERM, "%s can be read by others (mode %04o)", path, st.st_mode & 07777U);
		err_remedy(e, "chmod 600 %s", path);
		return -EPERM;
	}
	for (;;) {
		char *room = buf_room(b, 4096);
		ssize_t n;

		if (!room)
			return err_set(e, ERR_TOO_LARGE, -E2BIG, "%s is too large", path);
		n = read(fd, room, 4096);
		if (n < 0)
			return err_sys(e, ERR_INVALID, -errno, "read %s", path);
		if (!n)
			return 0;
		buf_added(b, (size_t)n);
	}
}

int settings_read(const char *path, struct settings *ret, struct err *e)
{
	AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	AUTO(buf_done) struct buf b = BUF_INIT(FILE_MAX);
	struct settings s = { 0 };
	unsigned n = 0;
	char *at, *line;
	int r;

	*ret = s;
	if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
		return 0;
	if (fd < 0)
		return err_sys(e, ERR_INVALID, -errno, "%s", path);
	r = read_all(fd, path, &b, e);
	at = b.data;
	while (r == 0 && at && (line = strsep(&at, "\n")))
		r = take_line(line, path, ++n, &s, e);
	if (r < 0)
		settings_done(&s);
	else
		*ret = s;
	return r;
}

static int set(char **to, const char *value, struct err *e)
{
	free(*to);
	*to = strdup(value);
	return *to ? 0 : err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory");
}

static int set_url(struct settings *s, const char *url, struct err *e)
{
	size_t len;
	int r;

	if (!strncmp(url, "unix:", 5)) {
		const char *path = url + 5;

		while (path[0] == '/' && path[1] == '/')
			path++;
		if (path[0] != '/')
			return err_set(e, ERR_INVALID, -EINVAL, "'%.100s': must be unix:/PATH", url);
		r = set(&s->socket, path, e);
		return r < 0 ? r : set(&s->url, "http://localhost", e);
	}
	if (strncmp(url, "http://", 7) && strncmp(url, "https://", 8)) {
		err_set(e, ERR_INVALID, -EINVAL, "'%.100s' is not the address of a daemon", url);
		err_remedy(e, "use http://HOST:PORT, https://HOST:PORT or unix:/PATH");
		return -EINVAL;
	}
	if (strpbrk(url, "?#@") || strpbrk(url, " \t\r\n"))
		return err_set(e, ERR_INVALID, -EINVAL, "'%.100s': must have only a host, a port and a path", url);
	r = set(&s->url, url, e);
	if (r < 0)
		return r;
	for (len = strlen(s->url); len && s->url[len - 1] == '/'; len--)
		s->url[len - 1] = '\0';
	return 0;
}

/* The daemon of this machine; the one that a root user started before one's own. */
static int set_local(struct settings *s, struct err *e)
{
	const char *home = getenv("HOME"), *data = getenv("XDG_DATA_HOME");
	char own[PATH_MAX] = "";
	const char *const places[] = { "/run/cloche/cloche.sock", "/var/lib/cloche/cloche.sock", own };

	if (data && *data == '/')
		snprintf(own, sizeof(own), "%s/cloche/cloche.sock", data);
	else if (home && *home == '/')
		snprintf(own, sizeof(own), "%s/.local/share/cloche/cloche.sock", home);
	for (size_t i = 0; i < ARRAY_LEN(places); i++) {
		struct stat st;
		int r;

		if (stat(places[i], &st) < 0 || !S_ISSOCK(st.st_mode))
			continue;
		r = set(&s->socket, places[i], e);
		return r < 0 ? r : set(&s->url, "http://localhost", e);
	}
	err_set(e, ERR_NOT_FOUND, -ENOENT, "no daemon found on this host");
	err_remedy(e, "start `cloche serve`, or set CLOCHE_URL and CLOCHE_TOKEN");
	return -ENOENT;
}

static int file_path(char *buf, size_t size)
{
	const char *home = getenv("HOME"), *config = getenv("XDG_CONFIG_HOME");
	int n = -1;

	if (config && *config == '/')
		n = snprintf(buf, size, "%s/cloche/config", config);
	else if (home && *home == '/')
		n = snprintf(buf, size, "%s/.config/cloche/config", home);
	return n > 0 && (size_t)n < size ? 0 : -ENOENT;
}

static const char *given(const char *option, const char *variable)
{
	const char *value = option ? option : getenv(variable);

	return value && *value ? value : NULL;
}

int settings_find(const struct conn_opts *o, struct settings *ret, struct err *e)
{
	const char *url = given(o->url, "CLOCHE_URL"), *token = given(o->token, "CLOCHE_TOKEN");
	const char *cacert = given(NULL, "CLOCHE_CACERT");
	struct settings s = { 0 }, file = { 0 };
	char path[PATH_MAX];
	int r = 0;

	/* With both given the file is not needed, so a bad one does not matter. */
	if (!(url && token) && file_path(path, sizeof(path)) == 0)
		r = settings_read(path, &file, e);
	if (!token && file.token && (!url || !file.url || !strcmp(url, file.url)))
		token = file.token;
	if (!cacert && file.cacert && *file.cacert)
		cacert = file.cacert;
	if (r == 0 && token)
		r = set(&s.token, token, e);
	if (r == 0 && token && strpbrk(token, "\r\n"))
		r = err_set(e, ERR_INVALID, -EINVAL, "the token contains a line break");
	if (r == 0 && cacert)
		r = set(&s.cacert, cacert, e);
	if (r == 0 && (url || file.url))
		r = set_url(&s, url ? url : file.url, e);
	else if (r == 0)
		r = set_local(&s, e);
	settings_done(&file);
	if (r < 0)
		settings_done(&s);
	else
		*ret = s;
	return r;
}
