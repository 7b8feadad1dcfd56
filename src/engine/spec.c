/* Checks the spec of a sandbox. */
#include "engine/spec.h"
#include "base/base.h"
#include "base/id.h"
#include "proto/frame.h"

static int check_text(const char *s, size_t size, const char *what, struct err *e)
{
	size_t n = strnlen(s, size);

	if (n == size)
		return err_set(e, ERR_INVALID, -EINVAL, "%s: longer than %zu bytes", what, size - 1);
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)s[i] < 0x20 || s[i] == 0x7f)
			return err_set(e, ERR_INVALID, -EINVAL, "%s: contains a control character", what);
	return 0;
}

static int check_path(const char *s, const char *what, struct err *e)
{
	int r = check_text(s, SPEC_PATH, what, e);

	if (r < 0)
		return r;
	if (s[0] != '/')
		return err_set(e, ERR_INVALID, -EINVAL, "%s '%s': must be an absolute path", what, s);
	for (const char *p = s; *p;) {
		size_t n = strcspn(p, "/");

		if (n == 2 && p[0] == '.' && p[1] == '.')
			return err_set(e, ERR_INVALID, -EINVAL, "%s '%s': '..' is not allowed", what, s);
		p += n + (p[n] == '/');
	}
	return 0;
}

/* No mount below /proc, /dev and /sys: it would uncover what is masked there. */
static int check_target(const char *s, const char *what, struct err *e)
{
	static const char *const ours[] = { "/proc", "/dev", "/sys" };
	const char *p = s;
	int r = check_path(s, what, e);

	if (r < 0)
		return r;
	while (p[0] == '/' && (p[1] == '/' || (p[1] == '.' && p[2] == '/')))
		p += p[1] == '/' ? 1 : 2;
	for (size_t i = 0; i < ARRAY_LEN(ours); i++) {
		size_t n = strlen(ours[i]);

		if (!strncmp(p, ours[i], n) && (!p[n] || p[n] == '/'))
			return err_set(e, ERR_INVALID, -EINVAL, "%s '%s': %s is reserved for the sandbox itself", what,
				       s, ours[i]);
	}
	if (!strcmp(p, "/") || !strcmp(p, "/.")) {
		err_set(e, ERR_INVALID, -EINVAL, "%s '%s': the root comes from the image", what, s);
		err_remedy(e, "use another path, as /work");
		return -EINVAL;
	}
	return 0;
}

/* A size below the minimum is often a number of megabytes without its M. */
static int too_few_bytes(const char *what, const char *least, uint64_t bytes, struct err *e)
{
	char hint[40] = "";

	if (bytes >= 8 && bytes < 64 * KIB)
		snprintf(hint, sizeof(hint), "; did you mean \"%lluM\"?", (unsigned long long)bytes);
	return err_set(e, ERR_INVALID, -EINVAL, "%s must be at least %s (got %llu bytes%s)", what, least,
		       (unsigned long long)bytes, hint);
}

int spec_check_limits(const struct spec_limits *l, struct err *e)
{
	if (l->memory && l->memory < 8 * MIB)
		return too_few_bytes("memory", "8M", l->memory, e);
	if (l->disk && l->disk < 64 * KIB)
		return too_few_bytes("disk", "64K", l->disk, e);
	if (l->inodes && l->inodes < 64)
		return err_set(e, ERR_INVALID, -EINVAL, "inodes must be at least 64 (got %llu)",
			       (unsigned long long)l->inodes);
	if (l->pids && l->pids < 2)
		return err_set(e, ERR_INVALID, -EINVAL, "pids must be at least 2, one of them for the agent (got %u)",
			       l->pids);
	if (l->io_bps && l->io_bps < MIB)
		return too_few_bytes("io_bps", "1M", l->io_bps, e);
	if (l->cpu_milli && l->cpu_milli < 10)
		return err_set(e, ERR_INVALID, -EINVAL, "cpus must be at least 0.01");
	return 0;
}

static int check_layers(const struct sandbox_spec *s, struct err *e)
{
	if (s->layers > SPEC_LAYERS)
		return err_advise(e, ERR_INVALID, -E2BIG,
				  "start anew: copy what is needed into a sandbox of the image alone, and seal that",
				  "layers: at most %d", SPEC_LAYERS);
	for (uint32_t i = 0; i < s->layers; i++)
		if (strnlen(s->layer[i], ID_SIZE) != ID_LEN || !id_valid(s->layer[i]))
			return err_set(e, ERR_INVALID, -EINVAL, "layer %u: invalid id", i);
	return 0;
}

static int check_disk(const struct sandbox_spec *s, struct err *e)
{
	if (!s->disk[0])
		return s->flags & SPEC_DISK_AGAIN ?
			       err_set(e, ERR_INVALID, -EINVAL, "disk: the id of the disk to continue is missing") :
			       0;
	if (strnlen(s->disk, sizeof(s->disk)) != ID_LEN || !id_valid(s->disk))
		return err_set(e, ERR_INVALID, -EINVAL, "disk: invalid id");
	if (!(s->flags & SPEC_DISK) || s->flags & SPEC_TIERS)
		return err_set(e, ERR_INVALID, -EINVAL,
			       "disk: only a container with storage 'disk' has a persistent disk");
	return 0;
}

static int check_devices(const struct sandbox_spec *s, struct err *e)
{
	int r = s->ndevices > DEVICE_NAMES ? err_set(e, ERR_INVALID, -E2BIG, "devices: at most %d", DEVICE_NAMES) : 0;

	for (uint32_t i = 0; r == 0 && i < s->ndevices; i++) {
		r = check_text(s->device[i], DEVICE_NAME, "device", e);
		if (r == 0 && (!s->device[i][0] || s->device[i][0] == '-'))
			r = err_set(e, ERR_INVALID, -EINVAL, "device '%s': not a name of a device", s->device[i]);
	}
	if (r == 0 && s->ndevices && s->flags & (SPEC_TIERS | SPEC_MEMORY)) {
		err_set(e, ERR_UNSUPPORTED, -EOPNOTSUPP,
			"devices: only a container can have them, and one that starts without processes");
		err_remedy(e, "use isolation 'container', and a checkpoint of files alone");
		r = -EOPNOTSUPP;
	}
	return r;
}

int spec_check(const struct sandbox_spec *s, struct err *e)
{
	int r;

	if (s->flags & ~SPEC_FLAGS)
		return err_set(e, ERR_INVALID, -EINVAL, "spec: unknown flags");
	if (s->flags & SPEC_MEMORY && !s->layers)
		return err_set(e, ERR_INVALID, -EINVAL, "spec: memory, but no layer with memory");
	if (s->nmounts > SPEC_MOUNTS)
		return err_set(e, ERR_INVALID, -EINVAL, "mount: at most %d", SPEC_MOUNTS);
	if (s->ntmpfs > SPEC_TMPFS)
		return err_set(e, ERR_INVALID, -EINVAL, "tmpfs: at most %d", SPEC_TMPFS);
	if (s->uid > 65535 || s->gid > 65535)
		return err_set(e, ERR_INVALID, -EINVAL, "user %u:%u: ids must be at most 65535", s->uid, s->gid);
	if (s->uid == AGENT_UID || s->gid == AGENT_UID)
		return err_set(e, ERR_INVALID, -EINVAL, "user %u:%u: %u is reserved for the agent", s->uid, s->gid,
			       AGENT_UID);
	r = check_text(s->image, SPEC_PATH, "image", e);
	if (r == 0 && strcmp(s->image, "host") && strcmp(s->image, SPEC_SCRATCH))
		r = check_path(s->image, "image", e);
	if (r == 0)
		r = check_text(s->hostname, sizeof(s->hostname), "hostname", e);
	if (r == 0)
		r = check_path(s->workdir, "workdir", e);
	if (r == 0)
		r = spec_check_limits(&s->limits, e);
	if (r == 0)
		r = check_layers(s, e);
	if (r == 0)
		r = check_disk(s, e);
	if (r == 0)
		r = check_devices(s, e);
	if (r == 0 && s->limits.io_bps && !(s->flags & (SPEC_DISK | SPEC_TIERS)))
		r = err_advise(e, ERR_INVALID, -EINVAL, "use storage 'disk'",
			       "io_bps limits the sandbox's own disk, and with storage 'memory' it has none");
	for (uint32_t i = 0; r == 0 && i < s->nmounts; i++) {
		r = check_path(s->mount[i].src, "mount source", e);
		if (r == 0)
			r = check_target(s->mount[i].dst, "mount target", e);
	}
	for (uint32_t i = 0; r == 0 && i < s->ntmpfs; i++)
		r = check_target(s->tmpfs[i].path, "tmpfs", e);
	if (r == 0 && s->flags & SPEC_NET)
		r = steer_check(&s->net, e);
	else if (r == 0 && (s->net.mode || s->net.n))
		r = err_set(e, ERR_INVALID, -EINVAL, "spec: rules without a network");
	return r;
}

static void put_text(char *to, const char *from, size_t size)
{
	memcpy(to, from, strnlen(from, size));
}

void spec_put_net(const struct steer_rules *from, struct steer_rules *to)
{
	memset(to, 0, sizeof(*to));
	to->mode = from->mode;
	to->n = from->n;
	for (uint32_t i = 0; i < STEER_RULES && i < from->n; i++)
		to->rule[i] = from->rule[i];
}

void spec_put(const struct sandbox_spec *from, struct sandbox_spec *to)
{
	memset(to, 0, sizeof(*to));
	to->tenant = from->tenant;
	put_text(to->image, from->image, sizeof(to->image));
	put_text(to->hostname, from->hostname, sizeof(to->hostname));
	put_text(to->workdir, from->workdir, sizeof(to->workdir));
	to->uid = from->uid;
	to->gid = from->gid;
	to->flags = from->flags;
	to->nmounts = from->nmounts;
	to->ntmpfs = from->ntmpfs;
	to->layers = from->layers;
	to->ndevices = from->ndevices;
	for (uint32_t i = 0; i < SPEC_LAYERS && i < from->layers; i++)
		put_text(to->layer[i], from->layer[i], ID_SIZE);
	put_text(to->disk, from->disk, sizeof(to->disk));
	to->limits = from->limits;
	for (uint32_t i = 0; i < SPEC_MOUNTS && i < from->nmounts; i++) {
		put_text(to->mount[i].src, from->mount[i].src, SPEC_PATH);
		put_text(to->mount[i].dst, from->mount[i].dst, SPEC_PATH);
		to->mount[i].read_only = from->mount[i].read_only != 0;
	}
	for (uint32_t i = 0; i < SPEC_TMPFS && i < from->ntmpfs; i++) {
		put_text(to->tmpfs[i].path, from->tmpfs[i].path, SPEC_PATH);
		to->tmpfs[i].size = from->tmpfs[i].size;
	}
	for (uint32_t i = 0; i < DEVICE_NAMES && i < from->ndevices; i++)
		put_text(to->device[i], from->device[i], DEVICE_NAME);
	if (from->flags & SPEC_NET)
		spec_put_net(&from->net, &to->net);
}
