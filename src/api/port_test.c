/* The sandbox and port that a request is for, and what of it is forwarded. */
#include "api/port.h"
#include "http/http_test.h"

static struct fix f;
static struct got g;
static struct port_place at;
static bool found;

static void tell(struct fix *fix, struct http_req *q)
{
	AUTO(buf_done) struct buf b = BUF_INIT(128 * KIB);
	const struct port_pass pass = { .our_token = http_header(q, "x-ours") };

	(void)fix;
	found = port_place("ports.test", q, &at);
	if (found && port_head_out(q, &at, &pass, &b) < 0)
		abort();
	http_send(q, 200, NULL, buf_str(&b), b.len);
}

static bool any(void *arg, const struct http_req *q)
{
	(void)arg;
	(void)q;
	return true;
}

static void ask(const char *path, const char *host, const char *more)
{
	char text[1024];

	snprintf(text, sizeof(text), "GET %s HTTP/1.1\r\nHost: %s\r\n%s\r\n", path, host, more);
	fix_up(&f, &(struct http_opts){ .foreign = any }, tell);
	fix_ask(&f, text, &g);
	fix_down(&f);
}

#define ID "0000abcdefghjkmnpqrstvwx"

TEST(places_are_found_by_path_and_by_host_and_nowhere_else)
{
	static const struct {
		const char *path, *host;
		unsigned port; /* 0: none */
	} cases[] = {
		{ "/v1/sandboxes/web/ports/8000/", "x", 8000 },
		{ "/v1/sandboxes/web/ports/65535/a/b", "x", 65535 },
		{ "/v1/sandboxes/web/ports/8000", "x", 0 },
		{ "/v1/sandboxes/web/ports/65536/", "x", 0 },
		{ "/v1/sandboxes/web/ports/0/", "x", 0 },
		{ "/v1/sandboxes/web/ports/08/", "x", 0 },
		{ "/v1/sandboxes/web/ports//", "x", 0 },
		{ "/v1/sandboxes//ports/80/", "x", 0 },
		{ "/v1/sandboxes/a%2fb/ports/80/", "x", 0 },
		{ "/v1/sandboxes/a;b/ports/80/", "x", 0 },
		{ "//v1/sandboxes/web/ports/80/", "x", 0 },
		{ "/", "80-" ID ".ports.test", 80 },
		{ "/", "80-" ID ".PORTS.test:7070", 80 },
		{ "/v1/sandboxes/web/ports/8000/", "80-" ID ".ports.test", 80 },
		{ "/", "80-" ID ".ports.test.evil", 0 },
		{ "/", "80-" ID ".xports.test", 0 },
		{ "/", "80-" ID "a.ports.test", 0 },
		{ "/", "80-" ID, 0 },
		{ "/", "80" ID ".ports.test", 0 },
		{ "/", "ports.test", 0 },
		{ "/", ".ports.test", 0 },
		{ "/", "-" ID ".ports.test", 0 },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		ask(cases[i].path, cases[i].host, "");
		if (found != !!cases[i].port)
			printf("# %s at %s\n", cases[i].path, cases[i].host);
		CHECK_EQ(found, !!cases[i].port);
		CHECK_EQ(found ? at.number : 0, cases[i].port);
	}
}

TEST(what_is_passed_on_has_nothing_of_ours_and_nothing_a_stranger_says_of_himself)
{
	static const char more[] =
		"X-Ours: 1\r\nAuthorization: Bearer cloche_x\r\nX-Cloche-Port-Token: t\r\nCookie: a=1;cloche_port=secret; b=2\r\n"
		"Cookie: cloche_port=secret\r\nX-Forwarded-For: 6.6.6.6\r\nx-forwarded-user: root\r\nForwarded: for=6\r\n"
		"Connection: close, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: 5\r\nTE: trailers\r\nX-Own: yes\r\n";
	const char *body;

	ask("/v1/sandboxes/web/ports/8000/p?a=1&cloche_token=secret&b", "daemon:7070", more);
	body = got_body(&g);
	CHECK(!strncmp(body, "GET /p?a=1&b HTTP/1.1\r\n", 23));
	CHECK(strstr(body, "\r\nHost: localhost:8000\r\n") != NULL);
	CHECK(strstr(body, "\r\nCookie: a=1; b=2\r\n") != NULL);
	CHECK(strstr(body, "\r\nX-Own: yes\r\n") != NULL);
	CHECK(strstr(body, "\r\nX-Forwarded-For: 127.0.0.1\r\n") != NULL);
	CHECK(strstr(body, "\r\nX-Forwarded-Host: daemon:7070\r\n") != NULL);
	CHECK(strstr(body, "\r\nX-Forwarded-Prefix: /v1/sandboxes/web/ports/8000\r\n") != NULL);
	CHECK(strstr(body, "\r\nConnection: close\r\n") != NULL);
	CHECK(strstr(body, "secret") == NULL);
	CHECK(strstr(body, "cloche") == NULL);
	CHECK(strcasestr(body, "6.6.6.6") == NULL);
	CHECK(strcasestr(body, "x-forwarded-user") == NULL);
	CHECK(strcasestr(body, "x-hop") == NULL);
	CHECK(strcasestr(body, "keep-alive") == NULL);
	CHECK(strcasestr(body, "authorization") == NULL);
}

TEST(tokens_are_found_where_they_stand_and_only_whole)
{
	char t[TOKEN_TEXT_MAX], rest[128], longer[128];

	CHECK(port_query_token("a=1&cloche_token=x&b", t) && !strcmp(t, "x"));
	CHECK(!port_query_token("xcloche_token=x&cloche_tokens=y&cloche_token", t));
	CHECK(port_cookie_token("a=1; cloche_port=x; b=2", t) && !strcmp(t, "x"));
	CHECK(port_cookie_token("cloche_port=x", t) && !strcmp(t, "x"));
	CHECK(!port_cookie_token("xcloche_port=x; cloche_ports=y", t));
	memset(longer, 'a', sizeof(longer));
	memcpy(longer, "cloche_token=", 13);
	longer[sizeof(longer) - 1] = '\0';
	CHECK(!port_query_token(longer, t));
	CHECK_EQ(port_query_rest("cloche_token=x", rest, sizeof(rest)), 0);
	CHECK_EQ(port_query_rest("a&cloche_token=x&cloche_token=y&&b=", rest, sizeof(rest)), 5);
}
