/* Finds the server's name in a TLS ClientHello. */
#include "egress/hello.h"

#include "base/base.h"

/* The parts of RFC 8446 and 6066 that precede the server name. */
enum { RECORD_FIRST = 20, RECORD_ALERT = 21, RECORD_HANDSHAKE = HELLO_RECORD, RECORD_LAST = 24 };
enum { CLIENT_HELLO = 1, SERVER_HELLO = 2, EXT_SNI = 0, EXT_ALPN = 16, EXT_ECH = 0xfe0d, SNI_HOST = 0 };

struct span {
	const uint8_t *p;
	size_t n;
};

static bool take(struct span *s, size_t n, struct span *ret)
{
	if (s->n < n)
		return false;
	*ret = (struct span){ s->p, n };
	s->p += n;
	s->n -= n;
	return true;
}

static bool take_num(struct span *s, unsigned bytes, size_t *ret)
{
	struct span t;

	if (!take(s, bytes, &t))
		return false;
	*ret = 0;
	for (unsigned i = 0; i < bytes; i++)
		*ret = *ret << 8 | t.p[i];
	return true;
}

/* What has its length, of @bytes bytes, in front. */
static bool take_part(struct span *s, unsigned bytes, struct span *ret)
{
	size_t n;

	return take_num(s, bytes, &n) && take(s, n, ret);
}

static enum look bad(const char **ret_why, const char *why)
{
	*ret_why = why;
	return LOOK_BAD;
}

static const char *read_sni(struct span ext, struct hello *ret)
{
	struct span list, name;
	size_t kind;

	if (!take_part(&ext, 2, &list) || ext.n || !take_num(&list, 1, &kind) || !take_part(&list, 2, &name))
		return "the ClientHello's server name is invalid";
	if (kind != SNI_HOST || list.n)
		return "the ClientHello has more than one server name";
	/* Names are compared in lower case, as servers do. */
	if (net_name_parse((const char *)name.p, name.n, ret->name) < 0)
		return "the ClientHello's server name is not a host name";
	return NULL;
}

static bool read_alpn(struct span ext, struct hello *ret)
{
	struct span list, name;

	if (!take_part(&ext, 2, &list) || ext.n || !list.n)
		return false;
	ret->alpn = true;
	while (list.n) {
		if (!take_part(&list, 1, &name) || !name.n)
			return false;
		if (name.n == 2 && !memcmp(name.p, "h2", 2))
			ret->h2 = true;
		if (name.n == 8 && !memcmp(name.p, "http/1.1", 8))
			ret->http1 = true;
	}
	return true;
}

static const char *read_extensions(struct span all, struct hello *ret)
{
	bool sni = false, alpn = false;
	const char *why;
	struct span ext;
	size_t type;

	while (all.n) {
		if (!take_num(&all, 2, &type) || !take_part(&all, 2, &ext))
			return "the ClientHello's extensions have wrong lengths";
		if (type == EXT_SNI) {
			/* Of two, ours and the server's choice might differ. */
			why = sni ? "the ClientHello has more than one server name" : read_sni(ext, ret);
			if (why)
				return why;
			sni = true;
		} else if (type == EXT_ALPN) {
			if (alpn || !read_alpn(ext, ret))
				return "the ClientHello's protocols are invalid";
			alpn = true;
		} else if (type == EXT_ECH) {
			ret->ech = true;
		}
	}
	return NULL;
}

static enum look read_hello(struct span body, struct hello *ret, const char **ret_why)
{
	struct hello h = { 0 };
	struct span part, exts = { 0 };
	const char *why;
	size_t version;

	if (!take_num(&body, 2, &version) || !take(&body, 32, &part) || !take_part(&body, 1, &part) || part.n > 32 ||
	    !take_part(&body, 2, &part) || !part.n || part.n % 2 || !take_part(&body, 1, &part) || !part.n)
		return bad(ret_why, "the ClientHello is invalid");
	if (version < 0x0301)
		return bad(ret_why, "SSL 3 and older do not send the server's name");
	if (body.n && (!take_part(&body, 2, &exts) || body.n))
		return bad(ret_why, "the ClientHello's extensions have wrong lengths");
	why = read_extensions(exts, &h);
	if (why)
		return bad(ret_why, why);
	*ret = h;
	return LOOK_YES;
}

/* A record of a version that there is none of. Some servers (those in Go) do not look at it. */
static enum look look_version(const uint8_t *data, size_t len, const char **ret_why)
{
	if (data[1] >= 0x10)
		return LOOK_NOT;
	if (len < 6)
		return LOOK_MORE;
	return (data[3] || data[4]) && data[5] == CLIENT_HELLO ? bad(ret_why, "the ClientHello's records are invalid") :
								 LOOK_NOT;
}

/* SSL 2's ClientHello, which OpenSSL accepts for TLS 1.2: it has no name. Its three lengths are the record's, but for a head of 9 bytes. */
static enum look look_ssl2(const uint8_t *d, size_t len, const char **ret_why)
{
	if ((len > 2 && d[2] != CLIENT_HELLO) || (len > 3 && d[3] != 3 && d[3] != 0))
		return LOOK_NOT;
	if (len < 11)
		return LOOK_MORE;
	if (((d[0] & 0x7f) << 8 | d[1]) != 9 + (d[5] << 8 | d[6]) + (d[7] << 8 | d[8]) + (d[9] << 8 | d[10]))
		return LOOK_NOT;
	return bad(ret_why, "SSL 3 and older do not send the server's name");
}

enum look hello_look_odd(const uint8_t *d, size_t len, const char **ret_why)
{
	if (!len)
		return LOOK_MORE;
	if (d[0] & 0x80)
		return look_ssl2(d, len, ret_why);
	if (d[0] < RECORD_FIRST || d[0] > RECORD_LAST || d[0] == RECORD_HANDSHAKE)
		return LOOK_NOT;
	if (d[0] == RECORD_ALERT) {
		/* Servers skip warnings, and some do not look at the version. */
		if ((len > 1 && d[1] >= 0x10) || (len > 3 && d[3]) || (len > 4 && d[4] != 2) ||
		    (len > 5 && d[5] != 1 && d[5] != 2))
			return LOOK_NOT;
		return len < 6 ? LOOK_MORE : bad(ret_why, "TLS does not begin with a ClientHello");
	}
	if ((len > 1 && d[1] != 3) || (len > 2 && (!d[2] || d[2] > 4)))
		return LOOK_NOT;
	return len < 3 ? LOOK_MORE : bad(ret_why, "TLS does not begin with a ClientHello");
}

enum look hello_look(const uint8_t *data, size_t len, struct hello *ret, const char **ret_why)
{
	uint8_t body[HELLO_MAX];
	struct span in = { data, len < HELLO_MAX ? len : HELLO_MAX }, record;
	size_t have = 0, need = 4, type, version, n;
	enum look more = in.n == HELLO_MAX ? bad(ret_why, "the ClientHello is too large") : LOOK_MORE;

	if (in.n && in.p[0] != RECORD_HANDSHAKE)
		return LOOK_NOT;
	if (in.n > 1 && in.p[1] != 3)
		return look_version(in.p, in.n, ret_why);
	while (have < need) {
		if (in.n && in.p[0] != RECORD_HANDSHAKE)
			return bad(ret_why, "unexpected data inside the ClientHello");
		if (!take_num(&in, 1, &type) || !take_num(&in, 2, &version) || !take_num(&in, 2, &n))
			return more;
		if (version >> 8 != 3 || !n || n > HELLO_MAX)
			return bad(ret_why, "the ClientHello's records are invalid");
		/* Part of a record is enough: its first bytes contain the length. */
		record = (struct span){ in.p, n < in.n ? n : in.n };
		memcpy(body + have, record.p, record.n);
		have += record.n;
		if (have && body[0] != CLIENT_HELLO)
			return bad(ret_why, "TLS does not begin with a ClientHello");
		if (have >= 4)
			need = 4 + ((size_t)body[1] << 16 | (size_t)body[2] << 8 | body[3]);
		if (need > HELLO_MAX)
			return bad(ret_why, "the ClientHello is too large");
		if (have > need)
			return bad(ret_why, "unexpected data after the ClientHello in its record");
		in.p += record.n;
		in.n -= record.n;
		if (record.n < n && have < need)
			return more;
		if (record.n < n)
			return bad(ret_why, "unexpected data after the ClientHello in its record");
	}
	more = read_hello((struct span){ body + 4, need - 4 }, ret, ret_why);
	if (more == LOOK_YES)
		ret->len = (uint32_t)(in.p - data);
	return more;
}

/* One that is in so small pieces that its random is not in the first is taken for one: then the client is looked at. */
enum look hello_retry(const uint8_t *d, size_t len)
{
	static const uint8_t random[32] = { 0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c,
					    0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2, 0xa2, 0x11, 0x16, 0x7a, 0xbb,
					    0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c };

	if (len && d[0] != RECORD_HANDSHAKE)
		return LOOK_NOT;
	if (len < 6)
		return LOOK_MORE;
	if (d[5] != SERVER_HELLO)
		return LOOK_NOT;
	if ((d[3] << 8 | d[4]) < (int)HELLO_RETRY - 5)
		return LOOK_YES;
	if (len < HELLO_RETRY)
		return memcmp(d + 11, random, len > 11 ? len - 11 : 0) ? LOOK_NOT : LOOK_MORE;
	return memcmp(d + 11, random, sizeof(random)) ? LOOK_NOT : LOOK_YES;
}
