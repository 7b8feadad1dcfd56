/* Reads the configuration file, the environment and options. */
#include "daemon/conf.h"
#include "base/base.h"
#include "base/near.h"
#include "base/buf.h"
#include "base/str.h"
#include "daemon/listen.h"
#include "service/checkpoint/signer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum kind {
	PATH,
	PATHS,
	DEVICES,
	FOLDERS,
	LISTEN,
	USER,
	COUNT,
	SIZE,
	TIME,
	CPUS,
	YES_NO,
	AUDIT_SYNC,
	NOID,
	ACCEL,
	NETWORK,
	NETWORKS,
	DOMAIN,
	KEYS
};

#define FIELD(name) offsetof(struct daemon_config, name), sizeof(((struct daemon_config *)NULL)->name)

/* Numbers are 32 or 64 bits wide, as the field says. A size or time without bounds has min and max 0. */
static const struct key {
	const char *name;
	enum kind kind;
	size_t at, size;
	uint64_t min, max;
} keys[] = {
	{ "data", PATH, FIELD(data), 0, 0 },
	{ "listen", LISTEN, FIELD(listen), 0, 0 },
	{ "tls_cert", PATH, FIELD(tls_cert), 0, 0 },
	{ "tls_key", PATH, FIELD(tls_key), 0, 0 },
	{ "token_file", PATH, FIELD(token_file), 0, 0 },
	{ "user", USER, FIELD(user), 0, 0 },
	{ "images", PATH, FIELD(images), 0, 0 },
	{ "image_auth", PATH, FIELD(image_auth), 0, 0 },
	{ "image_ca", PATH, FIELD(image_ca), 0, 0 },
	{ "image_registries", PATH, FIELD(image_registries), 0, 0 },
	{ "image_timeout", TIME, FIELD(image_timeout_ms), 1000, 0 },
	{ "layers", PATH, FIELD(layers), 0, 0 },
	{ "vm", PATH, FIELD(vm), 0, 0 },
	{ "vm_accel", ACCEL, FIELD(vm_accel), 0, 0 },
	{ "warm_contexts", COUNT, FIELD(warm_contexts), 0, 16 },
	{ "vm_ready", COUNT, FIELD(vm_ready), 0, 64 },
	{ "sandbox_sockets", COUNT, FIELD(sandbox_sockets), 0, 65536 },
	{ "tenant_share", COUNT, FIELD(tenant_share), 1, 100 },
	{ "allow_mount", PATHS, FIELD(allow_mount), 0, 0 },
	{ "allow_device", DEVICES, FIELD(allow_device), 0, 0 },
	{ "cdi_folders", FOLDERS, FIELD(cdi_folders), 0, 0 },
	{ "export_trust", KEYS, FIELD(export_trust), 0, 0 },
	{ "pool", COUNT, FIELD(pool), 1, 1024 },
	{ "connections_max", COUNT, FIELD(conns_max), 16, 1000000 },
	{ "sandboxes_max", COUNT, FIELD(sandboxes_max), 0, 1000000 },
	{ "encrypt_memory", YES_NO, FIELD(encrypt_memory), 0, 0 },
	{ "share_memory", YES_NO, FIELD(share_memory), 0, 0 },
	{ "stop_sandboxes", YES_NO, FIELD(stop_sandboxes), 0, 0 },
	{ "audit_sync", AUDIT_SYNC, FIELD(audit_sync_always), 0, 0 },
	{ "audit_output", YES_NO, FIELD(audit_output), 0, 0 },
	{ "spool_time", TIME, FIELD(spool_time_ms), 0, 0 },
	{ "spool_max", SIZE, FIELD(spool_max), 0, 0 },
	{ "spool_total", SIZE, FIELD(spool_total), 0, 0 },
	{ "memory", SIZE, FIELD(memory), 0, 0 },
	{ "memory_max", SIZE, FIELD(memory_max), 0, 0 },
	{ "disk", SIZE, FIELD(disk), 0, 0 },
	{ "disk_max", SIZE, FIELD(disk_max), 0, 0 },
	{ "cpus", CPUS, FIELD(cpu_milli), 0, 0 },
	{ "cpus_max", CPUS, FIELD(cpu_milli_max), 0, 0 },
	{ "pids", COUNT, FIELD(pids), 0, 4194304 },
	{ "pids_max", COUNT, FIELD(pids_max), 0, 4194304 },
	{ "nofile", COUNT, FIELD(nofile), 0, 1048576 },
	{ "output_limit", SIZE, FIELD(output_limit), 0, 16ULL << 20 },
	{ "exec_timeout", TIME, FIELD(exec_timeout_ms), 0, 0 },
	{ "exec_timeout_max", TIME, FIELD(exec_timeout_max_ms), 0, 0 },
	{ "ports_domain", DOMAIN, FIELD(ports_domain), 0, 0 },
	{ "noid_isolation", NOID, FIELD(noid_isolation), 0, 0 },
	{ "secrets_key_command", USER, FIELD(secrets_key_command), 0, 0 },
	{ "secrets_old_key_command", USER, FIELD(secrets_old_key_command), 0, 0 },
	{ "network_open", NETWORK, FIELD(network), 0, 0 },
	{ "network_set", NETWORKS, FIELD(network), 0, 0 },
	{ "network_private", NETWORKS, FIELD(network), 0, 0 },
	{ "network_outer", NETWORKS, FIELD(network), 0, 0 },
	{ "network_hosts", NETWORKS, FIELD(network), 0, 0 },
	{ "network_resolver", NETWORK, FIELD(network), 0, 0 },
	{ "network_ca", NETWORK, FIELD(network), 0, 0 },
};

const char *conf_key(size_t n)
{
	return n < ARRAY_LEN(keys) ? keys[n].name : NULL;
}

void conf_init(struct daemon_config *c)
{
	*c = (struct daemon_config){
		.data = CONF_DATA,
		.user = "cloche",
		.pool = 32,
		.share_memory = true,
		.conns_max = 16384,
		.spool_time_ms = 10 * 60 * 1000,
		.spool_max = 64ULL << 20,
		.spool_total = 4ULL << 30,
		.memory = 512ULL << 20,
		.disk = 1ULL << 30,
		.output_limit = 1ULL << 20,
		.cpu_milli = 1000,
		.pids = 256,
		.nofile = 1024,
		.exec_timeout_ms = 300 * 1000,
		.noid_isolation = "auto",
		.image_timeout_ms = 60 * 1000,
		.vm_accel = "auto",
		.vm_ready = 1,
		.warm_contexts = 1,
		.tenant_share = 50,
	};
}

static const struct key *find(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(keys); i++)
		if (!strcmp(keys[i].name, name))
			return &keys[i];
	return NULL;
}

/* What ends up in messages, on command lines and in the journal: no control bytes. */
static bool printable(const char *text)
{
	for (const unsigned char *p = (const unsigned char *)text; *p; p++)
		if (*p < 0x20 || *p == 0x7f)
			return false;
	return true;
}

static int put_text(char *at, size_t size, const char *value, struct err *e)
{
	size_t len = strlen(value);

	if (!len || len >= size)
		return err_set(e, ERR_INVALID, -EINVAL, "'%.60s': must have 1 to %zu bytes", value, size - 1);
	if (!printable(value))
		return err_set(e, ERR_INVALID, -EINVAL, "control bytes are not allowed");
	memset(at, 0, size);
	memcpy(at, value, len);
	return 0;
}

static int put_path(char *at, size_t size, const char *value, struct err *e)
{
	if (value[0] && value[0] != '/')
		return err_set(e, ERR_INVALID, -EINVAL, "'%.60s': must be an absolute path", value);
	return put_text(at, size, value, e);
}

static int put_yes_no(char *at, const char *value, const char *yes, const char *no, struct err *e)
{
	bool is = !strcmp(value, yes);

	if (!is && strcmp(value, no))
		return err_set(e, ERR_INVALID, -EINVAL, "'%.60s': must be %s or %s", value, yes, no);
	memcpy(at, &is, sizeof(is));
	return 0;
}

static int put_number(const struct key *k, char *at, const char *value, struct err *e)
{
	uint32_t small = 0;
	uint64_t v = 0;
	int r;

	if (k->kind == COUNT)
		r = parse_u64(value, &v, e);
	else if (k->kind == SIZE)
		r = parse_size(value, &v, e);
	else if (k->kind == TIME)
		r = parse_duration(value, &v, e);
	else {
		r = parse_cpus(value, &small, e);
		v = small;
	}
	if (r < 0)
		return r;
	if (v < k->min || (k->max && v > k->max))
		return err_set(e, ERR_INVALID, -ERANGE, "'%.60s' must be between %llu and %llu", value,
			       (unsigned long long)k->min, (unsigned long long)k->max);
	small = (uint32_t)v; /* COUNT and CPUS have bounds below that */
	memcpy(at, k->size == sizeof(small) ? (void *)&small : (void *)&v, k->size);
	return 0;
}

static int put_listen(struct daemon_config *c, const char *value, struct err *e)
{
	struct listen_addr a;
	int r;

	if (c->nlisten == DAEMON_LISTENERS)
		return err_set(e, ERR_INVALID, -E2BIG, "at most %d", DAEMON_LISTENERS);
	for (unsigned i = 0; i < c->nlisten; i++)
		if (!strcmp(c->listen[i].text, value))
			return err_set(e, ERR_INVALID, -EEXIST, "'%.60s' is given twice", value);
	r = listen_parse(value, &a, e);
	if (r == 0)
		r = put_text(c->listen[c->nlisten].text, sizeof(c->listen[0].text), value, e);
	c->nlisten += r == 0;
	return r;
}

/* "ports.example.com", or "localhost": the part of a Host header after its first dot. */
static int put_domain(char *at, size_t size, const char *value, struct err *e)
{
	static const char fit[] = "abcdefghijklmnopqrstuvwxyz0123456789-.";
	size_t n = strlen(value);

	if (!n || strspn(value, fit) != n || value[0] == '.' || value[n - 1] == '.' || strstr(value, ".."))
		return err_set(e, ERR_INVALID, -EINVAL,
			       "'%.60s': must be a domain in lower case, without a dot at the start or end", value);
	return put_text(at, size, value, e);
}

/* "/folder" for all tenants, "TENANT:/folder" for one. */
static int put_mount(struct daemon_config *c, const char *value, struct err *e)
{
	const char *colon = *value == '/' ? NULL : strchr(value, ':');
	unsigned at = c->nallow_mount;
	int r;

	if (colon && (colon == value || (size_t)(colon - value) >= sizeof(c->allow_mount_tenant[0])))
		return err_set(e, ERR_INVALID, -EINVAL, "'%.60s': must be /FOLDER or TENANT:/FOLDER", value);
	r = put_path(c->allow_mount[at], sizeof(c->allow_mount[0]), colon ? colon + 1 : value, e);
	if (r < 0)
		return r;
	snprintf(c->allow_mount_tenant[at], sizeof(c->allow_mount_tenant[0]), "%.*s", colon ? (int)(colon - value) : 0,
		 value);
	c->nallow_mount++;
	return 0;
}

/* "NAME" for all tenants, "TENANT:NAME" for one. A colon may also be part of a name, behind its "/". */
static int put_device(struct daemon_config *c, const char *value, struct err *e)
{
	const size_t n = strcspn(value, ":/");
	const char *name = value[n] == ':' ? value + n + 1 : value;
	const unsigned at = c->nallow_device;

	if (at == ARRAY_LEN(c->allow_device))
		return err_set(e, ERR_INVALID, -E2BIG, "at most %zu", ARRAY_LEN(c->allow_device));
	if (strcmp(name, "gpu") && strncmp(name, "/dev/", 5) &&
	    (name[0] == '/' || !strchr(name, '/') || !strchr(name, '=')))
		return err_set(
			e, ERR_INVALID, -EINVAL,
			"'%.60s': must be gpu, VENDOR/CLASS=NAME or /dev/NODE, with TENANT: before it for one tenant alone",
			value);
	if (name != value && (!n || n >= sizeof(c->allow_device_tenant[0])))
		return err_set(e, ERR_INVALID, -EINVAL, "'%.60s': before the colon must be the id of a tenant", value);
	if (strlen(name) >= sizeof(c->allow_device[0]))
		return err_set(e, ERR_INVALID, -ENAMETOOLONG, "'%.60s…': too long", value);
	snprintf(c->allow_device[at], sizeof(c->allow_device[0]), "%s", name);
	snprintf(c->allow_device_tenant[at], sizeof(c->allow_device_tenant[0]), "%.*s", name == value ? 0 : (int)n,
		 value);
	c->nallow_device++;
	return 0;
}

/* "/a:/b" */
static int put_folders(char *at, size_t size, const char *value, struct err *e)
{
	for (const char *p = value;; p++) {
		if (*p != '/')
			return err_set(e, ERR_INVALID, -EINVAL,
				       "'%.60s': must be absolute paths with colons between them", value);
		p += strcspn(p, ":");
		if (!*p)
			break;
	}
	return put_text(at, size, value, e);
}

static int put(struct daemon_config *c, const struct key *k, const char *value, struct err *e)
{
	char *at = (char *)c + k->at;
	int r;

	switch (k->kind) {
	case PATH:
		return put_path(at, k->size, value, e);
	case PATHS:
		if (c->nallow_mount == ARRAY_LEN(c->allow_mount))
			return err_set(e, ERR_INVALID, -E2BIG, "at most %zu", ARRAY_LEN(c->allow_mount));
		return put_mount(c, value, e);
	case DEVICES:
		return put_device(c, value, e);
	case FOLDERS:
		return put_folders(at, k->size, value, e);
	case KEYS:
		if (c->nexport_trust == ARRAY_LEN(c->export_trust))
			return err_set(e, ERR_INVALID, -E2BIG, "at most %zu", ARRAY_LEN(c->export_trust));
		if (signer_key_ok(value) < 0)
			return err_set(e, ERR_INVALID, -EINVAL,
				       "'%.100s': a key must be ed25519: followed by 44 characters of base64", value);
		r = put_text(c->export_trust[c->nexport_trust], sizeof(c->export_trust[0]), value, e);
		c->nexport_trust += r == 0;
		return r;
	case LISTEN:
		return put_listen(c, value, e);
	case USER:
		return put_text(at, k->size, value, e);
	case COUNT:
	case SIZE:
	case TIME:
	case CPUS:
		return put_number(k, at, value, e);
	case YES_NO:
		return put_yes_no(at, value, "yes", "no", e);
	case AUDIT_SYNC:
		return put_yes_no(at, value, "always", "second", e);
	case DOMAIN:
		return put_domain(at, k->size, value, e);
	case NOID:
		if (strcmp(value, "auto") && strcmp(value, "container") && strcmp(value, "vm"))
			return err_set(e, ERR_INVALID, -EINVAL, "'%.60s': must be auto, container or vm", value);
		return put_text(at, k->size, value, e);
	case ACCEL:
		if (strcmp(value, "auto") && strcmp(value, "tcg") && strcmp(value, "kvm"))
			return err_set(e, ERR_INVALID, -EINVAL, "'%.60s': must be auto, tcg or kvm", value);
		return put_text(at, k->size, value, e);
	case NETWORK:
	case NETWORKS:
		if (!printable(value))
			return err_set(e, ERR_INVALID, -EINVAL, "control bytes are not allowed");
		return net_conf_add(&c->network, k->name, value, e);
	}
	return -EINVAL;
}

int conf_set(struct daemon_config *c, const char *key, const char *value, struct err *e)
{
	const char *names[ARRAY_LEN(keys)], *near;
	const struct key *k = find(key);
	int r;

	if (!k) {
		for (size_t i = 0; i < ARRAY_LEN(keys); i++)
			names[i] = keys[i].name;
		near = near_word(key, names, ARRAY_LEN(keys));
		err_set(e, ERR_INVALID, -EINVAL, "unknown key '%.60s'", key);
		if (near)
			err_remedy(e, "did you mean %s? docs/config.md lists all keys", near);
		else
			err_remedy(e, "docs/config.md lists all keys");
		return -EINVAL;
	}
	r = put(c, k, value, e);
	return r < 0 ? err_wrap(e, r, "%s", key) : 0;
}

void conf_clear(struct daemon_config *c, const char *key)
{
	if (!strcmp(key, "listen")) {
		memset(c->listen, 0, sizeof(c->listen));
		c->nlisten = 0;
	} else if (!strcmp(key, "allow_mount")) {
		memset(c->allow_mount, 0, sizeof(c->allow_mount));
		memset(c->allow_mount_tenant, 0, sizeof(c->allow_mount_tenant));
		c->nallow_mount = 0;
	} else if (!strcmp(key, "allow_device")) {
		memset(c->allow_device, 0, sizeof(c->allow_device));
		memset(c->allow_device_tenant, 0, sizeof(c->allow_device_tenant));
		c->nallow_device = 0;
	}
}

static char *trim(char *text)
{
	size_t n;

	text += strspn(text, " \t\r");
	n = strlen(text);
	while (n && strchr(" \t\r", text[n - 1]))
		text[--n] = '\0';
	return text;
}

/* @line may be changed. Comments need their own lines, since a path may contain a #. */
static int parse_line(struct daemon_config *c, char *line, bool *seen, struct err *e)
{
	const struct key *k;
	char *name, *eq;
	int r;

	line = trim(line);
	if (!*line || *line == '#')
		return 0;
	eq = strchr(line, '=');
	if (!eq)
		return err_set(e, ERR_INVALID, -EINVAL, "'%.60s': expected key = value", line);
	*eq = '\0';
	name = trim(line);
	r = conf_set(c, name, trim(eq + 1), e);
	if (r < 0)
		return r;
	k = find(name);
	if (seen[k - keys] && k->kind != LISTEN && k->kind != PATHS && k->kind != DEVICES && k->kind != NETWORKS &&
	    k->kind != KEYS)
		return err_set(e, ERR_INVALID, -EEXIST, "%s is given twice", name);
	seen[k - keys] = true;
	return 0;
}

int conf_parse(struct daemon_config *c, const char *name, const char *text, size_t len, struct err *e)
{
	AUTO(buf_done) struct buf line = BUF_INIT(2 * DAEMON_PATH);
	bool seen[ARRAY_LEN(keys)] = { 0 };
	unsigned number = 0;
	int r;

	while (len) {
		const char *end = memchr(text, '\n', len);
		size_t n = end ? (size_t)(end - text) : len;

		number++;
		buf_clear(&line);
		if (memchr(text, '\0', n))
			r = err_set(e, ERR_INVALID, -EINVAL, "contains a NUL byte");
		else if (buf_add(&line, text, n) < 0)
			r = err_set(e, ERR_INVALID, -E2BIG, "contains a line of %zu bytes", n);
		else
			r = n ? parse_line(c, line.data, seen, e) : 0;
		if (r < 0)
			return err_wrap(e, r, "%.80s:%u", name, number);
		n += end != NULL;
		text += n;
		len -= n;
	}
	return 0;
}

int conf_read(struct daemon_config *c, const char *path, struct err *e)
{
	AUTO_FREE char *text = malloc(CONF_FILE_MAX);
	ssize_t n;

	if (!text)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory");
	n = fd_get(AT_FDCWD, path, text, CONF_FILE_MAX);
	if (n < 0)
		return err_sys(e, ERR_INVALID, (int)n, "configuration '%.120s'", path);
	return conf_parse(c, path, text, (size_t)n, e);
}

/* What a silent create gets must be what a loud one may have; 0 is "no limit", so more than any. */
static int check_max(const char *name, uint64_t value, uint64_t max, struct err *e)
{
	if (max && (!value || value > max))
		return err_set(e, ERR_INVALID, -ERANGE, "%s must not be more than %s_max", name, name);
	return 0;
}

int conf_finish(struct daemon_config *c, struct err *e)
{
	const struct {
		const char *name;
		uint64_t value, max;
	} pairs[] = {
		{ "memory", c->memory, c->memory_max },
		{ "disk", c->disk, c->disk_max },
		{ "cpus", c->cpu_milli, c->cpu_milli_max },
		{ "pids", c->pids, c->pids_max },
		{ "exec_timeout", c->exec_timeout_ms, c->exec_timeout_max_ms },
	};
	int r = 0;

	if (!c->nlisten)
		r = conf_set(c, "listen", CONF_LISTEN, e);
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(pairs); i++)
		r = check_max(pairs[i].name, pairs[i].value, pairs[i].max, e);
	if (r < 0)
		return r;
	if (!c->tls_cert[0] != !c->tls_key[0])
		return err_set(e, ERR_INVALID, -EINVAL, "%s needs %s", c->tls_cert[0] ? "tls_cert" : "tls_key",
			       c->tls_cert[0] ? "tls_key" : "tls_cert");
	if (c->spool_max > c->spool_total)
		return err_set(e, ERR_INVALID, -ERANGE, "spool_max must not be more than spool_total");
	for (unsigned i = 0; i < c->nlisten; i++)
		c->listen[i].tls = c->tls_cert[0] && strncmp(c->listen[i].text, "unix:", 5) != 0;
	return 0;
}

static int check_one(const char *name, const char *path, mode_t type, struct err *e)
{
	struct stat st;

	if (!path[0])
		return 0;
	if (stat(path, &st) < 0)
		return err_sys(e, ERR_NOT_FOUND, -errno, "%s '%.120s'", name, path);
	if ((st.st_mode & S_IFMT) != type)
		return err_set(e, ERR_INVALID, -EINVAL, "%s '%.120s': not a %s", name, path,
			       type == S_IFDIR ? "folder" : "file");
	return 0;
}

int conf_check_files(const struct daemon_config *c, struct err *e)
{
	int r = check_one("images", c->images, S_IFDIR, e);

	if (r == 0)
		r = check_one("network_ca", c->network.ca, S_IFREG, e);

	for (unsigned i = 0; r == 0 && i < c->nallow_mount; i++)
		r = check_one("allow_mount", c->allow_mount[i], S_IFDIR, e);
	if (r == 0)
		r = check_one("tls_cert", c->tls_cert, S_IFREG, e);
	if (r == 0)
		r = check_one("tls_key", c->tls_key, S_IFREG, e);
	return r;
}
