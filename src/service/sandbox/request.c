/* Parses and writes the request for a sandbox. */
#include "service/sandbox/request.h"
#include "base/base.h"
#include "base/str.h"
#include "proto/frame.h"

#include "oci/name.h"
#include "service/state/json_read.h"

#include <fcntl.h>
#include <unistd.h>
#include "tier/tiers.h"

void kv_done(struct kv *k)
{
	for (uint32_t i = 0; i < k->n; i++)
		free(k->item[i]);
	free(k->item);
	*k = (struct kv){ 0 };
}

int kv_copy(struct kv *to, const struct kv *from)
{
	struct kv k = { .item = calloc(from->n + 1, sizeof(char *)) };

	if (!k.item)
		return -ENOMEM;
	for (; k.n < from->n; k.n++) {
		k.item[k.n] = strdup(from->item[k.n]);
		if (!k.item[k.n]) {
			kv_done(&k);
			return -ENOMEM;
		}
	}
	*to = k;
	return 0;
}

bool env_name_ok(const char *name, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)name[i] < 33 || name[i] == 127 || name[i] == '=')
			return false;
	return n && n <= KV_NAME_MAX;
}

static int check_key(const char *key, const char *what, bool env, struct err *e)
{
	if (!*key || strlen(key) > KV_NAME_MAX)
		return err_set(e, WHY_BAD_FIELD, -EINVAL, "'%s': names must have 1 to 256 bytes", what);
	if (strchr(key, '='))
		return err_set(e, WHY_BAD_FIELD, -EINVAL, "'%s': the name '%.60s' contains a '='", what, key);
	if (env && !env_name_ok(key, strlen(key)))
		return err_set(e, WHY_BAD_FIELD, -EINVAL, "'%s': a name contains a space or control character", what);
	return 0;
}

int kv_parse(const json_t *o, const char *what, uint32_t max, bool env, struct kv *ret, struct err *e)
{
	struct kv k = { 0 };
	const char *key;
	json_t *walk, *v;
	int r = 0;

	if (json_object_size(o) > max)
		return err_set(e, ERR_INVALID, -E2BIG, "'%s': at most %u", what, max);
	k.item = calloc(json_object_size(o) + 1, sizeof(char *));
	if (!k.item)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for '%s'", what);
	memcpy(&walk, &o, sizeof(walk)); /* the library's walk takes no const, and changes nothing */
	json_object_foreach(walk, key, v)
	{
		const char *text = json_string_value(v);
		size_t n = strlen(key);

		r = check_key(key, what, env, e);
		if (r == 0 && !text)
			r = err_set(e, WHY_BAD_FIELD, -EINVAL, "'%s': '%.60s' must be a string", what, key);
		if (r == 0 && !env && strlen(text) > 4096)
			r = err_set(e, ERR_INVALID, -E2BIG, "'%s': '%.60s' must be at most 4096 bytes", what, key);
		if (r < 0)
			break;
		k.item[k.n] = malloc(n + strlen(text) + 2);
		if (!k.item[k.n]) {
			r = err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for '%s'", what);
			break;
		}
		memcpy(k.item[k.n], key, n);
		k.item[k.n][n] = '=';
		memcpy(k.item[k.n] + n + 1, text, strlen(text) + 1);
		k.n++;
	}
	if (r < 0) {
		kv_done(&k);
		return r;
	}
	kv_done(ret);
	*ret = k;
	return 0;
}

void kv_write(const struct kv *k, const char *key, struct json *j)
{
	jout_object(j, key);
	for (uint32_t i = 0; i < k->n; i++) {
		char *eq = strchr(k->item[i], '=');

		*eq = 0;
		jout_str(j, k->item[i], eq + 1);
		*eq = '=';
	}
	jout_end(j);
}

int name_check(const char *name, struct err *e)
{
	static const char fit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-";
	size_t n = strlen(name);

	if (n < 1 || n > NAME_MAX_LEN || strspn(name, fit) != n || name[0] == '.' || name[0] == '-' ||
	    strstr(name, ".."))
		return err_set(e, ERR_INVALID, -EINVAL,
			       "'name' must be 1 to 64 letters, digits, '_', '.' or '-', without '..', and not start "
			       "with '.' or '-'");
	return 0;
}

int user_parse(const char *text, struct user_request *ret, struct err *e)
{
	uint64_t uid = USER_ID, gid = USER_ID;
	char head[sizeof(ret->text)] = "", *colon;
	const size_t len = strlen(text);
	bool named = false;
	int r = len < sizeof(head) ? 0 : -EINVAL;

	if (r == 0)
		memcpy(head, text, len);
	colon = strchr(head, ':');
	if (!strcmp(text, "root")) {
		uid = gid = 0;
	} else if (r == 0 && strcmp(text, "user")) {
		named = account_check(text) == 0;
		if (colon)
			*colon++ = 0;
		r = named ? 0 : parse_u64(head, &uid, NULL);
		gid = uid;
		if (r == 0 && colon && !named)
			r = parse_u64(colon, &gid, NULL);
	}
	if (r < 0 || !account_id_ok(uid) || !account_id_ok(gid)) {
		err_set(e, ERR_INVALID, -EINVAL,
			"'user' must be user, root, \"UID\", \"UID:GID\" up to 65535, or names: NAME, NAME:GROUP");
		return -EINVAL;
	}
	memset(ret->text, 0, sizeof(ret->text));
	memcpy(ret->text, text, len);
	ret->named = named;
	ret->uid = (uint32_t)uid;
	ret->gid = (uint32_t)gid;
	return 0;
}

int user_parse_ids(const char *text, struct user_request *ret, struct err *e)
{
	struct user_request u;
	int r = user_parse(text, &u, e);

	if (r == 0 && u.named)
		r = err_set(
			e, ERR_INVALID, -EINVAL,
			"'user' must be user, root, \"UID\" or \"UID:GID\" up to 65535 for a sandbox (got '%.40s'); "
			"only an exec accepts other names",
			text);
	if (r == 0)
		*ret = u;
	return r;
}

static void put_path(struct json_read *j, const char *key, const char *text, char to[SPEC_PATH])
{
	if (strlen(text) >= SPEC_PATH)
		json_read_bad(j, key, "must be at most %d bytes", SPEC_PATH - 1);
	else
		memcpy(to, text, strlen(text) + 1);
}

static void read_mounts(struct json_read *j, struct sandbox_spec *s)
{
	const json_t *list = json_read_array(j, "mounts", SPEC_MOUNTS);

	for (size_t i = 0; list && j->r == 0 && i < json_array_size(list); i++) {
		struct json_read m = JIN_INIT(json_array_get(list, i), j->e);
		struct spec_mount *to = &s->mount[s->nmounts++];
		const char *source = "", *target = "";
		bool ro = false;

		if (!json_is_object(m.o)) {
			json_read_bad(j, "mounts", "must be objects {source, target, read_only}");
			return;
		}
		json_read_str(&m, "source", &source, SPEC_PATH - 1);
		json_read_str(&m, "target", &target, SPEC_PATH - 1);
		json_read_bool(&m, "read_only", &ro);
		j->r = json_read_end(&m);
		put_path(j, "mounts", source, to->src);
		put_path(j, "mounts", target, to->dst);
		to->read_only = ro;
	}
}

static bool gpus_ok(const char *text)
{
	if (!strncmp(text, "any:", 4))
		return text[4] >= '1' && text[4] <= '9' && strspn(text + 4, "0123456789") == strlen(text + 4) &&
		       strlen(text + 4) <= 2;
	return *text &&
	       strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-,:") == strlen(text);
}

static void read_devices(struct json_read *j, struct sandbox_request *w)
{
	const json_t *list = json_read_array(j, "devices", DEVICE_NAMES);
	struct sandbox_spec *s = w->spec;
	const char *gpus = NULL;

	for (size_t i = 0; list && j->r == 0 && i < json_array_size(list); i++) {
		const char *name = json_string_value(json_array_get(list, i));

		if (!name || strlen(name) >= DEVICE_NAME ||
		    strlen(name) != json_string_length(json_array_get(list, i)) ||
		    (strncmp(name, "/dev/", 5) && (name[0] == '/' || !strchr(name, '/') || !strchr(name, '='))))
			json_read_bad(j, "devices", "must be names of devices: VENDOR/CLASS=NAME, or /dev/NODE");
		else
			snprintf(s->device[s->ndevices++], DEVICE_NAME, "%s", name);
	}
	if (json_read_str(j, "gpus", &gpus, sizeof(w->gpus) - 1) && gpus) {
		if (gpus_ok(gpus))
			snprintf(w->gpus, sizeof(w->gpus), "%s", gpus);
		else
			json_read_bad(
				j, "gpus",
				"must be \"all\", \"any\", \"any:2\", or numbers or UUIDs with commas between them");
	}
	json_read_bool(j, "gpus_shared", &w->gpus_shared);
}

static bool has_tail(const struct sandbox_request *w)
{
	return w->spec->nmounts || w->spec->ntmpfs || w->spec->ndevices || w->gpus[0];
}

static void read_tmpfs(struct json_read *j, bool admin, struct sandbox_spec *s)
{
	const json_t *list = json_read_array(j, "tmpfs", SPEC_TMPFS);

	for (size_t i = 0; list && j->r == 0 && i < json_array_size(list); i++) {
		struct json_read m = JIN_INIT(json_array_get(list, i), j->e);
		struct spec_tmpfs *to = &s->tmpfs[s->ntmpfs++];
		const char *path = "";

		if (!json_is_object(m.o)) {
			json_read_bad(j, "tmpfs", "must be objects {path, size}");
			return;
		}
		to->size = 64 * MIB;
		json_read_str(&m, "path", &path, SPEC_PATH - 1);
		if (json_read_size(&m, "size", &to->size) && !to->size && !admin)
			json_read_bad(&m, "size", "must not be 0: only an admin may remove this limit");
		j->r = json_read_end(&m);
		put_path(j, "tmpfs", path, to->path);
	}
}

bool idle_read(struct json_read *j, struct idle_request *ret)
{
	const json_t *v = json_object_get(j->o, "idle");
	struct idle_request i = { 0 };

	if (!json_is_object(v)) {
		if (!json_read_ms(j, "idle", &i.delete_ms))
			return false;
	} else {
		struct json_read in = JIN_INIT(json_read_object(j, "idle"), j->e);

		if (j->r < 0)
			return false;
		json_read_ms(&in, "pause", &i.pause_ms);
		json_read_ms(&in, "hibernate", &i.hibernate_ms);
		json_read_ms(&in, "delete", &i.delete_ms);
		j->r = json_read_end(&in);
	}
	*ret = i;
	return true;
}

static void write_idle(const struct idle_request *i, struct json *j)
{
	if (!i->pause_ms && !i->hibernate_ms) {
		write_milli(j, "idle", i->delete_ms);
		return;
	}
	jout_object(j, "idle");
	write_milli(j, "pause", i->pause_ms);
	write_milli(j, "hibernate", i->hibernate_ms);
	write_milli(j, "delete", i->delete_ms);
	jout_end(j);
}

static void read_limits(const struct service_opts *o, struct json_read *j, bool admin, struct sandbox_request *w)
{
	struct spec_limits *l = &w->spec->limits;
	uint64_t pids = o->pids;

	*l = (struct spec_limits){ .memory = o->memory, .disk = o->disk, .cpu_milli = o->cpu_milli };
	w->nofile = o->nofile;
	w->output_limit = o->output_limit;
	w->exec_timeout_ms = o->exec_timeout_ms;
	json_read_cpus(j, "cpus", &l->cpu_milli);
	json_read_size(j, "memory", &l->memory);
	json_read_size(j, "disk", &l->disk);
	json_read_u64(j, "inodes", &l->inodes, 0, UINT32_MAX);
	json_read_size(j, "io_bps", &l->io_bps);
	json_read_u64(j, "pids", &pids, 0, UINT32_MAX);
	json_read_u64(j, "nofile", &w->nofile, 0, 1 << 20);
	json_read_size(j, "output_limit", &w->output_limit);
	json_read_ms(j, "timeout", &w->timeout_ms);
	idle_read(j, &w->idle);
	json_read_ms(j, "exec_timeout", &w->exec_timeout_ms);
	l->pids = (uint32_t)pids;
	if (w->output_limit > OUTPUT_LIMIT_MAX)
		json_read_bad(j, "output_limit", "must be at most 16M in an answer; …/output returns more");
	if (admin)
		return;
	const struct {
		const char *key;
		uint64_t value, max;
	} bounds[] = { { "cpus", l->cpu_milli, o->cpu_milli_max },
		       { "memory", l->memory, o->memory_max },
		       { "disk", l->disk, o->disk_max },
		       { "pids", l->pids, o->pids_max },
		       { "nofile", w->nofile ? w->nofile : !o->nofile, 0 } };
	for (size_t i = 0; i < ARRAY_LEN(bounds); i++) {
		if (!bounds[i].value)
			json_read_bad(j, bounds[i].key, "must not be 0: only an admin may remove this limit");
		else if (bounds[i].max && bounds[i].value > bounds[i].max)
			json_read_bad(j, bounds[i].key, "must not exceed the limit of this host (%llu%s)",
				      (unsigned long long)bounds[i].max, i == 0 ? " thousandths of a core" : "");
	}
}

bool limits_read(const struct service_opts *o, struct json_read *j, bool admin, struct spec_limits *ret)
{
	struct spec_limits l = { 0 };
	uint64_t pids = 0;
	const bool given[] = { json_read_cpus(j, "cpus", &l.cpu_milli), json_read_size(j, "memory", &l.memory),
			       json_read_size(j, "disk", &l.disk), json_read_u64(j, "pids", &pids, 0, UINT32_MAX) };
	bool any = false;

	l.pids = (uint32_t)pids;
	const struct {
		const char *key;
		uint64_t value, max;
	} bounds[] = { { "cpus", l.cpu_milli, o->cpu_milli_max },
		       { "memory", l.memory, o->memory_max },
		       { "disk", l.disk, o->disk_max },
		       { "pids", l.pids, o->pids_max } };
	for (size_t i = 0; i < ARRAY_LEN(bounds); i++) {
		any = any || given[i];
		if (given[i] && !bounds[i].value)
			json_read_bad(j, bounds[i].key, "must not be 0: a limit cannot be removed later");
		else if (given[i] && !admin && bounds[i].max && bounds[i].value > bounds[i].max)
			json_read_bad(j, bounds[i].key, "must not exceed the limit of this host (%llu%s)",
				      (unsigned long long)bounds[i].max, i == 0 ? " thousandths of a core" : "");
	}
	*ret = l;
	return any;
}

/* Whether it may be is asked when it is to be made: what was stored must be read in any case. */
static void read_network(struct json_read *j, struct sandbox_request *w)
{
	const json_t *v = json_read_any(j, "network");

	if (v && j->r == 0)
		j->r = net_request_parse(v, &w->net, j->e);
}

const char *tier_name(const struct sandbox_spec *s)
{
	return tier_of(s->flags)->name;
}

/* Whether this host can make one is the warden's to say. */
static const struct tier_ops *read_tier(struct json_read *j)
{
	const struct tier_ops *tier = tiers[0];
	const char *name = tier->name;

	json_read_str(j, "isolation", &name, 32);
	if (j->r == 0)
		j->r = tier_find(name, &tier, j->e);
	return tier;
}

/*
 * "host", a folder of the administrator's, or a stored image, which is looked for when the sandbox is made. A name with a tag is no
 * folder's.
 */
static void read_image(const struct service_opts *o, struct json_read *j, const char *image, struct sandbox_request *w)
{
	struct sandbox_spec *s = w->spec;
	bool folder = name_check(image, NULL) == 0 && o->images && *o->images;
	struct oci_name n;

	if (!strcmp(image, "host")) {
		snprintf(s->image, sizeof(s->image), "host");
		return;
	}
	folder = folder && snprintf(s->image, sizeof(s->image), "%s/%s", o->images, image) < (int)sizeof(s->image);
	if (folder && (faccessat(AT_FDCWD, s->image, F_OK, AT_SYMLINK_NOFOLLOW) == 0 || errno != ENOENT))
		return;
	if (!folder)
		snprintf(s->image, sizeof(s->image), SPEC_SCRATCH);
	if (strlen(image) < sizeof(w->image) &&
	    (oci_name_parse(image, &n, NULL) == 0 || strspn(image, "0123456789abcdef") == strlen(image)))
		snprintf(w->image, sizeof(w->image), "%s", image);
	else if (!folder)
		j->r = oci_name_parse(image, &n, j->e) < 0 ?
			       -EINVAL :
			       err_set(j->e, WHY_BAD_FIELD, -EINVAL, "'image' is too long");
}

static void read_files(const struct service_opts *o, struct json_read *j, bool admin, struct sandbox_request *w)
{
	static const char fit_host[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-.";
	const struct tier_ops *tier = read_tier(j);
	const char *image = "host", *hostname = "sandbox", *storage = tier->machine ? "disk" : "memory",
		   *workdir = NULL;
	struct sandbox_spec *s = w->spec;
	bool read_only = false;

	json_read_str(j, "image", &image, sizeof(w->image) - 1);
	json_read_str(j, "hostname", &hostname, sizeof(s->hostname) - 1);
	json_read_str(j, "storage", &storage, 16);
	w->workdir_given = json_read_str(j, "workdir", &workdir, SPEC_PATH - 1);
	json_read_bool(j, "read_only", &read_only);
	read_mounts(j, s);
	read_devices(j, w);
	read_tmpfs(j, admin, s);
	if (j->r < 0)
		return;
	read_image(o, j, image, w);
	if (hostname[0] == '-' || hostname[0] == '.' || !*hostname || strspn(hostname, fit_host) != strlen(hostname))
		json_read_bad(
			j, "hostname",
			"must consist of letters, digits, '-' and '.', and start with a letter or digit (got '%.60s')",
			hostname);
	if (strcmp(storage, "memory") && strcmp(storage, "disk"))
		json_read_bad(j, "storage", "must be \"memory\" or \"disk\"");
	else if (tier->machine && strcmp(storage, "disk"))
		json_read_bad(j, "storage", "must be \"disk\" for a virtual machine");
	snprintf(s->hostname, sizeof(s->hostname), "%s", hostname);
	snprintf(s->workdir, sizeof(s->workdir), "%s", workdir ? workdir : w->user.uid ? "/home/user" : "/root");
	s->flags = (read_only ? SPEC_READ_ONLY : SPEC_SYSTEM_WRITABLE) | (!strcmp(storage, "disk") ? SPEC_DISK : 0) |
		   tier->flag;
	if (!read_only && !tier->flag && !user_is_system(&w->user))
		s->flags |= SPEC_SYSTEM_LATER;
}

static int read_all(const struct service_opts *o, const json_t *from, bool admin, struct sandbox_request *w,
		    struct err *e)
{
	struct json_read j = JIN_INIT(from, e);
	const char *name = NULL, *key = NULL, *user = "user";
	const json_t *kv;

	if (json_read_str(&j, "name", &name, NAME_MAX_LEN) && j.r == 0)
		j.r = name_check(name, e);
	if (json_read_str(&j, "key", &key, KEY_MAX_LEN) && !*key)
		json_read_bad(&j, "key", "must be 1 to %d bytes", KEY_MAX_LEN);
	w->user_given = json_read_str(&j, "user", &user, sizeof(w->user.text) - 1);
	if (j.r == 0)
		j.r = user_parse_ids(user, &w->user, e);
	read_network(&j, w);
	read_limits(o, &j, admin, w);
	read_files(o, &j, admin, w);
	kv = json_read_object(&j, "env");
	if (kv && j.r == 0)
		j.r = kv_parse(kv, "env", ENV_MAX, true, &w->env, e);
	kv = json_read_any(&j, "secrets");
	if (kv && j.r == 0)
		j.r = secret_uses_parse(kv, admin, &w->secrets, e);
	kv = json_read_object(&j, "metadata");
	if (kv && j.r == 0)
		j.r = kv_parse(kv, "metadata", META_MAX, false, &w->metadata, e);
	if (json_read_end(&j) < 0)
		return j.r < 0 ? j.r : -EINVAL;
	w->spec->uid = w->user.uid;
	w->spec->gid = w->user.gid;
	snprintf(w->name, sizeof(w->name), "%s", name ? name : "");
	snprintf(w->key, sizeof(w->key), "%s", key ? key : "");
	return tier_check(w->spec, e);
}

int sandbox_request_parse(const struct service_opts *o, const json_t *from, bool admin, struct sandbox_request **ret,
			  struct err *e)
{
	AUTO(sandbox_request_free) struct sandbox_request *w = calloc(1, sizeof(*w));
	struct sandbox_spec *less;
	int r;

	if (w)
		w->spec = calloc(1, sizeof(*w->spec));
	if (!w || !w->spec)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a sandbox");
	r = read_all(o, from, admin, w, e);
	if (r < 0)
		return r;
	if (!has_tail(w)) {
		less = realloc(w->spec, offsetof(struct sandbox_spec, mount));
		if (less)
			w->spec = less;
	}
	*ret = TAKE_PTR(w);
	return 0;
}

void request_spec(const struct sandbox_request *w, struct sandbox_spec *ret)
{
	bool whole = has_tail(w);

	memset(ret, 0, sizeof(*ret));
	memcpy(ret, w->spec, whole ? sizeof(*ret) : offsetof(struct sandbox_spec, mount));
}

bool request_tmpfs_same(const struct sandbox_spec *a, const struct sandbox_spec *b)
{
	return a->ntmpfs == b->ntmpfs && !memcmp(a->tmpfs, b->tmpfs, a->ntmpfs * sizeof(a->tmpfs[0]));
}

static void write_lists(const struct sandbox_spec *s, struct json *j)
{
	jout_array(j, "tmpfs");
	for (uint32_t i = 0; i < s->ntmpfs; i++) {
		jout_object(j, NULL);
		jout_str(j, "path", s->tmpfs[i].path);
		jout_u64(j, "size", s->tmpfs[i].size);
		jout_end(j);
	}
	jout_end(j);
	jout_array(j, "mounts");
	for (uint32_t i = 0; i < s->nmounts; i++) {
		jout_object(j, NULL);
		jout_str(j, "source", s->mount[i].src);
		jout_str(j, "target", s->mount[i].dst);
		jout_bool(j, "read_only", s->mount[i].read_only);
		jout_end(j);
	}
	jout_end(j);
}

static void write_devices(const struct sandbox_request *w, struct json *j)
{
	jout_array(j, "devices");
	for (uint32_t i = 0; i + w->ngpus < w->spec->ndevices; i++)
		jout_str(j, NULL, w->spec->device[i]);
	jout_end(j);
	jout_str(j, "gpus", w->gpus[0] ? w->gpus : NULL);
	jout_bool(j, "gpus_shared", w->gpus_shared);
}

void write_milli(struct json *j, const char *key, uint64_t milli)
{
	char text[32];
	int n = snprintf(text, sizeof(text), "%llu.%03llu", (unsigned long long)(milli / 1000),
			 (unsigned long long)(milli % 1000));

	while (text[n - 1] == '0')
		text[--n] = 0;
	if (text[n - 1] == '.')
		text[--n] = 0;
	jout_raw(j, key, text, (size_t)n);
}

void layers_text(const struct sandbox_spec *s, uint32_t image, char text[LAYERS_TEXT])
{
	size_t n = 0;

	text[0] = '\0';
	for (uint32_t i = 0; i < s->layers; i++)
		n += (size_t)snprintf(text + n, LAYERS_TEXT - n, "%s%s%s", i ? " " : "", s->layer[i],
				      i + 1 == image ? " /" : "");
}

int layers_parse(const char *text, struct sandbox_spec *s, uint32_t *ret_image, struct err *e)
{
	s->layers = *ret_image = 0;
	while (*text) {
		char id[ID_SIZE];
		size_t n = strcspn(text, " ");

		if (n == 1 && *text == '/') {
			*ret_image = s->layers;
			text += text[1] ? 2 : 1;
			continue;
		}
		if (n != ID_LEN || s->layers == SPEC_LAYERS)
			return err_set(e, ERR_INTERNAL, -EBADMSG, "its layers cannot be read");
		memcpy(id, text, n);
		id[n] = '\0';
		if (!id_valid(id))
			return err_set(e, ERR_INTERNAL, -EBADMSG, "its layers cannot be read");
		memcpy(s->layer[s->layers++], id, sizeof(id));
		text += n;
		text += *text == ' ';
	}
	return 0;
}

void sandbox_request_write(const struct sandbox_request *w, struct json *j)
{
	if (w->name[0])
		jout_str(j, "name", w->name);
	jout_str(j, "key", w->key[0] ? w->key : NULL);
	sandbox_request_write_config(w, j);
}

void sandbox_request_write_config(const struct sandbox_request *w, struct json *j)
{
	const struct sandbox_spec *s = w->spec;
	const char *image = strrchr(s->image, '/');

	jout_str(j, "isolation", tier_name(s));
	jout_str(j, "image", !strcmp(s->image, SPEC_SCRATCH) && w->image[0] ? w->image : image ? image + 1 : s->image);
	write_milli(j, "cpus", s->limits.cpu_milli);
	jout_u64(j, "memory", s->limits.memory);
	jout_u64(j, "disk", s->limits.disk);
	jout_u64(j, "inodes", s->limits.inodes);
	jout_u64(j, "io_bps", s->limits.io_bps);
	jout_u64(j, "pids", s->limits.pids);
	jout_u64(j, "nofile", w->nofile);
	jout_u64(j, "output_limit", w->output_limit);
	write_milli(j, "timeout", w->timeout_ms);
	write_idle(&w->idle, j);
	write_milli(j, "exec_timeout", w->exec_timeout_ms);
	net_request_write(w->net, "network", j);
	kv_write(&w->env, "env", j);
	secret_uses_write(&w->secrets, "secrets", j);
	kv_write(&w->metadata, "metadata", j);
	jout_str(j, "user", w->user.text);
	jout_str(j, "workdir", s->workdir);
	jout_bool(j, "read_only", s->flags & SPEC_READ_ONLY);
	jout_str(j, "storage", s->flags & SPEC_DISK ? "disk" : "memory");
	write_lists(s, j);
	write_devices(w, j);
	jout_str(j, "hostname", s->hostname);
}

void sandbox_origin_write(const struct sandbox_request *w, struct json *j)
{
	const struct sandbox_origin *o = &w->origin;

	if (w->disk[0])
		jout_str(j, "disk_id", w->disk);
	if (o->work)
		jout_bool(j, "work", true);
	if (json_array_size(w->again)) {
		char *text = json_dumps(w->again, JSON_COMPACT);

		jout_str(j, "again", text);
		free(text);
	}
	if (!o->template[0])
		return;
	jout_object(j, "origin");
	jout_str(j, "template", o->template);
	jout_u64(j, "version", o->version);
	jout_str(j, "pool", o->pool[0] ? o->pool : NULL);
	jout_bool(j, "pooled", o->pooled);
	jout_end(j);
}

int sandbox_request_load(const struct service_opts *o, json_t *from, struct sandbox_request **ret, struct err *e)
{
	AUTO(json_decref) json_t *origin = json_incref(json_object_get(from, "origin"));
	const char *template = json_string_value(json_object_get(origin, "template"));
	const char *pool = json_string_value(json_object_get(origin, "pool"));
	AUTO(json_decref) json_t *disk = json_incref(json_object_get(from, "disk_id"));
	AUTO(json_decref) json_t *again = json_incref(json_object_get(from, "again"));
	struct sandbox_origin *to;
	int r;

	const bool work = json_is_true(json_object_get(from, "work"));

	json_object_del(from, "work");
	json_object_del(from, "disk_id");
	json_object_del(from, "again");
	json_object_del(from, "origin");
	r = sandbox_request_parse(o, from, true, ret, e);
	if (r < 0)
		return r;
	if (json_is_string(disk) && id_valid(json_string_value(disk)))
		memcpy((*ret)->disk, json_string_value(disk), ID_LEN);
	if (json_is_string(again))
		(*ret)->again = json_loads(json_string_value(again), JSON_REJECT_DUPLICATES, NULL);
	to = &(*ret)->origin;
	to->work = work;
	snprintf(to->template, sizeof(to->template), "%s", template ? template : "");
	snprintf(to->pool, sizeof(to->pool), "%s", pool ? pool : "");
	to->version = (uint64_t)json_integer_value(json_object_get(origin, "version"));
	to->pooled = json_is_true(json_object_get(origin, "pooled"));
	return 0;
}

static bool kv_same(const struct kv *a, const struct kv *b)
{
	bool same = a->n == b->n;

	for (uint32_t i = 0; same && i < a->n; i++)
		same = !strcmp(a->item[i], b->item[i]);
	return same;
}

bool request_like(const struct sandbox_request *a, const struct sandbox_request *b)
{
	struct sandbox_spec x, y;

	request_spec(a, &x);
	request_spec(b, &y);
	return !memcmp(&x, &y, sizeof(x)) && a->memory == b->memory && a->nofile == b->nofile &&
	       a->output_limit == b->output_limit && a->exec_timeout_ms == b->exec_timeout_ms &&
	       !strcmp(a->image, b->image) && !strcmp(a->gpus, b->gpus) && a->gpus_shared == b->gpus_shared &&
	       !strcmp(a->user.text, b->user.text) && kv_same(&a->env, &b->env) && net_request_same(a->net, b->net) &&
	       secret_uses_same(&a->secrets, &b->secrets);
}

void sandbox_request_free(struct sandbox_request *w)
{
	if (!w)
		return;
	json_decref(w->start);
	json_decref(w->again);
	kv_done(&w->env);
	kv_done(&w->metadata);
	secret_uses_done(&w->secrets);
	free(w->restored);
	free(w->execs);
	free(w->names);
	net_request_free(w->net);
	free(w->spec);
	free(w);
}
