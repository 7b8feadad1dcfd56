/* A client of the daemon's API, for a measurement. */
#include "daemon.h"
#include "base/base.h"

#include <netinet/tcp.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>

#define ANSWER_MAX (4 * MIB)
#define READ_SIZE (16 * KIB)
#define PATIENCE_S 60

int client_open(struct client *c, const struct serve *s, struct err *e)
{
	struct timeval patience = { .tv_sec = PATIENCE_S };
	int one = 1;

	*c = (struct client){ .fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0),
			      .serve = s,
			      .in = BUF_INIT(ANSWER_MAX) };
	if (c->fd < 0)
		return err_sys(e, ERR_EXHAUSTED, -errno, "make a socket");
	setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	setsockopt(c->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	setsockopt(c->fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	if (connect(c->fd, (const struct sockaddr *)&s->addr, sizeof(s->addr)) < 0)
		return err_sys(e, ERR_LOST, -errno, "connect to the daemon");
	return 0;
}

void client_close(struct client *c)
{
	if (!c->serve)
		return;
	fd_close(c->fd);
	c->fd = -1;
	c->serve = NULL;
	buf_done(&c->in);
}

int client_send(struct client *c, const char *method, const char *path, const char *accept, const char *body,
		struct err *e)
{
	char head[1024];
	int n, r;

	buf_clear(&c->in);
	n = snprintf(head, sizeof(head), "%s %s HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer %s\r\n%s%s%s", method,
		     path, c->serve->token, accept ? "Accept: " : "", accept ? accept : "", accept ? "\r\n" : "");
	if (body)
		n += snprintf(head + n, sizeof(head) - (size_t)n, "Content-Length: %zu\r\n\r\n%s", strlen(body), body);
	else
		n += snprintf(head + n, sizeof(head) - (size_t)n, "\r\n");
	assert(n > 0 && n < (int)sizeof(head));
	r = fd_write_all(c->fd, head, (size_t)n);
	return r < 0 ? err_sys(e, ERR_LOST, r, "%s %.80s: send", method, path) : 0;
}

/* The value of a header, NULL when it is not there. */
static const char *header(const char *head, const char *name)
{
	size_t n = strlen(name);

	for (const char *at = strstr(head, "\r\n"); at && at[2] != '\r'; at = strstr(at + 2, "\r\n"))
		if (!strncasecmp(at + 2, name, n) && at[2 + n] == ':')
			return at + 2 + n + 1 + strspn(at + 2 + n + 1, " ");
	return NULL;
}

static int status_of(const struct client *c)
{
	return c->in.len > 12 && !strncmp(c->in.data, "HTTP/1.1 ", 9) ? (int)strtol(c->in.data + 9, NULL, 10) : 0;
}

/* One read into ->in. */
static int more(struct client *c, struct err *e)
{
	char *room = buf_room(&c->in, READ_SIZE);
	ssize_t n;

	if (!room)
		return err_set(e, ERR_TOO_LARGE, -E2BIG, "an answer beyond %llu bytes", ANSWER_MAX);
	do
		n = recv(c->fd, room, READ_SIZE, 0);
	while (n < 0 && errno == EINTR);
	if (n == 0)
		return err_set(e, ERR_LOST, -EPIPE, "the daemon hung up");
	if (n < 0)
		return err_sys(e, ERR_LOST, -errno, "wait for the daemon's answer");
	buf_added(&c->in, (size_t)n);
	return 0;
}

int client_step(struct client *c, struct answer *ret, struct err *e)
{
	const char *end, *length;
	size_t head, want;
	int r = more(c, e);

	if (r < 0)
		return r;
	end = strstr(c->in.data, "\r\n\r\n");
	if (!end)
		return 0;
	head = (size_t)(end - c->in.data) + 4;
	length = header(c->in.data, "content-length");
	ret->status = status_of(c);
	if (!length && ret->status != 204)
		return err_set(e, ERR_LOST, -EBADMSG, "an answer without a length: %.60s", c->in.data);
	want = length ? strtoul(length, NULL, 10) : 0;
	if (c->in.len - head < want)
		return 0;
	ret->body = c->in.data + head;
	ret->len = want;
	return 1;
}

int answer_check(const struct answer *a, int want, const char *what, struct err *e)
{
	if (a->status == want)
		return 0;
	return err_set(e, ERR_LOST, -EBADMSG, "%.60s: status %d, want %d: %.*s", what, a->status, want,
		       (int)(a->len < 120 ? a->len : 120), a->body);
}

int client_call(struct client *c, const char *method, const char *path, const char *body, int want, struct answer *ret,
		struct err *e)
{
	struct answer own;
	int r = client_send(c, method, path, NULL, body, e);

	ret = ret ? ret : &own;
	while (r == 0)
		r = client_step(c, ret, e);
	return r < 0 ? err_wrap(e, r, "%s %.80s", method, path) : answer_check(ret, want, path, e);
}

int client_head(struct client *c, int want, struct err *e)
{
	const char *end = NULL;
	int r = 0;

	while (r == 0 && !end) {
		r = more(c, e);
		end = r == 0 ? strstr(c->in.data, "\r\n\r\n") : NULL;
	}
	if (r < 0)
		return r;
	if (status_of(c) != want)
		return err_set(e, ERR_LOST, -EBADMSG, "want status %d: %.160s", want, c->in.data);
	buf_drop(&c->in, (size_t)(end - c->in.data) + 4);
	return 0;
}

int answer_id(const struct answer *a, char ret[API_ID], struct err *e)
{
	static const char key[] = "\"id\":\"";
	const char *at = memmem(a->body, a->len, key, sizeof(key) - 1);
	size_t n;

	at = at ? at + sizeof(key) - 1 : NULL;
	n = at ? strcspn(at, "\"") : 0;
	if (!n || n >= API_ID)
		return err_set(e, ERR_LOST, -EBADMSG, "an answer without an id");
	memcpy(ret, at, n);
	ret[n] = '\0';
	return 0;
}

int answer_ended_well(const struct answer *a, struct err *e)
{
	static const char key[] = "\"exit_code\":0,";

	if (memmem(a->body, a->len, key, sizeof(key) - 1))
		return 0;
	return err_set(e, ERR_LOST, -EIO, "the command did not end well: %.*s", (int)(a->len < 160 ? a->len : 160),
		       a->body);
}

int api_create(struct client *c, const char *body, char ret_id[API_ID], struct err *e)
{
	struct answer a;
	int r = client_call(c, "POST", "/v1/sandboxes", body ? body : "{}", 201, &a, e);

	return r < 0 ? r : answer_id(&a, ret_id, e);
}

int api_exec(struct client *c, const char *id, struct err *e)
{
	struct answer a;
	char path[96];
	int r;

	snprintf(path, sizeof(path), "/v1/sandboxes/%s/execs", id);
	r = client_call(c, "POST", path, API_TRUE, 200, &a, e);
	return r < 0 ? r : answer_ended_well(&a, e);
}

int api_delete(struct client *c, const char *id, struct err *e)
{
	char path[96];

	snprintf(path, sizeof(path), "/v1/sandboxes/%s", id);
	return client_call(c, "DELETE", path, NULL, 204, NULL, e);
}

uint64_t own_cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000ULL + (uint64_t)t.tv_nsec;
}
