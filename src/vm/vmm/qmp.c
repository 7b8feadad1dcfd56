/* Sends commands to QEMU's monitor, and reads answers. */
#include "vm/vmm/qmp.h"
#include "base/base.h"
#include "base/sys.h"

#include <poll.h>
#include <stdarg.h>
#include <sys/socket.h>

#define COMMAND_MAX 2048
#define WAIT_MS 250
/*
 * waits until QEMU counts as hung: it may be emulating on a busy host. They are counted, and not timed, since a jail
 * may be frozen for days
 */
#define ANSWER_WAITS 120U

int qmp_init(struct qmp *q, int fd)
{
	*q = (struct qmp){ .fd = fd, .line = malloc(QMP_LINE) };
	return q->line ? 0 : -ENOMEM;
}

void qmp_done(struct qmp *q)
{
	free(q->line);
	*q = (struct qmp){ .fd = -1 };
}

static const char *skip_space(const char *at, const char *end)
{
	while (at < end && (*at == ' ' || *at == '\t' || *at == '\r' || *at == '\n'))
		at++;
	return at;
}

/* Returns the end of the string at @at, or NULL. */
static const char *skip_string(const char *at, const char *end)
{
	if (at == end || *at != '"')
		return NULL;
	for (at++; at < end && *at != '"'; at++)
		if (*at == '\\' && ++at == end)
			return NULL;
	return at < end ? at + 1 : NULL;
}

/* Returns the end of the value at @at, or NULL. Braces are only counted, and their content is skipped. */
static const char *skip_value(const char *at, const char *end)
{
	unsigned depth = 0;

	do {
		at = skip_space(at, end);
		if (at == end)
			return NULL;
		if (*at == '"') {
			at = skip_string(at, end);
			if (!at)
				return NULL;
		} else if (*at == '{' || *at == '[') {
			depth++;
			at++;
		} else if (*at == '}' || *at == ']') {
			if (!depth)
				return NULL;
			depth--;
			at++;
		} else if (depth) {
			at++;
		} else {
			while (at < end && *at != ',' && *at != '}' && *at != ']')
				at++;
		}
	} while (depth);
	return at;
}

size_t qmp_member(const char *text, size_t len, const char *key, const char **ret)
{
	const char *end = text + len, *at = skip_space(text, end);
	size_t key_len = strlen(key);

	if (at == end || *at != '{')
		return 0;
	for (at = skip_space(at + 1, end); at < end && *at != '}';) {
		const char *name = at, *value;
		bool hit;

		at = skip_string(at, end);
		if (!at)
			return 0;
		hit = (size_t)(at - name) == key_len + 2 && !memcmp(name + 1, key, key_len);
		at = skip_space(at, end);
		if (at == end || *at != ':')
			return 0;
		value = skip_space(at + 1, end);
		at = skip_value(value, end);
		if (!at || at == value)
			return 0;
		if (hit) {
			*ret = value;
			return (size_t)(at - value);
		}
		at = skip_space(at, end);
		if (at < end && *at == ',')
			at = skip_space(at + 1, end);
	}
	return 0;
}

/* Copies a string or number without its quotes for a message: only printable characters, cut if it is too long. */
static void put_text(char *ret, size_t size, const char *text, size_t len)
{
	size_t n = 0;

	if (len >= 2 && text[0] == '"') {
		text++;
		len -= 2;
	}
	for (size_t i = 0; i < len && n + 1 < size; i++)
		if (text[i] != '\\')
			ret[n++] = text[i] >= ' ' && text[i] < 127 ? text[i] : '?';
	ret[n] = '\0';
}

static bool says(const char *text, size_t len, const char *key, const char *want)
{
	const char *value;
	size_t n = qmp_member(text, len, key, &value), w = strlen(want);

	return n == w + 2 && !memcmp(value + 1, want, w);
}

static void take_job(struct qmp *q, const char *data, size_t len)
{
	const char *why;
	size_t n = qmp_member(data, len, "error", &why);

	q->job = n ? -1 : 1;
	put_text(q->job_why, sizeof(q->job_why), n ? why : "", n);
}

/* Events of interest are remembered, others forgotten. */
static bool take_event(struct qmp *q, size_t len)
{
	const char *data;
	size_t n;

	if (!qmp_member(q->line, len, "event", &data))
		return false;
	n = qmp_member(q->line, len, "data", &data);
	if (says(q->line, len, "event", "MIGRATION"))
		q->migration = says(data, n, "status", "completed") ? 1 :
			       says(data, n, "status", "failed")    ? -1 :
								      q->migration;
	else if (says(q->line, len, "event", "BLOCK_JOB_COMPLETED"))
		take_job(q, data, n);
	else if (says(q->line, len, "event", "BLOCK_JOB_CANCELLED"))
		q->job = -1;
	else if (says(q->line, len, "event", "STOP"))
		q->stopped = true;
	else if (says(q->line, len, "event", "RESUME"))
		q->stopped = false;
	return true;
}

static void drop(struct qmp *q, size_t n)
{
	q->len -= n;
	memmove(q->line, q->line + n, q->len);
}

/* The length of the whole line at the start of the buffer, its end included; 0: not here after so many @waits. */
static ssize_t read_line(struct qmp *q, unsigned waits)
{
	for (;;) {
		char *end = memchr(q->line, '\n', q->len);
		struct pollfd p = { .fd = q->fd, .events = POLLIN };
		ssize_t n;

		if (end)
			return end - q->line + 1;
		if (q->len == QMP_LINE)
			return -EBADMSG;
		n = recv(q->fd, q->line + q->len, QMP_LINE - q->len, MSG_DONTWAIT);
		if (n > 0) {
			q->len += (size_t)n;
			continue;
		}
		if (!n || (errno != EAGAIN && errno != EINTR))
			return -EPIPE;
		if (!waits)
			return 0;
		if (poll(&p, 1, WAIT_MS) == 0)
			waits--;
	}
}

static int lost(ssize_t n, const char *what, struct err *e)
{
	return err_set(e, ERR_LOST, n ? (int)n : -ETIMEDOUT, "QEMU %s at '%s'",
		       !n	   ? "did not answer" :
		       n == -EPIPE ? "ended" :
				     "sent an invalid message",
		       what);
}

int qmp_greet(struct qmp *q, char ret[QMP_VERSION], struct err *e)
{
	const char *hello, *version, *number, *part;
	size_t hello_len, version_len, number_len, k = 0;
	ssize_t n = read_line(q, ANSWER_WAITS);
	char text[QMP_VERSION];

	if (n <= 0)
		return lost(n, "its greeting", e);
	hello_len = qmp_member(q->line, (size_t)n, "QMP", &hello);
	version_len = hello_len ? qmp_member(hello, hello_len, "version", &version) : 0;
	number_len = version_len ? qmp_member(version, version_len, "qemu", &number) : 0;
	if (!number_len)
		return lost(-EBADMSG, "its greeting", e);
	memset(ret, 0, QMP_VERSION);
	for (unsigned i = 0; i < 4; i++) {
		static const char *const names[] = { "major", "minor", "micro", "package" };
		size_t len = i < 3 ? qmp_member(number, number_len, names[i], &part) :
				     qmp_member(version, version_len, "package", &part);

		put_text(text, sizeof(text), len ? part : "", len);
		if (i && k + 1 < QMP_VERSION)
			ret[k++] = i < 3 ? '.' : ' ';
		for (const char *c = text; *c && k + 1 < QMP_VERSION; c++)
			ret[k++] = *c;
	}
	drop(q, (size_t)n);
	return qmp_do(q, -1, "qmp_capabilities", e, "%s", "");
}

static int answer(struct qmp *q, const char *command, struct err *e)
{
	char want[16];

	snprintf(want, sizeof(want), "%u", q->id);
	for (;;) {
		ssize_t n = read_line(q, ANSWER_WAITS);
		const char *part, *text;
		size_t len, text_len;
		int r = 1;

		if (n <= 0)
			return lost(n, command, e);
		if (!take_event(q, (size_t)n)) {
			len = qmp_member(q->line, (size_t)n, "id", &part);
			if (len != strlen(want) || memcmp(part, want, len))
				return lost(-EBADMSG, command, e);
			r = qmp_member(q->line, (size_t)n, "return", &part) ? 0 : -EBADMSG;
			len = r ? qmp_member(q->line, (size_t)n, "error", &part) : 0;
			text_len = len ? qmp_member(part, len, "desc", &text) : 0;
			if (text_len) {
				char why[QMP_WHY];

				put_text(why, sizeof(why), text, text_len);
				r = err_set(e, ERR_INTERNAL, -EIO, "QEMU refused '%s': %s", command, why);
			} else if (r < 0) {
				r = lost(r, command, e);
			}
		}
		drop(q, (size_t)n);
		if (r <= 0)
			return r;
	}
}

int qmp_do(struct qmp *q, int fd, const char *command, struct err *e, const char *fmt, ...)
{
	char args[COMMAND_MAX / 2], text[COMMAND_MAX];
	va_list ap;
	int n, r;

	va_start(ap, fmt);
	n = vsnprintf(args, sizeof(args), fmt, ap);
	va_end(ap);
	if (n < 0 || (size_t)n >= sizeof(args))
		return err_set(e, ERR_INTERNAL, -E2BIG, "QEMU: '%s' is too long", command);
	n = snprintf(text, sizeof(text), "{\"execute\":\"%s\",\"arguments\":{%s},\"id\":%u}\n", command, args, ++q->id);
	/* A command is small enough to be sent at once; if QEMU does not read its monitor, it hangs. */
	r = fd_send_now(q->fd, text, (size_t)n, &fd, fd >= 0 ? 1 : 0);
	if (r < 0)
		return lost(r == -EAGAIN ? 0 : -EPIPE, command, e);
	return answer(q, command, e);
}

int qmp_wait_migration(struct qmp *q, struct err *e)
{

	while (!q->migration) {
		ssize_t n = read_line(q, ANSWER_WAITS);

		if (n <= 0)
			return lost(n, "loading a state", e);
		take_event(q, (size_t)n);
		drop(q, (size_t)n);
	}
	return q->migration > 0 ? 0 : err_set(e, ERR_REFUSED, -EIO, "QEMU cannot load this state");
}

int qmp_drain(struct qmp *q)
{
	ssize_t n;

	while ((n = read_line(q, 0)) > 0) {
		if (!take_event(q, (size_t)n))
			return -EBADMSG; /* an answer without a command */
		drop(q, (size_t)n);
	}
	return (int)n;
}
