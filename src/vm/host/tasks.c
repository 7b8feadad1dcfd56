/*
 * Makes what virtual machines start from: images as erofs, empty disks, templates, memory that is assembled from
 * layers. Runs in cloche-vm-files (main.c), and uses only what it is given.
 */
#include "vm/host/task.h"
#include "base/base.h"
#include "base/log.h"
#include "base/sys.h"
#include "layers/sparse_copy.h"
#include "layers/tree.h"
#include "vm/host/files.h"
#include "vm/host/verdict.h"
#include "vm/vmm/meta.h"

#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)
#define FOLDER (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

static void do_picture(struct vm_work *x)
{
	const bool host = x->fd[VM_FILE_USR] >= 0;
	const struct vm_cache cache = { x->fd[VM_FILE_FOLDER], x->given.cache };
	int root = -1, usr = -1, r;

	if (x->given.name[0])
		r = vm_image_fixed(&cache, x->given.path, x->given.name, x->fd[VM_FILE_ROOT], &x->pace, &root,
				   &x->made.e);
	else
		r = vm_image(&cache, host ? "host" : x->given.path, x->fd[VM_FILE_ROOT], &x->pace, &root,
			     x->made.root_id, &x->made.e);
	if (r == 0 && host)
		r = vm_image(&cache, "/usr", x->fd[VM_FILE_USR], &x->pace, &usr, x->made.usr_id, &x->made.e);
	fd_close(x->fd[VM_FILE_ROOT]);
	fd_close(x->fd[VM_FILE_USR]);
	x->fd[VM_FILE_ROOT] = root;
	x->fd[VM_FILE_USR] = usr;
	x->made.result = r;
}

static int open_file(int dir, const char *name)
{
	AUTO_CLOSE int fd = sys_openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0);
	struct stat st;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return -errno;
	return S_ISREG(st.st_mode) ? TAKE_FD(fd) : -EBADMSG;
}

static int memory_file(const char *name, uint64_t size)
{
	AUTO_CLOSE int fd = sys_memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int r = fd < 0 || !size ? fd : sys_ftruncate(fd, (off_t)size);

	return r < 0 ? r : TAKE_FD(fd);
}

/* Copies a file into sealed memory: QEMU of Debian 12 would open the file itself for writing. */
static int read_memory(int file, const int *stop)
{
	AUTO_CLOSE int ram = -1;
	struct stat st;
	int r;

	if (fstat(file, &st) < 0)
		return -errno;
	r = ram = memory_file("ram", (uint64_t)st.st_size);
	if (r >= 0)
		r = vm_copy(file, ram, stop);
	if (r == 0)
		r = sys_fcntl(ram, F_ADD_SEALS, SEALS);
	return r < 0 ? r : TAKE_FD(ram);
}

static int open_template(struct vm_work *x, int dir)
{
	AUTO_CLOSE int ram = -1;
	int r = x->fd[VM_FILE_META] = open_file(dir, "meta");

	if (r >= 0)
		r = x->fd[VM_FILE_DISK] = open_file(dir, "disk");
	if (r >= 0)
		r = x->fd[VM_FILE_ROOT] = open_file(dir, "root.erofs");
	if (r >= 0) {
		r = x->fd[VM_FILE_USR] = open_file(dir, "usr.erofs");
		r = r == -ENOENT ? 0 : r;
	}
	if (r >= 0 && x->fd[VM_FILE_RAM] < 0) {
		r = ram = open_file(dir, "ram");
		if (r >= 0)
			r = x->fd[VM_FILE_RAM] = read_memory(ram, &x->work.stop);
	}
	if (r >= 0)
		futimens(dir, NULL); /* marks it as used: see vm_store_sweep() */
	return r < 0 ? r : 0;
}

static void do_look(struct vm_work *x)
{
	AUTO_CLOSE int dir = sys_openat(x->fd[VM_FILE_DIR], x->given.name, FOLDER, 0);
	int r = dir < 0 ? dir : open_template(x, dir);

	x->made.result = r;
	if (r < 0 && r != -ENOENT)
		err_sys(&x->made.e, ERR_INTERNAL, r, "open template %s", x->given.name);
	/* An incomplete template is there: it is of no use. */
	if (r == -ENOENT && dir >= 0)
		tree_remove(x->fd[VM_FILE_DIR], x->given.name);
}

/*
 * Takes the folder that the template is made in, locked while a process works on it: the template's own name and
 * ".part". Another process that needs the same template waits here, and finds it made (->found), or the folder of one
 * that failed or died, which is removed.
 */
static int take_part(struct vm_work *x)
{
	int r;

	for (;;) {
		AUTO_CLOSE int done = sys_openat(x->fd[VM_FILE_DIR], x->given.name, FOLDER, 0);

		if (done >= 0) {
			x->made.found = true;
			return open_template(x, done);
		}
		/*
		 * Anything else under that name stays, and so does what cannot be removed: otherwise this would loop
		 * for ever.
		 */
		if (done != -ENOENT || vm_pace_stopped(&x->pace))
			return done != -ENOENT ? done : -ECANCELED;
		r = sys_mkdirat(x->fd[VM_FILE_DIR], x->given.part, 0700);
		if (r < 0 && r != -EEXIST)
			return r;
		fd_close(TAKE_FD(x->fd[VM_FILE_FOLDER]));
		r = x->fd[VM_FILE_FOLDER] = sys_openat(x->fd[VM_FILE_DIR], x->given.part, FOLDER, 0);
		if (r == -ENOENT)
			continue;
		if (r >= 0)
			r = vm_pace_lock(&x->pace, x->fd[VM_FILE_FOLDER]);
		if (r < 0)
			return r;
		if (!vm_work_is_part(x))
			continue;
		/*
		 * The template was made while this process waited: then the name ".part" was free again, and this
		 * process has just taken it.
		 */
		r = faccessat(x->fd[VM_FILE_DIR], x->given.name, F_OK, AT_SYMLINK_NOFOLLOW) == 0 ? -EEXIST : 0;
		if (r == 0)
			r = x->fd[VM_FILE_DISK] =
				sys_openat(x->fd[VM_FILE_FOLDER], "disk", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		if (r == -EEXIST)
			r = tree_remove(x->fd[VM_FILE_DIR], x->given.part);
		else
			return r;
		if (r < 0)
			return r;
	}
}

static int make_disk(struct vm_work *x)
{
	int r;

	if (!x->given.template_wanted) {
		x->fd[VM_FILE_DISK] = sys_openat(x->fd[VM_FILE_DIR], ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
		return x->fd[VM_FILE_DISK] < 0 ?
			       err_sys(&x->made.e, ERR_EXHAUSTED, x->fd[VM_FILE_DISK], "make a disk") :
			       0;
	}
	r = take_part(x);
	return r < 0 ? err_sys(&x->made.e, ERR_EXHAUSTED, r, "make a template's folder") : 0;
}

static void do_new(struct vm_work *x)
{
	int r = make_disk(x);

	if (r < 0 || x->made.found) {
		x->made.result = r;
		return;
	}
	vm_pace_set(&x->pace, VM_STEP_DISK, 0);
	if (r == 0)
		r = vm_disk(x->fd[VM_FILE_DISK], x->given.size, x->given.inodes, &x->made.e);
	if (r == 0)
		r = vm_initrd(&x->fd[VM_FILE_INITRD], &x->made.e);
	if (r == 0 && x->given.template_wanted) {
		r = vm_kernel_sum(x->made.kernel, &x->made.e);
		if (r == 0) {
			r = vm_sum(x->fd[VM_FILE_INITRD], x->made.initrd_sum);
			if (r == 0)
				r = x->fd[VM_FILE_RAM] = memory_file("ram", x->given.memory);
			if (r >= 0)
				r = x->fd[VM_FILE_META] = memory_file("meta", 0);
			r = r < 0 ? err_sys(&x->made.e, ERR_EXHAUSTED, r, "make the memory of a virtual machine") : 0;
		}
	}
	x->made.result = r;
	if (r < 0 && x->fd[VM_FILE_FOLDER] >= 0)
		tree_remove(x->fd[VM_FILE_DIR], x->given.part);
}

static int put_copy(int from, int dir, const char *name, const int *stop)
{
	AUTO_CLOSE int to = sys_openat(dir, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	int r = to < 0 ? to : vm_copy(from, to, stop);

	return r == 0 && fsync(to) < 0 ? -errno : r;
}

/* A copy or link, since the image may be swept from its cache, or be on another filesystem. */
static int put_image(int from, int dir, const char *name, const int *stop)
{
	char self[32];

	snprintf(self, sizeof(self), "/proc/self/fd/%d", from);
	if (linkat(AT_FDCWD, self, dir, name, AT_SYMLINK_FOLLOW) == 0)
		return 0;
	return errno == EXDEV || errno == EPERM || errno == ENOENT || errno == EMLINK ?
		       put_copy(from, dir, name, stop) :
		       -errno;
}

static int store(struct vm_work *x)
{
	int r = sys_fcntl(x->fd[VM_FILE_RAM], F_ADD_SEALS, SEALS);

	if (r == 0)
		r = put_copy(x->fd[VM_FILE_META], x->fd[VM_FILE_FOLDER], "meta", &x->work.stop);
	if (r == 0)
		r = put_copy(x->fd[VM_FILE_RAM], x->fd[VM_FILE_FOLDER], "ram", &x->work.stop);
	if (r == 0 && fsync(x->fd[VM_FILE_DISK]) < 0)
		r = -errno;
	if (r == 0)
		r = put_image(x->fd[VM_FILE_ROOT], x->fd[VM_FILE_FOLDER], "root.erofs", &x->work.stop);
	if (r == 0 && x->fd[VM_FILE_USR] >= 0)
		r = put_image(x->fd[VM_FILE_USR], x->fd[VM_FILE_FOLDER], "usr.erofs", &x->work.stop);
	if (r == 0 && fsync(x->fd[VM_FILE_FOLDER]) < 0)
		r = -errno;
	if (r < 0)
		return r;
	/*
	 * Another process may have made the same meanwhile: then that one is used, with its own memory, which belongs
	 * to its state.
	 */
	if (renameat(x->fd[VM_FILE_DIR], x->given.part, x->fd[VM_FILE_DIR], x->given.name) < 0) {
		if (errno != EEXIST && errno != ENOTEMPTY)
			return -errno;
		fd_close(TAKE_FD(x->fd[VM_FILE_RAM]));
	}
	fsync(x->fd[VM_FILE_DIR]);
	return 0;
}

static void do_store(struct vm_work *x)
{
	AUTO_CLOSE int dir = -1;
	int r = store(x);

	fd_close(TAKE_FD(x->fd[VM_FILE_META]));
	fd_close(TAKE_FD(x->fd[VM_FILE_DISK]));
	fd_close(TAKE_FD(x->fd[VM_FILE_ROOT]));
	fd_close(TAKE_FD(x->fd[VM_FILE_USR]));
	if (vm_work_is_part(x)) /* the folder was not used */
		tree_remove(x->fd[VM_FILE_DIR], x->given.part);
	if (r == 0)
		r = dir = sys_openat(x->fd[VM_FILE_DIR], x->given.name, FOLDER, 0);
	if (r >= 0)
		r = open_template(x, dir);
	x->made.result = r < 0 ? err_sys(&x->made.e, r == -ENOSPC || r == -ENOMEM ? ERR_EXHAUSTED : ERR_INTERNAL, r,
					 "keep a template") :
				 0;
}

static void do_flatten(struct vm_work *x)
{
	AUTO_CLOSE int ram = memory_file("ram", x->given.memory);
	int r = ram < 0 ? ram : vm_copy(x->fd[VM_FILE_RAM], ram, &x->work.stop);

	if (r < 0) {
		x->made.result = err_sys(&x->made.e, ERR_EXHAUSTED, r, "prepare the memory of a virtual machine");
		return;
	}
	for (unsigned i = 0; r == 0 && i < x->npages; i++)
		r = __atomic_load_n(&x->work.stop, __ATOMIC_RELAXED) ?
			    err_set(&x->made.e, ERR_CONFLICT, -ECANCELED, "the warden is stopping") :
			    pages_apply(x->pages[i], ram, x->given.memory, &x->made.e);
	if (r == 0) {
		r = sys_fcntl(ram, F_ADD_SEALS, SEALS);
		if (r < 0)
			err_sys(&x->made.e, ERR_INTERNAL, r, "seal the memory of a virtual machine");
	}
	fd_close(x->fd[VM_FILE_RAM]);
	x->fd[VM_FILE_RAM] = r < 0 ? -1 : TAKE_FD(ram);
	x->made.result = r;
}

static void do_known(struct vm_work *x)
{
	struct vm_verdict v;

	x->made.result = vm_verdict_load(x->fd[VM_FILE_FOLDER], &v);
	if (x->made.result < 0)
		return;
	x->made.found = v.kvm;
	snprintf(x->made.e.msg, sizeof(x->made.e.msg), "%s", v.why);
}

static void do_remember(struct vm_work *x)
{
	struct vm_verdict v = { .kvm = x->made.found };

	snprintf(v.why, sizeof(v.why), "%.159s", x->given.path);
	x->made.result = vm_verdict_store(x->fd[VM_FILE_FOLDER], &v, &x->made.e);
	if (x->made.result < 0)
		log_warn("cannot store whether KVM works: %s", x->made.e.msg);
}

void vm_task_run(struct vm_work *x)
{
	switch (x->task) {
	case VM_PICTURE:
		do_picture(x);
		break;
	case VM_LOOK:
		do_look(x);
		break;
	case VM_NEW:
		do_new(x);
		break;
	case VM_STORE:
		do_store(x);
		break;
	case VM_FLATTEN:
		do_flatten(x);
		break;
	case VM_KNOWN:
		do_known(x);
		break;
	case VM_REMEMBER:
		do_remember(x);
		break;
	}
}
