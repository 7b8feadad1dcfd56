/* Sends requests to a daemon and receives answers. */
#include "client/conn.h"
#include "base/base.h"
#include "client/progress.h"
#include "client/settings.h"
#include "client/show.h"
#include "config.h"

#include <stdarg.h>
#include <unistd.h>

struct conn {
	struct settings s;
	CURLM *multi;
	long timeout_ms;
	char host[300];
	const char *prefix;
	const char *doing; /* as in conn_doing() */
	bool happened; /* a callback has done something: the loop must not wait */
};

static bool is_loopback(const char *host)
{
	return !strncmp(host, "127.", 4) || !strncmp(host, "localhost", 9) || !strncmp(host, "[::1]", 5);
}

int conn_open(const struct conn_opts *o, struct conn **ret, struct err *e)
{
	AUTO(conn_close) struct conn *c = calloc(1, sizeof(*c));
	const char *host;
	int r;

	if (!c)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory");
	r = settings_find(o, &c->s, e);
	if (r < 0)
		return r;
	host = strstr(c->s.url, "://") + 3;
	c->prefix = host + strcspn(host, "/");
	if ((size_t)snprintf(c->host, sizeof(c->host), "%.*s", (int)(c->prefix - host), host) >= sizeof(c->host))
		return err_set(e, ERR_INVALID, -EINVAL, "the daemon's URL is too long");
	if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
		return err_set(e, ERR_INTERNAL, -EIO, "libcurl cannot be initialized");
	c->multi = curl_multi_init();
	if (!c->multi)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory");
	c->timeout_ms = o->timeout_ms;
	*ret = TAKE_PTR(c);
	return 0;
}

void conn_close(struct conn *c)
{
	if (!c)
		return;
	if (c->multi)
		curl_multi_cleanup(c->multi);
	settings_done(&c->s);
	free(c);
}

const char *conn_host(const struct conn *c)
{
	return c->host;
}

const char *conn_prefix(const struct conn *c)
{
	return c->prefix;
}

const char *conn_token(const struct conn *c)
{
	return c->s.token;
}

CURL *conn_easy(struct conn *c, const char *path, struct err *e)
{
	AUTO(buf_done) struct buf url = BUF_INIT(64 * KIB);
	CURL *easy = curl_easy_init();

	if (!easy || buf_adds(&url, c->s.url) < 0 || buf_adds(&url, path) < 0) {
		curl_easy_cleanup(easy);
		err_set(e, ERR_TOO_LARGE, -E2BIG, "the request's path is too long");
		return NULL;
	}
	curl_easy_setopt(easy, CURLOPT_URL, buf_str(&url));
	curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
	curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, c->timeout_ms ? c->timeout_ms : 10000L);
	curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, c->timeout_ms);
	curl_easy_setopt(easy, CURLOPT_USERAGENT, "cloche/" CLOCHE_VERSION);
	if (c->s.socket)
		curl_easy_setopt(easy, CURLOPT_UNIX_SOCKET_PATH, c->s.socket);
	if (c->s.cacert)
		curl_easy_setopt(easy, CURLOPT_CAINFO, c->s.cacert);
	/* A proxy is for others; this machine's own daemon is not behind it. */
	if (c->s.socket || is_loopback(c->host))
		curl_easy_setopt(easy, CURLOPT_PROXY, "");
	return easy;
}

int conn_curl_error(const struct conn *c, CURLcode code, const char *detail, struct err *e)
{
	const char *where = c->s.socket ? c->s.socket : c->s.url;
	const char *why = detail && *detail ? detail : curl_easy_strerror(code);

	/* The library's message would name a host and port that were not given. */
	if (c->s.socket && code == CURLE_COULDNT_CONNECT)
		why = access(c->s.socket, F_OK) == 0 ? "nothing listens on it, or this user may not connect" :
		      errno == EACCES ? "this user may not enter its folder; a data folder is for root only" :
					"the socket does not exist";
	if (code == CURLE_COULDNT_CONNECT || code == CURLE_COULDNT_RESOLVE_HOST) {
		err_set(e, ERR_NOT_FOUND, -ECONNREFUSED, "no daemon answers at %.100s: %.100s", where, why);
		err_remedy(e, "start `cloche serve`, or correct the address (--url, CLOCHE_URL)");
		return -ECONNREFUSED;
	}
	if (code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE) {
		err_set(e, ERR_DENIED, -EACCES, "%.100s: the certificate is not trusted: %.100s", where, why);
		err_remedy(e, "give the CA certificate that signed it: CLOCHE_CACERT=FILE, or `cacert = FILE` in the "
			      "configuration");
		return -EACCES;
	}
	if (code == CURLE_SSL_CONNECT_ERROR) {
		err_set(e, ERR_LOST, -EPROTO, "%.100s: TLS failed: %.100s", where, why);
		err_remedy(e, "use http:// for a daemon without tls_cert");
		return -EPROTO;
	}
	if (code == CURLE_OPERATION_TIMEDOUT)
		return err_set(e, ERR_TIMEOUT, -ETIMEDOUT, "%.100s: timed out: %.100s", where, why);
	return err_set(e, ERR_LOST, -ECONNRESET, "connection to %.100s failed: %.100s", where, why);
}

static enum err_kind kind_of(const char *code, long status)
{
	for (int k = 0; k < ERR_KIND_COUNT; k++)
		if (!strcmp(code, err_kind_name((enum err_kind)k)))
			return (enum err_kind)k;
	return status == 401 ? ERR_UNAUTHORIZED : status == 404 ? ERR_NOT_FOUND : ERR_INTERNAL;
}

static int errno_of(enum err_kind kind)
{
	return kind == ERR_NOT_FOUND ? -ENOENT : kind == ERR_CONFLICT ? -EEXIST : -EREMOTEIO;
}

int conn_answer_error(const char *body, size_t len, long status, struct err *e)
{
	AUTO_JSON json_t *all = json_loadb(body, len, JSON_REJECT_DUPLICATES, NULL);
	const json_t *error = json_object_get(all, "error");
	const char *message = show_str(error, "message"), *cause = show_str(error, "cause"),
		   *remedy = show_str(error, "remedy");
	enum err_kind kind;
	enum err_reason why;
	int r;

	/* Not the daemon's answer, but for example a page of a proxy. */
	if (!*message)
		return err_set(e, kind_of("", status), -EPROTO,
			       "status %ld, and the answer does not come from a daemon", status);
	kind = kind_of(show_str(error, "code"), status);
	why = err_reason_find(show_str(error, "reason"));
	/* Many messages end with their cause; then it is not added again. */
	if (*cause && !strstr(message, cause))
		r = err_set(e, kind, errno_of(kind), "%s: %s", message, cause);
	else
		r = err_set(e, kind, errno_of(kind), "%s", message);
	if (e)
		e->errnum = 0; /* the error is the daemon's, and its message names the cause */
	if (e && err_reason_kind(why) == kind)
		err_because(e, why);
	/* The daemon's remedy names headers, which a user of the client does not set. */
	if (kind == ERR_UNAUTHORIZED)
		err_remedy(e, "set CLOCHE_TOKEN, or `token = …` in ~/.config/cloche/config");
	else if (*remedy)
		err_remedy(e, "%s", remedy);
	return r;
}

int url_add(struct buf *b, const char *fmt, ...)
{
	static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
	va_list ap;
	int r = 0;

	va_start(ap, fmt);
	for (; *fmt && r == 0; fmt++) {
		if (*fmt != '%') {
			r = buf_addc(b, *fmt);
			continue;
		}
		if (*++fmt == 'u') {
			r = buf_addf(b, "%llu", va_arg(ap, unsigned long long));
			continue;
		}
		assert(*fmt == 's');
		for (const char *p = va_arg(ap, const char *); *p && r == 0; p++)
			r = strchr(plain, *p) ? buf_addc(b, *p) : buf_addf(b, "%%%02X", (unsigned char)*p);
	}
	va_end(ap);
	return r;
}

int conn_json(struct conn *c, const char *method, const char *path, const json_t *body, json_t **ret, struct err *e)
{
	const struct call_spec s = { .method = method, .path = path, .body = body };
	AUTO(call_free) struct call *call = NULL;
	const struct buf *got;
	json_error_t je;
	int r;

	r = call_start(c, &s, &call, e);
	if (r == 0)
		r = call_wait(call, e);
	if (r < 0 || !ret)
		return r;
	got = call_body(call);
	*ret = NULL;
	if (!got->len)
		return 0;
	/* A duplicate key, as in some records of older audit logs, must not make the whole answer unreadable. */
	*ret = json_loadb(got->data, got->len, JSON_ALLOW_NUL, &je);
	return *ret ? 0 : err_set(e, ERR_INTERNAL, -EPROTO, "the daemon's answer is not valid JSON: %s", je.text);
}

int conn_get(struct conn *c, const char *path, json_t **ret, struct err *e)
{
	int r = conn_json(c, "GET", path, NULL, ret, e);

	if (r == 0 && !json_is_object(*ret)) {
		json_decref(*ret);
		*ret = NULL;
		r = err_set(e, ERR_INTERNAL, -EPROTO, "the daemon's answer is empty");
	}
	return r;
}

/* ---- calls ---- */

#define PULL_MAX (1 * MIB)
#define ERROR_MAX (8 * MIB) /* a thousand paths of a conflict */

struct call {
	struct conn *conn;
	CURL *easy;
	struct curl_slist *headers;
	char *sent; /* the JSON body */
	struct call_spec s;
	struct buf body; /* collected, or waiting to be pulled, or an error's */
	size_t taken; /* of what waits */
	bool head, ended, paused;
	CURLcode code;
	int failed; /* errno of @source or @sink */
	char detail[CURL_ERROR_SIZE];
};

static long status_of(const struct call *c)
{
	long status = 0;

	curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &status);
	return status;
}

static size_t on_data(char *data, size_t one, size_t n, void *arg)
{
	struct call *c = arg;
	int r;

	(void)one;
	c->head = true;
	c->conn->happened = true;
	if (status_of(c) >= 400)
		return c->body.len + n > ERROR_MAX || buf_add(&c->body, data, n) < 0 ? CURL_WRITEFUNC_ERROR : n;
	if (c->s.sink) {
		r = c->s.sink(c->s.arg, data, n);
		if (r < 0)
			c->failed = r;
		return r < 0 ? CURL_WRITEFUNC_ERROR : n;
	}
	if (c->s.pull && c->body.len > PULL_MAX) {
		c->paused = true;
		return CURL_WRITEFUNC_PAUSE;
	}
	if (buf_add(&c->body, data, n) < 0) {
		c->failed = -E2BIG;
		return CURL_WRITEFUNC_ERROR;
	}
	return n;
}

static size_t on_header(char *data, size_t one, size_t n, void *arg)
{
	struct call *c = arg;

	(void)one;
	/* An empty line ends the head of the answer. The head of 100 Continue precedes that of the answer. */
	if (n <= 2 && (data[0] == '\r' || data[0] == '\n') && status_of(c) >= 200)
		c->head = c->conn->happened = true;
	return n;
}

static size_t on_source(char *buf, size_t one, size_t n, void *arg)
{
	struct call *c = arg;
	ssize_t got = c->s.source(c->s.arg, buf, one * n);

	if (got < 0) {
		c->failed = (int)got;
		return CURL_READFUNC_ABORT;
	}
	return (size_t)got;
}

static int add_header(struct call *c, const char *fmt, const char *value)
{
	AUTO(buf_done) struct buf b = BUF_INIT(16 * KIB);
	struct curl_slist *more;

	if (buf_adds(&b, fmt) < 0 || buf_adds(&b, value) < 0)
		return -E2BIG;
	more = curl_slist_append(c->headers, buf_str(&b));
	if (!more)
		return -ENOMEM;
	c->headers = more;
	return 0;
}

static int set_body(struct call *c)
{
	const struct call_spec *s = &c->s;
	CURL *easy = c->easy;

	if (s->source) {
		curl_easy_setopt(easy, CURLOPT_UPLOAD, 1L);
		curl_easy_setopt(easy, CURLOPT_READFUNCTION, on_source);
		curl_easy_setopt(easy, CURLOPT_READDATA, c);
		curl_easy_setopt(easy, CURLOPT_INFILESIZE_LARGE, (curl_off_t)(s->size < 0 ? -1 : s->size));
		curl_easy_setopt(easy, CURLOPT_UPLOAD_BUFFERSIZE, 256L * 1024);
		return add_header(c, "Content-Type: ", "application/octet-stream");
	}
	if (!s->body)
		return 0;
	c->sent = json_dumps(s->body, JSON_COMPACT);
	if (!c->sent)
		return -EINVAL;
	curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(c->sent));
	curl_easy_setopt(easy, CURLOPT_POSTFIELDS, c->sent);
	return add_header(c, "Content-Type: ", "application/json");
}

int call_start(struct conn *conn, const struct call_spec *s, struct call **ret, struct err *e)
{
	AUTO(call_free) struct call *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory");
	c->conn = conn;
	c->s = *s;
	c->body.max = CONN_ANSWER_MAX;
	c->easy = conn_easy(conn, s->path, e);
	if (!c->easy)
		return -E2BIG;
	curl_easy_setopt(c->easy, CURLOPT_PRIVATE, c);
	curl_easy_setopt(c->easy, CURLOPT_ERRORBUFFER, c->detail);
	curl_easy_setopt(c->easy, CURLOPT_WRITEFUNCTION, on_data);
	curl_easy_setopt(c->easy, CURLOPT_WRITEDATA, c);
	curl_easy_setopt(c->easy, CURLOPT_HEADERFUNCTION, on_header);
	curl_easy_setopt(c->easy, CURLOPT_HEADERDATA, c);
	curl_easy_setopt(c->easy, CURLOPT_BUFFERSIZE, 256L * 1024);
	r = set_body(c);
	if (r == 0)
		r = add_header(c, "Accept: ", s->accept ? s->accept : "application/json");
	if (r == 0 && conn->s.token)
		r = add_header(c, "Authorization: Bearer ", conn->s.token);
	if (r == 0 && s->header)
		r = add_header(c, "", s->header);
	/* curl would wait a second for a 100 Continue; the daemon reads bodies at once. */
	if (r == 0)
		r = add_header(c, "Expect:", "");
	if (r < 0)
		return err_sys(e, ERR_INVALID, r, "make the request");
	curl_easy_setopt(c->easy, CURLOPT_HTTPHEADER, c->headers);
	/* After the body, since curl chooses a method when it gets one. */
	if (!strcmp(s->method, "HEAD"))
		curl_easy_setopt(c->easy, CURLOPT_NOBODY, 1L);
	else if (!strcmp(s->method, "POST") && !s->body && !s->source)
		curl_easy_setopt(c->easy, CURLOPT_POSTFIELDSIZE, 0L);
	if (!strcmp(s->method, "POST") && !s->body && !s->source)
		curl_easy_setopt(c->easy, CURLOPT_POSTFIELDS, "");
	curl_easy_setopt(c->easy, CURLOPT_CUSTOMREQUEST, s->method);
	if (curl_multi_add_handle(conn->multi, c->easy) != CURLM_OK)
		return err_set(e, ERR_INTERNAL, -EIO, "libcurl failed");
	*ret = TAKE_PTR(c);
	return 0;
}

void call_free(struct call *c)
{
	if (!c)
		return;
	if (c->easy) {
		curl_multi_remove_handle(c->conn->multi, c->easy);
		curl_easy_cleanup(c->easy);
	}
	curl_slist_free_all(c->headers);
	free(c->sent);
	buf_done(&c->body);
	free(c);
}

int conn_turn(struct conn *conn, int timeout_ms, struct err *e)
{
	int running, left;
	CURLMsg *m;

	conn->happened = false;
	if (curl_multi_perform(conn->multi, &running) != CURLM_OK)
		return err_set(e, ERR_INTERNAL, -EIO, "libcurl failed");
	while ((m = curl_multi_info_read(conn->multi, &left))) {
		struct call *c = NULL;

		if (m->msg != CURLMSG_DONE)
			continue;
		curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&c);
		c->ended = true;
		c->code = m->data.result;
		conn->happened = true;
	}
	if (running && !conn->happened && curl_multi_poll(conn->multi, NULL, 0, timeout_ms, NULL) != CURLM_OK)
		return err_set(e, ERR_INTERNAL, -EIO, "libcurl failed");
	return 0;
}

bool call_ended(const struct call *c)
{
	return c->ended;
}

/* What became of a call that ended. */
static int outcome(struct call *c, struct err *e)
{
	long status = status_of(c);

	if (status >= 400 && (c->code == CURLE_OK || c->body.len))
		return conn_answer_error(c->body.data ? c->body.data : "", c->body.len, status, e);
	if (c->failed)
		return err_sys(e, ERR_INTERNAL, c->failed,
			       c->failed == -E2BIG ? "build the answer" : "forward the bytes");
	if (c->code != CURLE_OK)
		return conn_curl_error(c->conn, c->code, c->detail, e);
	return 0;
}

void conn_doing(struct conn *c, const char *what)
{
	c->doing = what;
}

int call_wait(struct call *c, struct err *e)
{
	const char *doing = c->conn->doing;
	struct progress p;
	int r = 0;

	progress_init(&p, doing, 0);
	while (r == 0 && !c->ended) {
		r = conn_turn(c->conn, 1000, e);
		if (doing && !c->ended)
			progress_wait(&p);
	}
	progress_done(&p);
	return r < 0 ? r : outcome(c, e);
}

int call_head(struct call *c, struct err *e)
{
	int r = 0;

	while (r == 0 && !c->ended && (!c->head || status_of(c) >= 400))
		r = conn_turn(c->conn, 1000, e);
	return r == 0 && c->ended ? outcome(c, e) : r;
}

ssize_t call_read(struct call *c, void *buf, size_t len, struct err *e)
{
	int r = 0;

	if (c->taken == c->body.len) {
		buf_clear(&c->body);
		c->taken = 0;
	}
	while (r == 0 && !c->body.len && !c->ended) {
		if (c->paused) {
			c->paused = false;
			curl_easy_pause(c->easy, CURLPAUSE_CONT);
			continue;
		}
		r = conn_turn(c->conn, 1000, e);
	}
	if (r < 0)
		return r;
	if (status_of(c) >= 400 || (!c->body.len && c->ended))
		return call_wait(c, e);
	if (len > c->body.len - c->taken)
		len = c->body.len - c->taken;
	memcpy(buf, c->body.data + c->taken, len);
	c->taken += len;
	return (ssize_t)len;
}

const char *call_header(struct call *c, const char *name)
{
	struct curl_header *h;

	return curl_easy_header(c->easy, name, 0, CURLH_HEADER, -1, &h) == CURLHE_OK ? h->value : NULL;
}

const struct buf *call_body(const struct call *c)
{
	return &c->body;
}
