/* Tells systemd and the user that the daemon serves. */
#include "daemon/ready.h"
#include "base/base.h"
#include "config.h"
#include "daemon/listen.h"

#include <sys/socket.h>
#include <sys/un.h>

int ready_notify(const char *state)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	AUTO_CLOSE int fd = -1;
	socklen_t len;
	size_t n;

	if (!path || !path[0])
		return 0;
	n = strlen(path);
	if ((path[0] != '/' && path[0] != '@') || n >= sizeof(a.sun_path))
		return -EINVAL;
	memcpy(a.sun_path, path, n);
	len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
	if (path[0] == '@')
		a.sun_path[0] = '\0';
	else
		len++; /* the NUL belongs to a path, but would be part of an abstract name */
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (sendto(fd, state, strlen(state), MSG_NOSIGNAL | MSG_DONTWAIT, (const struct sockaddr *)&a, len) < 0)
		return -errno;
	return 1;
}

/* Quotes the text for a shell. */
static int add_quoted(struct buf *to, const char *text)
{
	int r;

	if (!text[strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+@%:,")])
		return buf_adds(to, text);
	r = buf_addc(to, '\'');
	for (; r == 0 && *text; text++)
		r = *text == '\'' ? buf_adds(to, "'\\''") : buf_addc(to, *text);
	return r < 0 ? r : buf_addc(to, '\'');
}

static int add_try(struct buf *to, const struct ready_text *t)
{
	const struct daemon_config *c = t->config;
	bool is_unix = !strncmp(c->listen[0].text, "unix:", 5);
	char url[160];
	int r = buf_adds(to, "try: curl -sX POST ");

	if (r == 0 && is_unix) {
		r = buf_adds(to, "--unix-socket ");
		if (r == 0)
			r = add_quoted(to, c->listen[0].text + 5);
		if (r == 0)
			r = buf_addc(to, ' ');
	}
	if (r == 0 && c->token_file[0]) {
		r = buf_adds(to, "-H \"Authorization: Bearer $(cat ");
		if (r == 0)
			r = add_quoted(to, c->token_file);
		if (r == 0)
			r = buf_adds(to, ")\"");
	} else if (r == 0) {
		r = buf_addf(to, "-H 'Authorization: Bearer %s'", t->token);
	}
	listen_url(c->listen[0].text, c->listen[0].tls, url, sizeof(url));
	return r < 0 ? r : buf_addf(to, " %s/v1/sandboxes\n", is_unix ? "http://localhost" : url);
}

int ready_lines(const struct ready_text *t, struct buf *to)
{
	const struct daemon_config *c = t->config;
	int r = buf_adds(to, "cloche " CLOCHE_VERSION " serving on ");

	for (unsigned i = 0; r == 0 && i < t->shown; i++) {
		char url[160];

		listen_url(c->listen[i].text, c->listen[i].tls, url, sizeof(url));
		r = buf_addf(to, "%s%s", i ? " and " : "", url);
	}
	if (r == 0)
		r = buf_addf(to, " (data %s)\n", c->data);
	if (r == 0 && t->token[0] && !c->token_file[0])
		r = buf_addf(to, "token: %s\n", t->token);
	if (r == 0 && t->token[0])
		r = add_try(to, t);
	return r;
}
