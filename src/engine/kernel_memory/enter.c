/* Enters network namespaces of sandboxes and returns. */
#include "engine/kernel_memory/enter.h"
#include "base/base.h"
#include "base/log.h"
#include "linux/socket_memory.h"

#include <errno.h>
#include <sched.h>

/* Calls setns() of libc: tests count calls of base/sys.h, and do not expect them from another thread. */
static int enter(int net)
{
	return setns(net, CLONE_NEWNET) < 0 ? -errno : 0;
}

/* A thread that stayed in there would keep the namespace. Without root it cannot return, and ends with its process. */
static void leave(const struct kernel_enter *n)
{
	int r = n->rootless ? 0 : enter(n->net);

	if (r < 0)
		r = enter(n->net);
	if (r < 0)
		log_error("the watch cannot return to the host's network namespace: errno %d", -r);
}

void kernel_enter(const struct kernel_enter *n, struct kernel_entered *ret)
{
	const bool needed = n->bpf || n->diag;
	int r = needed ? enter(n->pidfd) : -ENODEV;

	*ret = (struct kernel_entered){ .bound = r, .diag = r };
	if (r < 0)
		return;
	ret->bound = n->bpf ? socket_bpf_enter(n->bpf, n->most, &ret->entry) : -ENODEV;
	ret->diag = n->diag ? socket_diag_open() : -ENODEV;
	leave(n);
}
