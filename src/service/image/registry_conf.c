/* Makes skopeo's configuration files from the daemon's options. */
#include "service/image/registry_conf.h"
#include "base/base.h"
#include "base/base64.h"
#include "base/buf.h"
#include "base/json.h"
#include "oci/login.h"
#include "oci/mirrors.h"
#include "service/network/conf.h"

#define AUTH_MAX (64U * KIB)
#define REGISTRIES_MAX (128U * KIB)
#define HIDE_MIN 4U /* shorter passwords are parts of too many words */

/* What skopeo gets: the places that an image can come from, and the login for each. */
struct logins {
	char place[OCI_MIRRORS_MAX + 1][OCI_PLACE_MAX];
	const char *login[OCI_MIRRORS_MAX + 1]; /* NULL: without one */
	unsigned n;
};

/* Finds the login for a repository; *ret is NULL when the file has none. Points into @file. */
static int find_login(const json_t *file, const char *registry, const char *repository, const char **ret, struct err *e)
{
	const json_t *found = oci_login_find(file, registry, repository);

	*ret = json_string_value(json_object_get(found, "auth"));
	if (found && !*ret) {
		err_set(e, ERR_INVALID, -EINVAL, "the daemon's `image_auth` has no `auth` for %.200s", registry);
		err_remedy(e, "log in with `skopeo login --authfile FILE`; credential helpers are not used");
		return -EINVAL;
	}
	if (*ret && strlen(*ret) > AUTH_MAX)
		return err_set(e, ERR_TOO_LARGE, -E2BIG, "the login for %.200s is longer than 64 KiB", registry);
	return 0;
}

/* The registry of a place, as `image_auth` names it. */
static void registry_of(const char *place, char ret[OCI_PLACE_MAX])
{
	const size_t n = strcspn(place, "/"), name = strlen(NET_LOOPBACK_NAME);
	const bool here = n >= name && !strncmp(place, NET_LOOPBACK_NAME, name);

	snprintf(ret, OCI_PLACE_MAX, "%s%.*s", here ? "localhost" : "", (int)(here ? n - name : n),
		 here ? place + name : place);
}

static bool is_of(const char *place, const char *host)
{
	const size_t n = strlen(host);

	return !strncmp(place, host, n) && place[n] == '/';
}

/*
 * Adds the logins of the mirrors that `image_registries` names for this repository. A caller's @own login is for the registry
 * that was named, also where the administrator has another one for it.
 */
static int add_mirrors(const struct registry_conf *c, const struct oci_name *name, const json_t *file, bool own,
		       struct logins *l, struct err *e)
{
	char ref[OCI_PLACE_MAX], place[OCI_MIRRORS_MAX][OCI_PLACE_MAX], registry[OCI_PLACE_MAX];
	const char *login;
	unsigned n;
	int r = 0;

	snprintf(ref, sizeof(ref), "%.250s/%.250s", c->host, name->repository);
	n = oci_mirrors(c->registries, ref, place);
	for (unsigned i = 0; r == 0 && i < n; i++) {
		const char *path = strchr(place[i], '/');

		if (!path || (own && is_of(place[i], c->host)))
			continue;
		registry_of(place[i], registry);
		r = find_login(file, registry, path + 1, &login, e);
		if (r < 0 || !login)
			continue;
		memcpy(l->place[l->n], place[i], sizeof(place[i]));
		l->login[l->n++] = login;
	}
	return r;
}

static int write_auth(const struct logins *l, char **ret)
{
	AUTO(buf_done) struct buf text = BUF_INIT((OCI_MIRRORS_MAX + 2) * AUTH_MAX);
	struct json j = JSON_INIT(&text);

	jout_object(&j, NULL);
	jout_object(&j, "auths");
	for (unsigned i = 0; i < l->n; i++) {
		jout_object(&j, l->place[i]);
		jout_str(&j, "auth", l->login[i]);
		jout_end(&j);
	}
	jout_end(&j);
	jout_end(&j);
	*ret = jout_done(&j) < 0 ? NULL : buf_take(&text);
	return *ret ? 0 : -ENOMEM;
}

/* Places on this machine have another name in the sandbox. */
static int write_registries(const char *from, char **ret)
{
	AUTO(buf_done) struct buf text = BUF_INIT(REGISTRIES_MAX);
	int r = oci_mirrors_rename_loopback(from, NET_LOOPBACK_NAME, &text);

	*ret = r < 0 ? NULL : strdup(buf_str(&text));
	return r < 0 ? r : *ret ? 0 : -ENOMEM;
}

int registry_conf_make(const struct service_opts *o, const struct oci_name *name, const char *login,
		       struct registry_conf *ret, struct err *e)
{
	AUTO(json_decref) json_t *file = NULL;
	const char *registry = name->registry;
	const bool own = login;
	struct logins l = { .n = 0 };
	const char *port;
	int r;

	*ret = (struct registry_conf){ .ca = o->image_ca };
	ret->loopback = oci_registry_is_loopback(registry, &port);
	snprintf(ret->host, sizeof(ret->host), "%s%s", ret->loopback ? NET_LOOPBACK_NAME : registry,
		 ret->loopback ? port : "");
	r = write_registries(o->image_registries, &ret->registries);
	if (r < 0)
		return err_set(e, ERR_EXHAUSTED, r, "no memory for the daemon's `image_registries`");
	if (*o->image_auth) {
		file = json_loads(o->image_auth, JSON_REJECT_DUPLICATES, NULL);
		if (!json_is_object(file))
			r = err_set(e, ERR_INVALID, -EINVAL, "the daemon's `image_auth` is not valid JSON");
		else if (!own)
			r = find_login(file, registry, name->repository, &login, e);
	}
	if (r == 0 && login && strlen(login) > AUTH_MAX)
		r = err_set(e, ERR_TOO_LARGE, -E2BIG, "the login for %.200s is longer than 64 KiB", registry);
	if (r == 0 && login) {
		snprintf(l.place[l.n], OCI_PLACE_MAX, "%s", ret->host);
		l.login[l.n++] = login;
	}
	if (r == 0 && file)
		r = add_mirrors(ret, name, file, own, &l, e);
	if (r == 0 && write_auth(&l, &ret->auth) < 0)
		r = err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a login");
	if (r < 0)
		registry_conf_done(ret);
	return r;
}

/* Overwrites each @what in @text. */
static void hide(char *text, const char *what, size_t n)
{
	for (char *at = text; n >= HIDE_MIN && (at = strstr(at, what)); at += n)
		memset(at, '*', n);
}

static void hide_login(char *text, const char *login)
{
	AUTO_FREE char *plain = malloc(strlen(login) + 1);
	ssize_t n = plain ? base64_decode(login, strlen(login), plain) : -ENOMEM;
	char *colon;

	hide(text, login, strlen(login));
	if (n <= 0)
		return;
	plain[n] = '\0';
	colon = strchr(plain, ':');
	if (colon)
		hide(text, colon + 1, strlen(colon + 1));
	explicit_bzero(plain, (size_t)n);
}

void registry_conf_hide(const struct registry_conf *c, char *text)
{
	AUTO(json_decref) json_t *file = c->auth ? json_loads(c->auth, 0, NULL) : NULL;
	json_t *one;
	const char *key;

	json_object_foreach(json_object_get(file, "auths"), key, one)
	{
		const char *login = json_string_value(json_object_get(one, "auth"));

		if (login)
			hide_login(text, login);
	}
}

void registry_conf_done(struct registry_conf *c)
{
	free(c->auth);
	free(c->registries);
	c->auth = c->registries = NULL;
}
