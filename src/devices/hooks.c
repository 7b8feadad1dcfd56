/*
 * The hooks that NVIDIA's toolkit writes into its specifications. They are programs of the host that change a container's files as
 * root. We run none: what each is for is done by mounts, and one that we do not know is refused by its name.
 */
#include "base/base.h"
#include "devices/plan.h"

#include <fcntl.h>
#include <unistd.h>

/* The value of "--name value" or "--name=value" from @c on, which is then moved behind it. NULL: no more. */
static const char *next_value(const struct tree **c, const char *name)
{
	const size_t n = strlen(name);

	for (; *c; *c = (*c)->next) {
		const char *text = (*c)->text;

		if (strncmp(text, "--", 2) || strncmp(text + 2, name, n))
			continue;
		if (text[2 + n] == '=') {
			*c = (*c)->next;
			return text + 3 + n;
		}
		if (!text[2 + n] && (*c)->next) {
			text = (*c)->next->text;
			*c = (*c)->next->next;
			return text;
		}
	}
	return NULL;
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* What it does: the word behind "nvidia-cdi-hook" or "nvidia-ctk hook"; NULL: not one of these. *ret_rest: its options. */
static const char *what(const struct tree *hook, const struct tree **ret_rest)
{
	const struct tree *args = cdi_field(hook, "args"), *at = args ? args->child : NULL;
	const char *program = base_name(cdi_field(hook, "path")->text);

	if (strcmp(program, "nvidia-cdi-hook") && strcmp(program, "nvidia-ctk") && strcmp(program, "nvidia-ctk-hook"))
		return NULL;
	at = at ? at->next : NULL;
	if (at && !strcmp(at->text, "hook"))
		at = at->next;
	*ret_rest = at ? at->next : NULL;
	return at ? at->text : NULL;
}

static int refuse(struct plan_job *j, const struct tree *hook)
{
	const struct tree *args = cdi_field(hook, "args");
	char text[120] = "";

	for (const struct tree *c = args && args->child ? args->child->next : NULL; c && strlen(text) < 60; c = c->next)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), " %.40s", c->text);
	err_set(j->e, WHY_DEVICE_UNUSABLE, -EOPNOTSUPP,
		"hook %.80s%s: not one that Cloche knows, and hooks are not run",
		base_name(cdi_field(hook, "path")->text), text);
	err_remedy(j->e, "remove the hook from the specification if the device works without it");
	return -EOPNOTSUPP;
}

/* /dev's folders can be searched and listed by all, as this hook wants those of /dev/dri. */
static int change_mode(struct plan_job *j, const struct tree *hook, const struct tree *rest)
{
	const struct tree *c = rest;
	const char *mode = next_value(&c, "mode"), *path;
	unsigned long m = mode ? strtoul(mode, NULL, 8) : 0;

	for (c = rest; (path = next_value(&c, "path"));)
		if (strncmp(path, "/dev/", 5) || (m & 07777) != 0755)
			return refuse(j, hook);
	return 0;
}

static int add_folder(struct plan_job *j, const char *path)
{
	for (unsigned i = 0; i < j->folders; i++)
		if (!strcmp(j->folder[i], path))
			return 0;
	if (j->folders == ARRAY_LEN(j->folder) || strlen(path) >= sizeof(j->folder[0]) || path[0] != '/')
		return err_set(j->e, WHY_DEVICE_UNUSABLE, -EINVAL, "hook update-ldcache: folder '%.80s', or too many",
			       path);
	snprintf(j->folder[j->folders++], sizeof(j->folder[0]), "%s", path);
	return 0;
}

int plan_hook(struct plan_job *j, const struct tree *hook)
{
	const struct tree *rest = NULL;
	const char *name = what(hook, &rest), *value;
	int r = 0;

	if (!name)
		return refuse(j, hook);
	if (!strcmp(name, "update-ldcache") || !strcmp(name, "create-soname-symlinks")) {
		while (r == 0 && (value = next_value(&rest, "folder")))
			r = add_folder(j, value);
		return r;
	}
	if (!strcmp(name, "create-symlinks"))
		return 0; /* plan_links() */
	if (!strcmp(name, "chmod"))
		return change_mode(j, hook, rest);
	/* No process inside can make nodes. */
	if (!strcmp(name, "disable-device-node-modification"))
		return 0;
	if (!strcmp(name, "enable-cuda-compat")) {
		plan_note(
			j,
			"a newer libcuda in /usr/local/cuda/compat of an image is not preferred by itself: set LD_LIBRARY_PATH to it");
		return 0;
	}
	return refuse(j, hook);
}

/* --- links: a second mount of what they lead to --- */

/* @target as seen from @link's folder: "." and ".." are done by name. */
static bool join(const char *link, const char *target, char *ret, size_t size)
{
	char path[2 * DEVICE_PATH], *save = NULL;
	size_t n = 0;

	if (snprintf(path, sizeof(path), "%.*s/%s", target[0] == '/' ? 0 : (int)(base_name(link) - link), link,
		     target) >= (int)sizeof(path))
		return false;
	ret[0] = '\0';
	for (char *part = strtok_r(path, "/", &save); part; part = strtok_r(NULL, "/", &save)) {
		if (!strcmp(part, "."))
			continue;
		if (!strcmp(part, "..")) {
			while (n && ret[--n] != '/')
				;
			ret[n] = '\0';
			continue;
		}
		if (n + strlen(part) + 2 > size)
			return false;
		n += (size_t)snprintf(ret + n, size - n, "/%s", part);
	}
	return n > 0;
}

static const struct device_mount *mount_at(const struct plan_job *j, const char *to)
{
	for (unsigned i = 0; i < j->plan->nmounts; i++)
		if (!strcmp(j->plan->mount[i].to, to))
			return &j->plan->mount[i];
	return NULL;
}

/* Libraries are also known by the name that the linker would have linked in their folder. */
static const struct device_mount *library_at(const struct plan_job *j, const char *to)
{
	char path[DEVICE_PATH];

	for (unsigned i = 0; i < j->folders; i++) {
		const size_t n = strlen(j->folder[i]);

		if (strncmp(to, j->folder[i], n) || to[n] != '/' || strchr(to + n + 1, '/') || strlen(to + n) > 120)
			continue;
		snprintf(path, sizeof(path), PLAN_LIBRARIES "%s", to + n);
		return mount_at(j, path);
	}
	return NULL;
}

/* 1: done, 0: what it leads to is not known. */
static int add_link(struct plan_job *j, const char *value)
{
	const char *link = strstr(value, "::");
	char target[DEVICE_PATH], to[DEVICE_PATH];
	const struct device_mount *m;
	int r;

	if (!link || link == value || link[2] != '/' || (size_t)(link - value) >= sizeof(target))
		return err_set(j->e, WHY_DEVICE_UNUSABLE, -EINVAL,
			       "hook create-symlinks: '%.100s' must be TARGET::/LINK", value);
	snprintf(target, sizeof(target), "%.*s", (int)(link - value), value);
	link += 2;
	if (mount_at(j, link))
		return 1;
	if (!join(link, target, to, sizeof(to)))
		return 0;
	m = mount_at(j, to);
	if (!m)
		m = library_at(j, to);
	if (!m)
		return 0;
	snprintf(to, sizeof(to), "%s", m->from);
	/* The names that libraries are loaded by are also for the linker, which has no link's folder in its cache. */
	if (strstr(base_name(link), ".so")) {
		char there[DEVICE_PATH];

		snprintf(there, sizeof(there), PLAN_LIBRARIES "/%.100s", base_name(link));
		for (unsigned i = 0; i < j->folders; i++)
			if (!strncmp(j->folder[i], link, strlen(j->folder[i])) && link[strlen(j->folder[i])] == '/' &&
			    base_name(link) == link + strlen(j->folder[i]) + 1 && !mount_at(j, there) &&
			    (r = plan_add_mount(j, to, there)) < 0)
				return r;
	}
	r = plan_add_mount(j, to, link);
	return r < 0 ? r : 1;
}

/* A link may lead to another, which may come later. */
int plan_links(struct plan_job *j, const struct tree *edits)
{
	const struct tree *hooks = cdi_field(edits, "hooks");

	for (unsigned pass = 0; pass < 4; pass++)
		for (const struct tree *h = hooks ? hooks->child : NULL; h; h = h->next) {
			const struct tree *rest = NULL;
			const char *name = what(h, &rest), *value;

			if (!name || strcmp(name, "create-symlinks"))
				continue;
			while ((value = next_value(&rest, "link"))) {
				const int r = add_link(j, value);

				if (r < 0)
					return r;
				if (r == 0 && pass == 3)
					plan_note(j, "link %s leads to a file that is not mounted", value);
			}
		}
	return 0;
}
