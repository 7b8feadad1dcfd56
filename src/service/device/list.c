/* Asks cloche-devices for a list. */
#include "service/device/list.h"
#include "base/base.h"
#include "base/sys.h"
#include "linux/spawn.h"
#include "service/state/json_read.h"
#include "service/struct.h"

#include <poll.h>
#include <unistd.h>

#define LIST_MAX (4 * MIB)
#define LIMIT_MS 10000
#define FOLDERS 8

static int read_all(int fd, struct buf *b)
{
	for (;;) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		char *room = buf_room(b, 16 * KIB);
		ssize_t n;

		if (!room)
			return -ENOMEM;
		if (poll(&p, 1, LIMIT_MS) <= 0)
			return -ETIMEDOUT;
		n = read(fd, room, 16 * KIB);
		if (n <= 0)
			return n < 0 ? -errno : 0;
		buf_added(b, (size_t)n);
	}
}

static int ask(const struct service_opts *o, char **argv, struct buf *ret, struct err *e)
{
	int pipe[2], fd[1], r = o->devices_program < 0 ? -ENOENT : sys_pipe2(pipe, O_CLOEXEC);
	struct spawn s = { .program = o->devices_program, .fd = fd, .fds = 1, .argv = argv };
	AUTO_CLOSE int from = -1;
	pid_t pid;

	if (r < 0) {
		err_sys(e, r == -ENOENT ? ERR_UNSUPPORTED : ERR_EXHAUSTED, r, "cloche-devices");
		err_remedy(e, "install cloche-devices beside cloche-serve");
		return r;
	}
	from = pipe[0];
	fd[0] = pipe[1];
	pid = spawn_program(&s);
	fd_close(pipe[1]);
	r = pid < 0 ? pid : read_all(from, ret);
	spawn_end(pid);
	return r < 0 ? err_sys(e, ERR_INTERNAL, r, "list devices") : 0;
}

static void take(struct device_item *to, const json_t *from)
{
	const char *name = json_string_value(json_object_get(from, "name")),
		   *problem = json_string_value(json_object_get(from, "problem")),
		   *file = json_string_value(json_object_get(from, "file"));
	const json_t *units = json_object_get(from, "unit");

	snprintf(to->name, sizeof(to->name), "%s", name && strlen(name) < sizeof(to->name) ? name : "");
	snprintf(to->problem, sizeof(to->problem), "%s", problem ? problem : "");
	to->gpu = json_is_true(json_object_get(from, "gpu"));
	to->listed = file && *file;
	to->units[0] = '\0';
	for (size_t i = 0; i < json_array_size(units); i++) {
		const size_t n = strlen(to->units);
		const char *unit = json_string_value(json_array_get(units, i));

		snprintf(to->units + n, sizeof(to->units) - n, " %s ", unit ? unit : "");
	}
}

static int parse(const struct buf *text, struct device_list *ret, struct err *e)
{
	AUTO(json_decref) json_t *o = json_loadb(buf_str(text), text->len, 0, NULL);
	const json_t *list = json_object_get(o, "devices");

	if (!json_is_array(list))
		return err_set(e, ERR_INTERNAL, -EBADMSG, "list devices: cloche-devices failed");
	ret->item = calloc(json_array_size(list) + 1, sizeof(*ret->item));
	if (!ret->item)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for devices");
	for (size_t i = 0; i < json_array_size(list); i++)
		take(&ret->item[ret->n++], json_array_get(list, i));
	return 0;
}

int device_names_add(struct device_names *to, const char *name, struct err *e)
{
	void *more;

	for (unsigned i = 0; i < to->n; i++)
		if (!strcmp(to->name[i], name))
			return 0;
	more = realloc(to->name, ((size_t)to->n + 1) * sizeof(*to->name));
	if (!more)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for devices");
	to->name = more;
	snprintf(to->name[to->n++], DEVICE_NAME, "%s", name);
	return 0;
}

bool device_names_within(const struct device_names *some, const struct device_names *all)
{
	for (unsigned i = 0; i < some->n; i++) {
		unsigned k = 0;

		while (k < all->n && strcmp(some->name[i], all->name[k]) != 0)
			k++;
		if (k == all->n)
			return false;
	}
	return true;
}

int device_list_load(const struct service_opts *o, const struct device_names *names, struct device_list *ret,
		     struct err *e)
{
	static char program[] = "cloche-devices", folder[] = "--folder", list[] = "list";
	AUTO_FREE char **argv = calloc(names->n + 2 * FOLDERS + 3ULL, sizeof(*argv));
	char folders[1024], *save = NULL;
	AUTO(buf_done) struct buf out = BUF_INIT(LIST_MAX);
	unsigned argc = 0;
	int r;

	if (!argv)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for devices");
	argv[argc++] = program;
	snprintf(folders, sizeof(folders), "%s", o->cdi ? o->cdi : "/etc/cdi:/var/run/cdi");
	for (char *at = strtok_r(folders, ":", &save); at && argc < 2 * FOLDERS; at = strtok_r(NULL, ":", &save)) {
		argv[argc++] = folder;
		argv[argc++] = at;
	}
	argv[argc++] = list;
	for (unsigned i = 0; i < names->n; i++)
		argv[argc++] = names->name[i];
	r = ask(o, argv, &out, e);
	return r < 0 ? r : parse(&out, ret, e);
}

void device_list_done(struct device_list *l)
{
	free(l->item);
	*l = (struct device_list){ 0 };
}

const struct device_item *device_list_find(const struct device_list *l, const char *name)
{
	for (unsigned i = 0; i < l->n; i++)
		if (!strcmp(l->item[i].name, name))
			return &l->item[i];
	return NULL;
}

static const char *next_unit(const char *at, char *ret, size_t size)
{
	size_t n;

	at += strspn(at, " ");
	n = strcspn(at, " ");
	if (!n || n + 3 > size)
		return NULL;
	snprintf(ret, size, " %.*s ", (int)n, at);
	return at + n;
}

bool device_items_meet(const struct device_item *a, const struct device_item *b)
{
	char unit[48];

	for (const char *at = a->units; (at = next_unit(at, unit, sizeof(unit)));)
		if (strstr(b->units, unit))
			return true;
	return false;
}

static bool is_gpu(const struct device_list *l, const char *unit)
{
	for (unsigned i = 0; i < l->n; i++)
		if (l->item[i].gpu && strstr(l->item[i].units, unit))
			return true;
	return false;
}

unsigned device_list_gpus(const struct device_list *l, char (*name)[DEVICE_NAME], unsigned n)
{
	unsigned count = 0;
	char unit[48];

	for (unsigned i = 0; i < n; i++) {
		const struct device_item *item = device_list_find(l, name[i]);

		for (const char *at = item ? item->units : ""; (at = next_unit(at, unit, sizeof(unit)));) {
			bool again = false;

			for (unsigned k = 0; k < i && !again; k++) {
				const struct device_item *other = device_list_find(l, name[k]);

				again = other && strstr(other->units, unit);
			}
			count += !again && is_gpu(l, unit);
		}
	}
	return count;
}
