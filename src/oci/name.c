/*
 * Reads names of images. The grammar is that of OCI's distribution specification: a repository is parts of lower-case letters
 * and digits, joined by one of ". _ __ -" (or several "-"), separated by "/". The first part is a registry if it contains a
 * "." or ":", or is "localhost".
 */
#include "oci/name.h"
#include "base/base.h"
#include "oci/digest.h"

static int bad(const char *text, const char *why, struct err *e)
{
	err_set(e, ERR_INVALID, -EINVAL, "'%.120s' is not the name of an image: %s", text, why);
	err_remedy(e, "use NAME, NAME:TAG or NAME@sha256:DIGEST, with a registry in front if it is not docker.io");
	return -EINVAL;
}

static bool is_low(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

static bool is_word(char c)
{
	return is_low(c) || (c >= 'A' && c <= 'Z') || c == '_';
}

/* Checks one part of a repository, of @n bytes. */
static bool part_ok(const char *p, size_t n)
{
	for (size_t i = 0; i < n;) {
		size_t from = i;

		while (i < n && is_low(p[i]))
			i++;
		if (i == from)
			return false;
		if (i == n)
			return true;
		from = i;
		while (i < n && !is_low(p[i]))
			i++;
		if (p[from] == '-' ? strspn(p + from, "-") < i - from :
		    p[from] == '_' ? strspn(p + from, "_") < i - from || i - from > 2 :
				     p[from] != '.' || i - from > 1)
			return false;
	}
	return false;
}

static bool repository_ok(const char *p)
{
	while (*p) {
		size_t n = strcspn(p, "/");

		if (!part_ok(p, n))
			return false;
		p += n;
		if (*p == '/' && !*++p)
			return false;
	}
	return true;
}

/* Accepts host names, IPv4 and bracketed IPv6 addresses, with or without a port. */
static bool registry_ok(const char *p)
{
	const char *port;
	size_t n;

	if (*p == '[') {
		n = strspn(p + 1, "0123456789abcdefABCDEF:.");
		if (n < 2 || p[n + 1] != ']')
			return false;
		port = p + n + 2;
	} else {
		n = strcspn(p, ":");
		for (size_t i = 0; i < n; i++)
			if (!is_low((char)(p[i] | 32)) && p[i] != '-' && p[i] != '.')
				return false;
		if (!n || p[0] == '-' || p[0] == '.' || p[n - 1] == '-' || p[n - 1] == '.')
			return false;
		port = p + n;
	}
	if (!*port)
		return true;
	n = strspn(port + 1, "0123456789");
	return *port == ':' && n >= 1 && n <= 5 && !port[n + 1];
}

static bool tag_ok(const char *p)
{
	if (!is_word(*p) || strlen(p) >= OCI_TAG_MAX)
		return false;
	for (; *p; p++)
		if (!is_word(*p) && *p != '.' && *p != '-')
			return false;
	return true;
}

int oci_name_parse(const char *text, struct oci_name *ret, struct err *e)
{
	struct oci_name n = { 0 };
	char rest[OCI_NAME_MAX], *repository = rest, *slash, *at, *colon;
	const char *library;

	if (!*text || strlen(text) >= sizeof(rest))
		return bad(text, *text ? "it is too long" : "it is empty", e);
	memcpy(rest, text, strlen(text) + 1);
	at = strchr(rest, '@');
	if (at) {
		*at++ = '\0';
		if (!oci_digest_ok(at))
			return bad(text, "behind '@' must be sha256: and 64 hexadecimal digits in lower case", e);
		memcpy(n.digest, at, strlen(at) + 1);
	}
	slash = strchr(rest, '/');
	colon = strrchr(slash ? strrchr(rest, '/') : rest, ':');
	if (colon) {
		*colon++ = '\0';
		if (!tag_ok(colon))
			return bad(text, "its tag must be 1 to 128 letters, digits, '_', '.' or '-'", e);
		memcpy(n.tag, colon, strlen(colon) + 1);
	} else if (!at) {
		memcpy(n.tag, OCI_TAG, sizeof(OCI_TAG));
	}
	memcpy(n.registry, OCI_REGISTRY, sizeof(OCI_REGISTRY));
	if (slash) {
		*slash = '\0';
		if (strpbrk(rest, ".:") || !strcmp(rest, "localhost")) {
			if (strlen(rest) >= sizeof(n.registry) || !registry_ok(rest))
				return bad(text, "its registry must be HOST or HOST:PORT", e);
			memcpy(n.registry, rest, strlen(rest) + 1);
			repository = slash + 1;
		} else {
			*slash = '/';
		}
	}
	if (!strcmp(n.registry, "index.docker.io"))
		snprintf(n.registry, sizeof(n.registry), "%s", OCI_REGISTRY);
	library = !strcmp(n.registry, OCI_REGISTRY) && !strchr(repository, '/') ? OCI_LIBRARY : "";
	if (!*repository || strlen(library) + strlen(repository) >= sizeof(n.repository) || !repository_ok(repository))
		return bad(text, "its repository must be lower-case letters and digits, joined by '.', '_', '-' or '/'",
			   e);
	memcpy(n.repository, library, strlen(library));
	memcpy(n.repository + strlen(library), repository, strlen(repository) + 1);
	*ret = n;
	return 0;
}

static void put(const struct oci_name *n, const char *registry, const char *slash, const char *repository,
		char ret[OCI_NAME_MAX])
{
	snprintf(ret, OCI_NAME_MAX, "%s%s%s%s%s%s%s", registry, slash, repository, n->tag[0] ? ":" : "", n->tag,
		 n->digest[0] ? "@" : "", n->digest);
}

void oci_name_full(const struct oci_name *n, char ret[OCI_NAME_MAX])
{
	put(n, n->registry, "/", n->repository, ret);
}

void oci_name_short(const struct oci_name *n, char ret[OCI_NAME_MAX])
{
	const size_t skip = strlen(OCI_LIBRARY), first = strcspn(n->repository, "/");
	/* What would be read as a registry: without docker.io before it, it would be another name. */
	const bool host = n->repository[first] &&
			  (memchr(n->repository, '.', first) || !strncmp(n->repository, "localhost/", 10));

	if (strcmp(n->registry, OCI_REGISTRY) || host)
		put(n, n->registry, "/", n->repository, ret);
	else if (!strncmp(n->repository, OCI_LIBRARY, skip) && !strchr(n->repository + skip, '/'))
		put(n, "", "", n->repository + skip, ret);
	else
		put(n, "", "", n->repository, ret);
}
