/*
 * System V objects: semaphores, message queues and shared memory belong to the sandbox's IPC namespace and to no process.
 * None of them is carried, so one that exists is a reason to refuse: processes would find it gone.
 */
#include "dump/dump.h"
#include "base/base.h"
#include "base/sys.h"

#include <sched.h>
#include <unistd.h>

#define LIST_MAX (1U << 20)

int sysv_enter(struct dump *d, struct err *e)
{
	AUTO_CLOSE int ns = -1;
	struct stat mine, theirs;
	char path[64];
	int r;

	snprintf(path, sizeof(path), "/proc/%d/ns/ipc", (int)d->agent);
	if (stat(path, &theirs) < 0 || stat("/proc/self/ns/ipc", &mine) < 0)
		return err_sys(e, ERR_INTERNAL, -errno, "look at %s", path);
	/* One that shares the host's has objects that are none of its own. */
	if (theirs.st_ino == mine.st_ino)
		return 0;
	ns = sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
	r = ns < 0 ? ns : sys_setns(ns, CLONE_NEWIPC);
	d->sysv = r == 0;
	return r < 0 ? err_sys(e, ERR_INTERNAL, r, "enter the sandbox's IPC namespace") : 0;
}

int sysv_check(const struct dump *d, struct err *e)
{
	static const struct {
		const char *list, *name;
	} kinds[] = {
		{ "/proc/sysvipc/sem", "System V semaphores" },
		{ "/proc/sysvipc/msg", "a System V message queue" },
		{ "/proc/sysvipc/shm", "System V shared memory" },
	};

	for (size_t i = 0; d->sysv && i < ARRAY_LEN(kinds); i++) {
		AUTO_FREE char *text = NULL;
		int r = proc_text(AT_FDCWD, kinds[i].list, LIST_MAX, &text, NULL), key, id;
		const char *line;

		if (r == -ENOENT) /* a kernel without them */
			continue;
		if (r < 0)
			return err_sys(e, ERR_INTERNAL, r, "read %s", kinds[i].list);
		line = strchr(text, '\n'); /* behind the names of the columns */
		if (line && sscanf(line, "%d %d", &key, &id) == 2)
			return err_set(e, ERR_UNSUPPORTED, -EOPNOTSUPP, "the sandbox has %s (id %d, key 0x%x), which can not be carried",
				       kinds[i].name, id, (unsigned)key);
	}
	return 0;
}
