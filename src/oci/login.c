/* Finds the login for a repository. */
#include "oci/login.h"
#include "base/base.h"
#include "oci/name.h"

static bool is_name(const char *text, size_t n, const char *name)
{
	return strlen(name) == n && !strncmp(text, name, n);
}

bool oci_registry_is_loopback(const char *registry, const char **ret_port)
{
	const size_t n = strcspn(registry, ":/");

	*ret_port = registry + n;
	return is_name(registry, n, "localhost") || is_name(registry, n, "127.0.0.1");
}

/* Whether the first @n bytes of @key name @registry. */
static bool is_registry(const char *key, size_t n, const char *registry)
{
	static const char *const old[] = { "index.docker.io", "registry-1.docker.io" };
	const char *port, *key_port;

	if (is_name(key, n, registry))
		return true;
	for (size_t i = 0; i < ARRAY_LEN(old) && !strcmp(registry, OCI_REGISTRY); i++)
		if (is_name(key, n, old[i]))
			return true;
	return oci_registry_is_loopback(registry, &port) && oci_registry_is_loopback(key, &key_port) &&
	       is_name(key_port, n - (size_t)(key_port - key), port);
}

/* How closely a key fits; 0: it is not meant. */
static size_t key_fits(const char *key, const char *registry, const char *repository)
{
	const char *at = strstr(key, "://"), *path;
	size_t n, len;

	key = at ? at + 3 : key;
	n = strcspn(key, "/");
	if (!is_registry(key, n, registry))
		return 0;
	path = key[n] ? key + n + 1 : "";
	if (at || !*path || !strcmp(path, "v1/") || !strcmp(path, "v2/"))
		return 1; /* such paths are of the registry's own API */
	len = strlen(path);
	len -= path[len - 1] == '/';
	return !strncmp(repository, path, len) && (!repository[len] || repository[len] == '/') ? 1 + len : 0;
}

const json_t *oci_login_find(const json_t *file, const char *registry, const char *repository)
{
	json_t *auths = json_object_get(file, "auths"), *one;
	const json_t *found = NULL;
	size_t best = 0;
	const char *key;

	json_object_foreach(auths, key, one)
	{
		const size_t fits = key_fits(key, registry, repository);

		found = fits > best ? one : found;
		best = fits > best ? fits : best;
	}
	return found;
}
