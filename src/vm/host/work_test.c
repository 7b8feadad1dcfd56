/* Tasks of workers for machines, as far as they need no QEMU. */
#include "engine/sandbox/internal.h"
#include "base/base.h"
#include "base/sys.h"
#include "base/test.h"
#include "layers/tree.h"
#include "vm/host/host.h"

#include <sys/stat.h>
#include <unistd.h>

static struct vm_work *new_template(int dir)
{
	struct err e = { 0 };
	struct vm_work *x = vm_work_new(VM_NEW, &e);

	if (!x)
		abort();
	x->fd[VM_FILE_DIR] = dir;
	x->given.template_wanted = true;
	snprintf(x->given.name, sizeof(x->given.name), "t-0123");
	snprintf(x->given.part, sizeof(x->given.part), "t-0123.part");
	return x;
}

TEST(what_is_in_the_way_of_a_template_is_an_error_and_not_gone_round_for_ever)
{
	char path[] = "/var/tmp/vm-work-XXXXXX";
	AUTO_CLOSE int dir = -1;
	struct vm_work *x;

	CHECK(mkdtemp(path) != NULL);
	dir = sys_openat(AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	fd_close(sys_openat(dir, "t-0123", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	x = new_template(dir);
	x->work.run(&x->work);
	CHECK_EQ(x->made.result, -ENOTDIR);
	vm_work_free(x);
	/* A task that is asked to give up does so. */
	CHECK_EQ(sys_unlinkat(dir, "t-0123", 0), 0);
	x = new_template(dir);
	x->work.stop = 1;
	x->work.run(&x->work);
	CHECK_EQ(x->made.result, -ECANCELED);
	vm_work_free(x);
	CHECK_EQ(tree_remove(AT_FDCWD, path), 0);
}
