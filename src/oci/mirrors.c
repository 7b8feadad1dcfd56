/* Reads the part of a registries.conf that says where a repository is looked for. */
#include "oci/mirrors.h"
#include "base/base.h"

enum table { TABLE_OTHER, TABLE_REGISTRY, TABLE_MIRROR };

struct text {
	const char *at;
	size_t n;
};

struct registry {
	struct text prefix, location, mirror[OCI_MIRRORS_MAX];
	unsigned mirrors;
};

struct reading {
	const char *ref;
	enum table table;
	struct registry now, best; /* ->best: the one with the longest prefix that fits so far */
	size_t fits;
};

static struct text trim(const char *at, size_t n)
{
	for (; n && strchr(" \t\r", *at); at++)
		n--;
	for (; n && strchr(" \t\r", at[n - 1]); n--)
		;
	return (struct text){ at, n };
}

static bool is(struct text t, const char *word)
{
	return t.n == strlen(word) && !strncmp(t.at, word, t.n);
}

/* How many bytes of @ref the prefix is for; 0: it does not fit. Of "*.example" that is the whole name of the host. */
static size_t prefix_fits(const char *ref, struct text prefix)
{
	const size_t host = strcspn(ref, "/");
	size_t n = prefix.n;

	if (n > 2 && !strncmp(prefix.at, "*.", 2)) {
		const struct text tail = { prefix.at + 1, n - 1 };

		return host > tail.n && !strncmp(ref + host - tail.n, tail.at, tail.n) ? host : 0;
	}
	return n && !strncmp(ref, prefix.at, n) && (!ref[n] || strchr("/:", ref[n])) ? n : 0;
}

static void end_registry(struct reading *r)
{
	const struct text prefix = r->now.prefix.n ? r->now.prefix : r->now.location;
	const size_t fits = prefix_fits(r->ref, prefix);

	if (fits > r->fits) {
		r->best = r->now;
		r->fits = fits;
	}
	r->now = (struct registry){ 0 };
}

/* The text of a line `KEY = "VALUE"`. */
static bool read_pair(struct text line, struct text *ret_key, struct text *ret_value)
{
	const char *equals = memchr(line.at, '=', line.n), *end;
	struct text v;

	if (!equals)
		return false;
	*ret_key = trim(line.at, (size_t)(equals - line.at));
	v = trim(equals + 1, line.n - (size_t)(equals + 1 - line.at));
	if (v.n < 2 || !strchr("\"'", *v.at) || !(end = memchr(v.at + 1, *v.at, v.n - 1)))
		return false;
	*ret_value = (struct text){ v.at + 1, (size_t)(end - v.at - 1) };
	return true;
}

static void read_line(struct reading *r, struct text line)
{
	struct text key, value;

	if (line.n && *line.at == '[') {
		const char *end = memchr(line.at, '#', line.n);
		const struct text head = trim(line.at, end ? (size_t)(end - line.at) : line.n);

		r->table = is(head, "[[registry]]")	   ? TABLE_REGISTRY :
			   is(head, "[[registry.mirror]]") ? TABLE_MIRROR :
							     TABLE_OTHER;
		if (r->table == TABLE_REGISTRY)
			end_registry(r);
		return;
	}
	if (r->table == TABLE_OTHER || !read_pair(line, &key, &value))
		return;
	if (is(key, "location") && r->table == TABLE_MIRROR && r->now.mirrors < OCI_MIRRORS_MAX)
		r->now.mirror[r->now.mirrors++] = value;
	else if (is(key, "location") && r->table == TABLE_REGISTRY)
		r->now.location = value;
	else if (is(key, "prefix") && r->table == TABLE_REGISTRY)
		r->now.prefix = value;
}

static unsigned add_place(const struct reading *r, struct text location, unsigned n,
			  char ret[OCI_MIRRORS_MAX][OCI_PLACE_MAX])
{
	int len;

	if (!location.n || location.n >= OCI_PLACE_MAX || n == OCI_MIRRORS_MAX)
		return n;
	len = snprintf(ret[n], OCI_PLACE_MAX, "%.*s%s", (int)location.n, location.at, r->ref + r->fits);
	return len > 0 && (size_t)len < OCI_PLACE_MAX && strcmp(ret[n], r->ref) != 0 ? n + 1 : n;
}

unsigned oci_mirrors(const char *conf, const char *ref, char ret[OCI_MIRRORS_MAX][OCI_PLACE_MAX])
{
	struct reading r = { .ref = ref };
	unsigned n = 0;

	for (size_t len; *conf; conf += len + (conf[len] == '\n')) {
		len = strcspn(conf, "\n");
		read_line(&r, trim(conf, len));
	}
	end_registry(&r);
	n = add_place(&r, r.best.location, n, ret);
	for (unsigned i = 0; i < r.best.mirrors; i++)
		n = add_place(&r, r.best.mirror[i], n, ret);
	return n;
}

/* Whether the line's value is a place on this machine; *ret: its host without the port. */
static bool on_loopback(struct text line, struct text *ret)
{
	static const char *const names[] = { "localhost", "127.0.0.1" };
	struct text key, value;

	if (!read_pair(line, &key, &value) || (!is(key, "location") && !is(key, "prefix")))
		return false;
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		const size_t n = strlen(names[i]);

		*ret = (struct text){ value.at, n };
		if (value.n >= n && is(*ret, names[i]) && (value.n == n || strchr(":/", value.at[n])))
			return true;
	}
	return false;
}

int oci_mirrors_rename_loopback(const char *conf, const char *name, struct buf *ret)
{
	int r = 0;

	for (size_t len; r == 0 && *conf; conf += len) {
		struct text host;

		len = strcspn(conf, "\n");
		if (on_loopback(trim(conf, len), &host)) {
			r = buf_addf(ret, "%.*s%s", (int)(host.at - conf), conf, name);
			len -= (size_t)(host.at + host.n - conf);
			conf = host.at + host.n;
		}
		len += conf[len] == '\n';
		if (r == 0)
			r = buf_add(ret, conf, len);
	}
	return r;
}
