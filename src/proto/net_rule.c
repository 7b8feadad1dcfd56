/* Parses an entry of an allowlist. */
#include "proto/net_rule.h"
#include "base/base.h"

#include <arpa/inet.h>
#include <stdarg.h>

/* ---- names and addresses ----------------------------------------------------------------------------------------- */

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
	return c >= 'a' && c <= 'z';
}

/* Whether some resolver would read the last label as part of a number: "1", "0x7f". */
static bool numeric(const char *label, size_t len)
{
	size_t i = 0;

	if (len >= 2 && label[0] == '0' && label[1] == 'x') {
		for (i = 2; i < len && (is_digit(label[i]) || (label[i] >= 'a' && label[i] <= 'f')); i++)
			;
		return i == len;
	}
	while (i < len && is_digit(label[i]))
		i++;
	return i == len;
}

int net_name_parse(const char *text, size_t len, char ret[NET_NAME_MAX])
{
	char name[NET_NAME_MAX];
	size_t label = 0; /* where the current one begins */

	if (!len || len >= NET_NAME_MAX)
		return -EINVAL;
	for (size_t i = 0; i <= len; i++) {
		char c = i < len ? text[i] : '.';

		if (c >= 'A' && c <= 'Z')
			c = (char)(c - 'A' + 'a');
		if (c == '.') {
			if (i == label || i - label > 63 || name[label] == '-' || name[i - 1] == '-')
				return -EINVAL;
			if (i == len)
				break;
			label = i + 1;
		} else if (!is_letter(c) && !is_digit(c) && c != '-' && c != '_') {
			return -EINVAL;
		}
		name[i] = c;
	}
	if (numeric(name + label, len - label))
		return -EINVAL;
	memcpy(ret, name, len);
	ret[len] = '\0';
	return 0;
}

int net_addr_parse(const char *text, struct net_addr *ret)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	struct net_addr a = { .family = 4 };

	if (inet_pton(AF_INET, text, a.addr) != 1) {
		a.family = 6;
		if (inet_pton(AF_INET6, text, a.addr) != 1)
			return -EINVAL;
		if (!memcmp(a.addr, mapped, sizeof(mapped))) {
			a.family = 4;
			memcpy(a.addr, a.addr + 12, 4);
			memset(a.addr + 4, 0, 12);
		}
	}
	*ret = a;
	return 0;
}

void net_addr_text(const struct net_addr *a, char out[64])
{
	if (!inet_ntop(a->family == 4 ? AF_INET : AF_INET6, a->addr, out, 64))
		snprintf(out, 64, "?");
}

/* Whether the first @prefix bits are the same. */
static bool same_bits(const uint8_t *a, const uint8_t *b, unsigned prefix)
{
	unsigned rest = prefix % 8;

	if (memcmp(a, b, prefix / 8))
		return false;
	return !rest || !((a[prefix / 8] ^ b[prefix / 8]) >> (8 - rest));
}

/* ---- what is public ---------------------------------------------------------------------------------------------- */

struct special {
	uint8_t addr[16];
	uint8_t prefix;
	const char *what;
};

/* The first that matches speaks, so the narrow ones come first. */
/* clang-format off */
static const struct special special4[] = {
	{ { 169, 254, 169, 254 }, 32, "a cloud's metadata service" },
	{ { 169, 254, 170, 2 }, 32, "a cloud's metadata service" },
	{ { 168, 63, 129, 16 }, 32, "a cloud's metadata service" },
	{ { 100, 100, 100, 200 }, 32, "a cloud's metadata service" },
	{ { 192, 0, 0, 192 }, 32, "a cloud's metadata service" },
	{ { 0 }, 8, "an unspecified address" },
	{ { 10 }, 8, "a private address" },
	{ { 100, 64 }, 10, "a carrier's private address" },
	{ { 127 }, 8, "a loopback address" },
	{ { 169, 254 }, 16, "a link-local address" },
	{ { 172, 16 }, 12, "a private address" },
	{ { 192, 0, 0 }, 24, "a reserved address" },
	{ { 192, 0, 2 }, 24, "a documentation address" },
	{ { 192, 88, 99 }, 24, "a reserved address" },
	{ { 192, 168 }, 16, "a private address" },
	{ { 198, 18 }, 15, "a benchmarking address" },
	{ { 198, 51, 100 }, 24, "a documentation address" },
	{ { 203, 0, 113 }, 24, "a documentation address" },
	{ { 224 }, 4, "a multicast address" },
	{ { 240 }, 4, "a reserved address" },
};
/* clang-format on */

/* clang-format off */
static const struct special special6[] = {
	{ { 0xfd, 0x00, 0x0e, 0xc2, [14] = 0x02, [15] = 0x54 }, 128, "a cloud's metadata service" },
	{ { 0xfd, 0x20, 0x00, 0xce, [14] = 0x02, [15] = 0x54 }, 128, "a cloud's metadata service" },
	{ { 0 }, 128, "an unspecified address" },
	{ { [15] = 1 }, 128, "a loopback address" },
	{ { 0xfc }, 7, "a private address" },
	{ { 0xfe, 0x80 }, 10, "a link-local address" },
	{ { 0xfe, 0xc0 }, 10, "a private address" },
	{ { 0xff }, 8, "a multicast address" },
	{ { 0x20, 0x01 }, 23, "a reserved address" },
	{ { 0x20, 0x01, 0x0d, 0xb8 }, 32, "a documentation address" },
	{ { 0x3f, 0xff }, 20, "a documentation address" },
};
/* clang-format on */

/* Where an IPv6 address of that kind holds an IPv4 one. */
/* clang-format off */
static const struct embedded {
	uint8_t addr[16];
	uint8_t prefix;
	uint8_t at;
	uint8_t flip; /* all its bits are turned */
} embedded[] = {
	{ { [10] = 0xff, [11] = 0xff }, 96, 12, 0 }, /* mapped */
	{ { 0 }, 96, 12, 0 }, /* compatible */
	{ { 0x00, 0x64, 0xff, 0x9b }, 96, 12, 0 }, /* NAT64 */
	{ { 0x20, 0x02 }, 16, 2, 0 }, /* 6to4 */
	{ { 0x20, 0x01 }, 32, 4, 0 }, /* Teredo: its server, */
	{ { 0x20, 0x01 }, 32, 12, 0xff }, /* and whose it is */
};
/* clang-format on */

static const char *special_of(const struct special *list, size_t n, const uint8_t *addr)
{
	for (size_t i = 0; i < n; i++)
		if (same_bits(list[i].addr, addr, list[i].prefix))
			return list[i].what;
	return NULL;
}

static const char *special_inside(const uint8_t *addr, bool *ret_any)
{
	/* ISATAP: ::5efe:a.b.c.d below any prefix. */
	bool isatap = (addr[8] & 0xfd) == 0 && addr[9] == 0 && addr[10] == 0x5e && addr[11] == 0xfe;
	const char *what = isatap ? special_of(special4, ARRAY_LEN(special4), addr + 12) : NULL;

	for (size_t i = 0; !what && i < ARRAY_LEN(embedded); i++) {
		uint8_t v4[4];

		if (!same_bits(embedded[i].addr, addr, embedded[i].prefix))
			continue;
		*ret_any = true;
		for (size_t k = 0; k < 4; k++)
			v4[k] = addr[embedded[i].at + k] ^ embedded[i].flip;
		what = special_of(special4, ARRAY_LEN(special4), v4);
	}
	return what;
}

bool net_addr_public(const struct net_addr *a, const char **ret_what)
{
	const char *what = NULL;
	bool holds = false;

	if (a->family == 4) {
		what = special_of(special4, ARRAY_LEN(special4), a->addr);
	} else if (a->family == 6) {
		what = special_inside(a->addr, &holds);
		if (!what && !holds)
			what = special_of(special6, ARRAY_LEN(special6), a->addr);
		if (!what && !holds && (a->addr[0] & 0xe0) != 0x20)
			what = "a reserved address"; /* only 2000::/3 was ever given out */
	} else {
		what = "not an address";
	}
	if (what && ret_what)
		*ret_what = what;
	return !what;
}

/* ---- rules ------------------------------------------------------------------------------------------------------- */

static int bad(struct err *e, const char *text, const char *why, const char *remedy)
{
	err_set(e, ERR_INVALID, -EINVAL, "network rule '%.80s': %s", text, why);
	err_remedy(e, "%s", remedy);
	return -EINVAL;
}

/* One decimal number up to @max without leading zeros; what is behind it. */
static int number(const char **at, unsigned long max, unsigned long *ret)
{
	const char *p = *at;
	unsigned long v = 0;

	if (!is_digit(*p) || (*p == '0' && is_digit(p[1])))
		return -EINVAL;
	for (; is_digit(*p); p++) {
		v = v * 10 + (unsigned long)(*p - '0');
		if (v > max)
			return -EINVAL;
	}
	*at = p;
	*ret = v;
	return 0;
}

static void add_port(struct net_rule *r, unsigned n, uint16_t first, uint16_t last)
{
	unsigned i = n;

	/* In order, so that what means the same is the same. */
	for (; i > 0 && r->port[i - 1].first > first; i--)
		r->port[i] = r->port[i - 1];
	r->port[i].first = first;
	r->port[i].last = last;
}

static void join_ports(struct net_rule *r)
{
	unsigned n = 0;

	for (unsigned i = 1; i < r->nports; i++) {
		if (r->port[i].first <= r->port[n].last + 1U) {
			if (r->port[i].last > r->port[n].last)
				r->port[n].last = r->port[i].last;
		} else {
			r->port[++n] = r->port[i];
		}
	}
	r->nports = (uint8_t)(n + 1);
	if (n == 0 && r->port[0].first == 1 && r->port[0].last == UINT16_MAX)
		r->nports = 0;
	memset(&r->port[r->nports], 0, sizeof(r->port[0]) * (NET_PORTS_MAX - r->nports));
}

static int parse_ports(const char *at, struct net_rule *r)
{
	if (!strcmp(at, "*"))
		return 0;
	for (unsigned n = 0;; n++) {
		unsigned long first, last;

		if (n == NET_PORTS_MAX || number(&at, UINT16_MAX, &first) < 0)
			return -EINVAL;
		last = first;
		if (*at == '-' && (at++, number(&at, UINT16_MAX, &last) < 0))
			return -EINVAL;
		if (!first || last < first)
			return -EINVAL;
		add_port(r, n, (uint16_t)first, (uint16_t)last);
		r->nports = (uint8_t)(n + 1);
		if (!*at)
			break;
		if (*at++ != ',')
			return -EINVAL;
	}
	join_ports(r);
	return 0;
}

static void usual_ports(struct net_rule *r)
{
	r->nports = 2;
	r->port[0].first = r->port[0].last = 80;
	r->port[1].first = r->port[1].last = 443;
}

/* "/n" behind an address, and whether the address has bits behind it. */
static int parse_prefix(const char **at, struct net_rule *r, const char *text, bool mapped, struct err *e)
{
	unsigned most = r->family == 4 ? 32 : 128;
	unsigned long n = most;

	if (**at == '/') {
		(*at)++;
		if (number(at, most, &n) < 0)
			return bad(e, text, "the text after '/' is not a prefix length",
				   "write 10.1.0.0/16 or [fd00::]/8");
		if (mapped)
			return bad(e, text, "an IPv6 prefix that contains an IPv4 address",
				   "write it as IPv4: 10.1.0.0/16");
	}
	r->prefix = (uint8_t)n;
	for (unsigned bit = r->prefix; bit < most; bit++)
		if (r->addr[bit / 8] >> (7 - bit % 8) & 1)
			return bad(e, text, "the address has bits set after its prefix",
				   "write the network's first address, or no prefix for one address");
	return 0;
}

static int parse_host(const char **at, struct net_rule *r, const char *text, struct err *e)
{
	const char *end = *at;
	char word[NET_NAME_MAX + 2];
	struct net_addr a;
	size_t n;

	if (*end == '[') {
		n = strcspn(++end, "]");
		*at = end + n + 1;
		if (end[n] != ']')
			return bad(e, text, "a '[' without its ']'", "write IPv6 addresses as [2001:db8::1]:443");
	} else {
		n = strcspn(end, ":/");
		*at = end + n;
		if (end[n] == ':' && strchr(end + n + 1, ':'))
			return bad(e, text, "more than one ':'", "write IPv6 addresses as [2001:db8::1]:443");
	}
	if (n >= sizeof(word))
		return bad(e, text, "too long", "a name has at most 253 characters");
	memcpy(word, end, n);
	word[n] = '\0';
	if (end[n] == ']' || (net_addr_parse(word, &a) == 0 && !strchr(word, ':'))) {
		if (net_addr_parse(word, &a) < 0 || (end[n] == ']' && !strchr(word, ':')))
			return bad(e, text, "the text in brackets is not an IPv6 address",
				   "write it as [2001:db8::1]:443");
		r->kind = NET_RULE_ADDR;
		r->family = a.family;
		memcpy(r->addr, a.addr, sizeof(r->addr));
		return parse_prefix(at, r, text, end[n] == ']' && a.family == 4, e);
	}
	r->kind = NET_RULE_NAME;
	end = word;
	if (!strncmp(word, "*.", 2)) {
		r->kind = NET_RULE_BELOW;
		end += 2;
	}
	if (net_name_parse(end, strlen(end), r->name) < 0)
		return bad(e, text,
			   strchr(end, '*') ? "'*' can only replace whole labels, as in *.example.com" :
					      "neither a host name nor an address",
			   "write example.com, *.example.com, example.com:8443, 10.1.0.0/16:5432 or [2001:db8::1]:443");
	if (**at == '/')
		return bad(e, text, "a '/' after a name", "only addresses have a prefix; leave out scheme and path");
	return 0;
}

static const struct {
	const char *name;
	uint8_t option;
} options[] = { { "terminate", NET_RULE_TERMINATE }, { "ech", NET_RULE_ECH } };

/* "+terminate+ech" at @at. */
static int parse_options(const char *at, struct net_rule *r)
{
	while (*at == '+') {
		size_t n = strcspn(++at, "+"), i = 0;

		while (i < ARRAY_LEN(options) && (strlen(options[i].name) != n || memcmp(options[i].name, at, n)))
			i++;
		if (i == ARRAY_LEN(options) || r->options & options[i].option)
			return -EINVAL;
		r->options |= options[i].option;
		at += n;
	}
	return 0;
}

int net_rule_parse(const char *text, struct net_rule *ret, struct err *e)
{
	struct net_rule r = { 0 };
	char main[NET_RULE_TEXT];
	size_t len = strcspn(text, "+");
	const char *at = main;
	int n;

	if (*text == '@')
		return bad(e, text, "a set, where only names and addresses are allowed",
			   "write its members one by one");
	if (strstr(text, "://"))
		return bad(e, text, "a URL", "write the host's name only, without scheme and path");
	if (len >= sizeof(main))
		return bad(e, text, "too long", "a name has at most 253 characters");
	memcpy(main, text, len);
	main[len] = '\0';
	if (parse_options(text + len, &r) < 0)
		return bad(e, text, "the text after '+' is not an option, or the option is given twice",
			   "the options are +terminate and +ech");
	n = parse_host(&at, &r, text, e);
	if (n < 0)
		return n;
	if (!*at)
		usual_ports(&r);
	else if (*at != ':' || parse_ports(at + 1, &r) < 0)
		return bad(e, text, "the text after ':' is not a list of ports",
			   "write up to 8 ports or ranges as 80,443,8000-8100, or * for all");
	if (r.options && r.kind == NET_RULE_ADDR)
		return bad(e, text, "an address with an option", "only rules with names can have +terminate and +ech");
	*ret = r;
	return 0;
}

static bool ports_are_usual(const struct net_rule *r)
{
	return r->nports == 2 && r->port[0].first == 80 && r->port[0].last == 80 && r->port[1].first == 443 &&
	       r->port[1].last == 443;
}

__attribute__((format(printf, 3, 4))) static void add(char out[NET_RULE_TEXT], size_t *len, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(out + *len, NET_RULE_TEXT - *len, fmt, ap);
	va_end(ap);
	if (n > 0)
		*len += (size_t)n < NET_RULE_TEXT - *len ? (size_t)n : NET_RULE_TEXT - *len - 1;
}

void net_rule_text(const struct net_rule *r, char out[NET_RULE_TEXT])
{
	struct net_addr a = { .family = r->family };
	char text[64];
	size_t len = 0;

	out[0] = '\0';
	if (r->kind == NET_RULE_ADDR) {
		memcpy(a.addr, r->addr, sizeof(a.addr));
		net_addr_text(&a, text);
		add(out, &len, r->family == 4 ? "%s" : "[%s]", text);
		if (r->prefix != (r->family == 4 ? 32 : 128))
			add(out, &len, "/%u", r->prefix);
	} else {
		add(out, &len, r->kind == NET_RULE_BELOW ? "*.%s" : "%s", r->name);
	}
	if (!r->nports)
		add(out, &len, ":*");
	for (unsigned i = 0; i < r->nports && !ports_are_usual(r); i++) {
		add(out, &len, "%c%u", i ? ',' : ':', r->port[i].first);
		if (r->port[i].last != r->port[i].first)
			add(out, &len, "-%u", r->port[i].last);
	}
	for (size_t i = 0; i < ARRAY_LEN(options); i++)
		if (r->options & options[i].option)
			add(out, &len, "+%s", options[i].name);
}

static bool has_port(const struct net_rule *r, uint16_t port)
{
	for (unsigned i = 0; i < r->nports; i++)
		if (port >= r->port[i].first && port <= r->port[i].last)
			return true;
	return !r->nports;
}

bool net_rule_has_name(const struct net_rule *r, const char *name, uint16_t port)
{
	size_t n, below;

	if (!has_port(r, port))
		return false;
	if (r->kind == NET_RULE_NAME)
		return !strcmp(r->name, name);
	if (r->kind != NET_RULE_BELOW)
		return false;
	n = strlen(name);
	below = strlen(r->name);
	return n > below + 1 && name[n - below - 1] == '.' && !strcmp(name + n - below, r->name);
}

bool net_rule_has_addr(const struct net_rule *r, const struct net_addr *a, uint16_t port)
{
	return r->kind == NET_RULE_ADDR && r->family == a->family && same_bits(r->addr, a->addr, r->prefix) &&
	       has_port(r, port);
}

static bool same_host(const struct net_rule *a, const struct net_rule *b)
{
	return a->kind == b->kind && a->options == b->options && !strcmp(a->name, b->name) && a->family == b->family &&
	       a->prefix == b->prefix && !memcmp(a->addr, b->addr, sizeof(a->addr));
}

bool net_rule_join(struct net_rule *a, const struct net_rule *b)
{
	struct net_rule to = *a;

	if (!same_host(a, b))
		return false;
	if (!a->nports)
		return true;
	if (!b->nports) {
		a->nports = 0;
		return true;
	}
	for (unsigned i = 0; i < b->nports; i++) {
		bool has = false;
		unsigned at;

		for (unsigned k = 0; k < to.nports; k++)
			has |= to.port[k].first <= b->port[i].first && to.port[k].last >= b->port[i].last;
		if (has)
			continue;
		if (to.nports == NET_PORTS_MAX)
			return false;
		for (at = to.nports; at && to.port[at - 1].first > b->port[i].first; at--)
			to.port[at] = to.port[at - 1];
		to.port[at] = b->port[i];
		to.nports++;
	}
	*a = to;
	return true;
}

static bool port_ok(const char *text)
{
	size_t n = strlen(text);

	return n > 0 && n < 6 && strspn(text, "0123456789") == n && strtoul(text, NULL, 10) > 0 &&
	       strtoul(text, NULL, 10) < 65536;
}

bool net_server_ok(const char *text)
{
	const bool six = *text == '[';
	const char *end = strchr(text, six ? ']' : ':'), *port = !end ? NULL : six ? end + 1 : end;
	char address[64];
	struct net_addr a;

	if (net_addr_parse(text, &a) == 0)
		return true;
	if (!end || (size_t)(end - text) >= sizeof(address) || (*port && (*port != ':' || !port_ok(port + 1))))
		return false;
	snprintf(address, sizeof(address), "%.*s", (int)(end - text - six), text + six);
	return net_addr_parse(address, &a) == 0 && a.family == (six ? 6 : 4);
}
