/* Has cloche-files fill what sandboxes start from, and waits for it. */
#include "engine/image/fill.h"
#include "base/base.h"
#include "linux/spawn.h"

#include <poll.h>

#define LIMIT_MS 60000 /* it takes some milliseconds, unless a disk or a file system hangs */

static int wait_for(int sock, struct image_answer *ret)
{
	struct pollfd p = { .fd = sock, .events = POLLIN };
	ssize_t n;
	int r;

	do
		r = poll(&p, 1, LIMIT_MS);
	while (r < 0 && errno == EINTR);
	if (r <= 0)
		return r < 0 ? -errno : -ETIMEDOUT;
	n = fd_recv(sock, ret, sizeof(*ret), NULL, 0, &(size_t){ 0 });
	return n == (ssize_t)sizeof(*ret) && ret->result <= 0 && ret->result >= -4095 && err_received(&ret->e) ? 0 :
														 -EIO;
}

int image_fill_child(int program, const struct image_fill *x, struct err *e)
{
	static const char *const names[] = IMAGE_NAMES;
	char name[] = "cloche-files", what[16], n[24], journal[24];
	char *argv[] = { name, what, n, journal, NULL };
	int fd[IMAGE_PLACES] = { [IMAGE_FD] = x->fd }, r;
	AUTO_CLOSE int sock = -1;
	struct spawn s = { .program = program, .fd = fd, .fds = IMAGE_PLACES, .argv = argv };
	struct image_answer a;
	pid_t pid;

	if (program < 0)
		return err_advise(e, ERR_NOT_FOUND, -ENOENT, "install it beside cloche-warden",
				  "what sandboxes start from cannot be made: cloche-files is not installed");
	snprintf(what, sizeof(what), "%s", names[x->what]);
	snprintf(n, sizeof(n), "%llu", (unsigned long long)x->n);
	snprintf(journal, sizeof(journal), "%llu", (unsigned long long)x->journal);
	r = pid = spawn_talking(&s, &sock);
	if (r < 0)
		return err_sys(e, ERR_EXHAUSTED, r, "start cloche-files");
	r = wait_for(sock, &a);
	spawn_end(pid);
	if (r == -ETIMEDOUT)
		return err_set(e, ERR_TIMEOUT, r, "cloche-files took longer than %u s", LIMIT_MS / 1000);
	if (r < 0)
		return err_set(e, ERR_INTERNAL, r, "cloche-files ended without an answer");
	if (a.result < 0 && e)
		*e = a.e;
	return a.result;
}
