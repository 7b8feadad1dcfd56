/* Makes skopeo's configuration files from the daemon's options. */
#include "service/image/registry_conf.h"
#include "base/base.h"
#include "base/buf.h"
#include "base/json.h"
#include "service/network/conf.h"

#include <jansson.h>

#define AUTH_MAX (64U * KIB)

/* Accepts "127.0.0.1", "127.0.0.1:5000", "localhost:5000"; *ret_port begins with the colon, or is empty. */
static bool is_loopback(const char *registry, const char **ret_port)
{
	size_t n = strcspn(registry, ":");

	*ret_port = registry + n;
	return (n == 9 && !strncmp(registry, "localhost", n)) || (n == 9 && !strncmp(registry, "127.0.0.1", n));
}

static bool is_host(const char *registry, const char *key, size_t n)
{
	static const char *const old[] = { "index.docker.io", "registry-1.docker.io" };

	if (strlen(registry) == n && !strncmp(key, registry, n))
		return true;
	for (size_t i = 0; i < ARRAY_LEN(old) && !strcmp(registry, "docker.io"); i++)
		if (strlen(old[i]) == n && !strncmp(key, old[i], n))
			return true;
	return false;
}

/*
 * How closely a key of a login file means this repository; 0: it does not. A key is a registry, as in names of images or as a
 * URL, or a registry and the first folders of a repository, which are all that its login is for.
 */
static size_t key_fits(const char *key, const char *registry, const char *repository)
{
	const char *at = strstr(key, "://"), *path;
	size_t n, len;

	key = at ? at + 3 : key;
	n = strcspn(key, "/");
	if (!is_host(registry, key, n))
		return 0;
	path = key[n] ? key + n + 1 : "";
	if (at || !*path || !strcmp(path, "v1/") || !strcmp(path, "v2/"))
		return 1; /* such paths are of the registry's own API */
	len = strlen(path);
	len -= path[len - 1] == '/';
	return !strncmp(repository, path, len) && (!repository[len] || repository[len] == '/') ? 1 + len : 0;
}

/* Finds the login for a repository; *ret is NULL when the file has none. Points into @file. */
static int find_login(json_t *file, const struct oci_name *name, const char **ret, struct err *e)
{
	json_t *auths = json_object_get(file, "auths"), *one, *found = NULL;
	size_t best = 0;
	const char *key;

	json_object_foreach(auths, key, one)
	{
		const size_t fits = key_fits(key, name->registry, name->repository);

		found = fits > best ? one : found;
		best = fits > best ? fits : best;
	}
	*ret = json_string_value(json_object_get(found, "auth"));
	if (*ret || !found)
		return 0;
	err_set(e, ERR_INVALID, -EINVAL, "the daemon's `image_auth` has no `auth` for %.200s", name->registry);
	err_remedy(e, "log in with `skopeo login --authfile FILE`; credential helpers are not used");
	return -EINVAL;
}

static int write_auth(const struct registry_conf *c, const char *login, char **ret)
{
	AUTO(buf_done) struct buf text = BUF_INIT(2 * AUTH_MAX);
	struct json j = JSON_INIT(&text);

	jout_object(&j, NULL);
	jout_object(&j, "auths");
	if (login) {
		jout_object(&j, c->host);
		jout_str(&j, "auth", login);
		jout_end(&j);
	}
	jout_end(&j);
	jout_end(&j);
	*ret = jout_done(&j) < 0 ? NULL : buf_take(&text);
	return *ret ? 0 : -ENOMEM;
}

int registry_conf_make(const struct service_opts *o, const struct oci_name *name, const char *login,
		       struct registry_conf *ret, struct err *e)
{
	AUTO(json_decref) json_t *file = NULL;
	const char *registry = name->registry;
	const char *port;
	int r = 0;

	*ret = (struct registry_conf){ .ca = o->image_ca, .registries = o->image_registries };
	ret->loopback = is_loopback(registry, &port);
	snprintf(ret->host, sizeof(ret->host), "%s%s", ret->loopback ? NET_LOOPBACK_NAME : registry,
		 ret->loopback ? port : "");
	if (!login && *o->image_auth) {
		file = json_loads(o->image_auth, JSON_REJECT_DUPLICATES, NULL);
		if (!json_is_object(file))
			return err_set(e, ERR_INVALID, -EINVAL, "the daemon's `image_auth` is not valid JSON");
		r = find_login(file, name, &login, e);
	}
	if (r == 0 && login && strlen(login) > AUTH_MAX)
		return err_set(e, ERR_TOO_LARGE, -E2BIG, "the login for %.200s is longer than 64 KiB", registry);
	if (r == 0 && write_auth(ret, login, &ret->auth) < 0)
		r = err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a login");
	return r;
}

void registry_conf_done(struct registry_conf *c)
{
	free(c->auth);
	c->auth = NULL;
}
