/* Starts QEMU, and commands its monitor. */
#include "vm/vmm/chain.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/sys.h"
#include "vm/vmm/meta.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define COUNT_TRIES 50U
#define END_NS (10ULL * 1000000000ULL)

/*
 * Reads both clocks at one moment: of several tries it keeps the shortest, since another process may get the processor
 * in between.
 */
void counted_look(struct counted *ret)
{
	*ret = (struct counted){ 0 };
#if defined(__x86_64__)
	uint64_t best = UINT64_MAX;

	for (unsigned i = 0; i < COUNT_TRIES; i++) {
		uint64_t before = clock_mono_ns(), count = __builtin_ia32_rdtsc(), gap = clock_mono_ns() - before;

		if (gap >= best)
			continue;
		best = gap;
		*ret = (struct counted){ before + gap / 2, count };
	}
#endif
}

uint32_t counted_khz(const struct counted *from, const struct counted *to)
{
	return to->ns > from->ns ? (uint32_t)((to->count - from->count) * 1000000ULL / (to->ns - from->ns)) : 0;
}

static int make_sockets(struct machine *m)
{
	int *ours[] = { &m->port, &m->console, &m->qmp_fd }, *its[] = { &m->opts.port, &m->opts.console, &m->opts.qmp };
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_LEN(ours); i++) {
		int pair[2];

		r = sys_socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair);
		if (r < 0)
			break;
		*ours[i] = pair[0];
		*its[i] = pair[1];
		r = fd_set_nonblock(pair[0]);
	}
	return r;
}

static void close_its(struct machine *m)
{
	int *its[] = { &m->opts.port, &m->opts.console, &m->opts.qmp };

	for (size_t i = 0; i < ARRAY_LEN(its); i++) {
		fd_close(*its[i]);
		*its[i] = -1;
	}
}

int machine_start(struct machine *m, struct err *e)
{
	struct qemu_opts *o = &m->opts;
	pid_t pid;
	int r;

	o->port = o->console = o->qmp = -1;
	m->port = m->console = m->qmp_fd = -1;
	chain_begin(m);
	r = make_sockets(m);
	if (r == 0)
		r = qmp_init(&m->qmp, m->qmp_fd);
	if (r < 0) {
		err_sys(e, ERR_EXHAUSTED, r, "make the virtual machine's sockets");
		goto out;
	}
	r = o->role == VM_CLONE ? chain_format(m, o->disk[o->disks - 1], e) : 0;
	if (r < 0)
		goto out;
	pid = qemu_start(o);
	if (pid < 0) {
		r = err_sys(e, ERR_EXHAUSTED, pid, "start QEMU");
		goto out;
	}
	m->pid = pid;
	close_its(m);
	return qmp_greet(&m->qmp, m->version, e);
out:
	close_its(m);
	return r;
}

int machine_load(struct machine *m, const void *state, size_t len, struct err *e)
{
	AUTO_CLOSE int fd = sys_memfd_create("state", MFD_CLOEXEC);
	int r = fd < 0 ? fd : fd_write_all(fd, state, len);

	if (r == 0 && lseek(fd, 0, SEEK_SET) < 0)
		r = -errno;
	if (r < 0)
		return err_sys(e, ERR_EXHAUSTED, r, "write the virtual machine's state");
	r = qmp_do(&m->qmp, -1, "migrate-set-capabilities", e,
		   "\"capabilities\":[{\"capability\":\"events\",\"state\":true}]");
	if (r == 0)
		r = qmp_do(&m->qmp, fd, "getfd", e, "\"fdname\":\"state\"");
	if (r == 0)
		r = qmp_do(&m->qmp, -1, "migrate-incoming", e, "\"uri\":\"fd:state\"");
	return r < 0 ? r : qmp_wait_migration(&m->qmp, e);
}

int machine_stop(struct machine *m, struct err *e)
{
	return qmp_do(&m->qmp, -1, "stop", e, "%s", "");
}

int machine_go(struct machine *m, struct err *e)
{
	int r = qmp_do(&m->qmp, -1, "cont", e, "%s", "");

	/* While the machine is stopped, QEMU releases no descriptor, and their number is limited. */
	if (r == 0 && m->old_set) {
		qmp_do(&m->qmp, -1, "remove-fd", NULL, "\"fdset-id\":%u", m->old_set);
		m->old_set = 0;
	}
	return r;
}

static int read_state(int fd, uint8_t **ret, size_t *ret_len)
{
	struct stat st;
	uint8_t *data;
	ssize_t n;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (!st.st_size || st.st_size > META_STATE_MAX)
		return -EFBIG;
	data = malloc((size_t)st.st_size);
	if (!data)
		return -ENOMEM;
	n = pread(fd, data, (size_t)st.st_size, 0);
	if (n != st.st_size) {
		free(data);
		return n < 0 ? -errno : -EIO;
	}
	*ret = data;
	*ret_len = (size_t)n;
	return 0;
}

int machine_state(struct machine *m, uint8_t **ret, size_t *ret_len, struct err *e)
{
	AUTO_CLOSE int fd = sys_memfd_create("state", MFD_CLOEXEC), out = -1;
	uint32_t set = chain_set(m);
	char path[32];
	int r = fd;

	if (fd >= 0) {
		/* QEMU takes a descriptor only for just what it was opened for: here, to write. */
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		r = out = sys_openat(AT_FDCWD, path, O_WRONLY | O_CLOEXEC, 0);
	}
	if (r < 0)
		return err_sys(e, ERR_EXHAUSTED, r, "make a file for the virtual machine's state");
	r = qmp_do(&m->qmp, out, "add-fd", e, "\"fdset-id\":%u", set);
	if (r < 0)
		return r;
	/* Not `live`: that would end its use of the disks. */
	r = qmp_do(&m->qmp, -1, "xen-save-devices-state", e, "\"filename\":\"/dev/fdset/%u\",\"live\":false", set);
	if (r == 0) {
		r = read_state(fd, ret, ret_len);
		if (r < 0)
			err_sys(e, ERR_EXHAUSTED, r, "read the virtual machine's state");
	}
	m->old_set = set;
	return r;
}

int machine_end(struct machine *m)
{
	const struct timespec nap = { .tv_nsec = 1000000 };
	uint64_t until = clock_mono_ns() + END_NS;
	int status = -1, fds[] = { m->port, m->console, m->qmp_fd };
	pid_t r = 0;

	if (m->pid) {
		bool asked = m->qmp.line && qmp_do(&m->qmp, -1, "quit", NULL, "%s", "") == 0;

		while (asked && (r = sys_wait4(m->pid, &status, WNOHANG)) == 0 && clock_mono_ns() < until)
			nanosleep(&nap, NULL);
		if (r == 0) {
			kill(m->pid, SIGKILL);
			sys_wait4(m->pid, &status, 0);
		}
	}
	m->pid = 0;
	qmp_done(&m->qmp);
	fd_close_many(fds, ARRAY_LEN(fds));
	m->port = m->console = m->qmp_fd = -1;
	return status == 0 ? 0 : -EIO;
}
