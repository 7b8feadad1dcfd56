/* Checks what cloche-devices says, as if a stranger had said it. */
#include "proto/device_plan.h"
#include "base/base.h"

/* With a NUL, and no part of it is "..", "." or empty, but for one "/" at the start when @absolute. */
static bool is_clean(const char *path, bool absolute)
{
	const size_t n = strnlen(path, DEVICE_PATH);

	if (!n || n == DEVICE_PATH || (path[0] == '/') != absolute)
		return false;
	for (const char *p = path + absolute;; p++) {
		const size_t part = strcspn(p, "/");

		if (!part || (part <= 2 && p[0] == '.' && (part == 1 || p[1] == '.')))
			return false;
		p += part;
		if (!*p)
			return true;
	}
}

static bool is_of_sandbox(const char *name)
{
	static const char ours[] =
		" null zero full random urandom tty fd stdin stdout stderr ptmx pts mqueue shm console ";
	char part[DEVICE_PATH + 2];

	snprintf(part, sizeof(part), " %.*s ", (int)strcspn(name, "/"), name);
	return strstr(ours, part);
}

int device_plan_check(const struct device_plan *p)
{
	bool ok = p->nnodes <= DEVICE_NODES && p->nmounts <= DEVICE_MOUNTS && p->env_len <= DEVICE_ENV &&
		  (!p->env_len || !p->env[p->env_len - 1]);

	for (uint32_t i = 0; ok && i < p->nnodes; i++) {
		const struct device_node *n = &p->node[i];

		ok = is_clean(n->from, true) && is_clean(n->to, false) && !is_of_sandbox(n->to) && n->block <= 1 &&
		     !(n->may & ~(DEVICE_READ | DEVICE_WRITE)) && (n->uid == DEVICE_NO_ID || n->uid <= 65535) &&
		     (n->gid == DEVICE_NO_ID || n->gid <= 65535);
	}
	for (uint32_t i = 0; ok && i < p->nmounts; i++)
		ok = is_clean(p->mount[i].from, true) && is_clean(p->mount[i].to, true);
	return ok ? 0 : -EBADMSG;
}
