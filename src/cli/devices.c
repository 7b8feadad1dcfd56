/* What devices a command gets, and what this machine has. */
#include "cli/devices.h"
#include "base/base.h"
#include "base/sys.h"
#include "engine/image/devices.h"
#include "engine/program.h"
#include "linux/spawn.h"

#include <sys/wait.h>
#include <unistd.h>

#define LIBRARIES "LD_LIBRARY_PATH="

static int open_program(struct err *e)
{
	char path[512];
	int r = program_path("cloche-devices", path, sizeof(path), e);

	return r < 0 ? r : sys_openat(AT_FDCWD, path, O_PATH | O_CLOEXEC, 0);
}

/* Folders of libraries that the user gave are searched first, and ours still are. */
static int join_libraries(struct options *o, const char *ours)
{
	for (uint32_t i = 0; i < o->nenv; i++) {
		char *joined = NULL;

		if (strncmp(o->env[i], LIBRARIES, strlen(LIBRARIES)))
			continue;
		if (asprintf(&joined, "%s%s%s", o->env[i], o->env[i][strlen(LIBRARIES)] ? ":" : "",
			     ours + strlen(LIBRARIES)) < 0)
			return -ENOMEM;
		o->env[i] = joined; /* lives as long as the process, as the others do */
	}
	return 0;
}

int devices_env(struct options *o, struct err *e)
{
	static struct device_plan plan;
	static const char *env[DEVICE_ENV / 2];
	AUTO_CLOSE int program = -1;
	int r;

	if (!o->spec.ndevices)
		return 0;
	r = program = open_program(e);
	if (r >= 0)
		r = devices_ask(&(struct devices_from){ program, o->cdi, !strcmp(o->spec.image, "host"), false },
				o->spec.device, o->spec.ndevices, &plan, e);
	if (r < 0)
		return r;
	if (device_plan_check(&plan) < 0)
		return err_set(e, ERR_INTERNAL, -EBADMSG, "cloche-devices gave an invalid answer");
	for (uint32_t at = 0; at < plan.env_len; at += (uint32_t)strlen(plan.env + at) + 1) {
		env[o->ndevice_env++] = plan.env + at;
		if (!strncmp(plan.env + at, LIBRARIES, strlen(LIBRARIES)) && join_libraries(o, plan.env + at) < 0)
			return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory");
	}
	o->device_env = env;
	return 0;
}

int devices_list(const char *how, struct buf *ret)
{
	char name[] = "cloche-devices", what[8], folder[] = "--folder", etc[] = "/etc/cdi", run[] = "/var/run/cdi";
	char *argv[] = { name, folder, etc, folder, run, what, NULL };
	AUTO_CLOSE int program = open_program(NULL), from = -1;
	int pipe[2], fd[1], r = program < 0 ? program : sys_pipe2(pipe, O_CLOEXEC);
	struct spawn s = { .program = program, .fd = fd, .fds = 1, .argv = argv };
	ssize_t n = 1;
	pid_t pid;

	if (r < 0)
		return r;
	snprintf(what, sizeof(what), "%s", how);
	from = pipe[0];
	fd[0] = pipe[1];
	pid = spawn_program(&s);
	fd_close(pipe[1]);
	while (pid > 0 && n > 0) {
		void *room = buf_room(ret, 4096);

		n = room ? read(from, room, 4096) : -ENOMEM;
		if (n > 0)
			buf_added(ret, (size_t)n);
	}
	spawn_end(pid);
	return pid < 0 ? pid : n < 0 ? -EIO : 0;
}
