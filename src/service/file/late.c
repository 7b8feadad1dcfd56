/* File workers for users that may change /usr, which wait until it is writable (service/sandbox/system.h). */
#include "base/base.h"
#include "base/fd.h"
#include "base/log.h"
#include "service/file/file.h"
#include "service/file/late.h"
#include "service/sandbox/struct.h"

#include <fcntl.h>

struct file_late {
	struct file_late *next;
	struct user_request user;
	int fd;
};

/* In their order. With an error, or in another sandbox than they were meant for, their callers see the end of a socket. */
void file_late_start(struct sandbox *b, int r)
{
	struct file_late *l = b->late;

	b->late = NULL;
	while (l) {
		struct file_late *next = l->next;
		struct err e = { 0 };

		if (r == 0 && file_worker_give(b, &l->user, l->fd, &e) < 0)
			log_warn("sandbox %s: cannot start a file worker: %s", b->id, e.msg);
		fd_close(l->fd);
		free(l);
		l = next;
	}
}

int file_late_add(struct sandbox *b, const struct user_request *user, int fd, struct err *e)
{
	struct file_late *l = calloc(1, sizeof(*l)), **at = &b->late;
	int copy = l ? fcntl(fd, F_DUPFD_CLOEXEC, 3) : -1;

	if (copy < 0) {
		free(l);
		return err_set(e, ERR_EXHAUSTED, l ? -EMFILE : -ENOMEM, "no resources for a file worker");
	}
	*l = (struct file_late){ .user = *user, .fd = copy };
	while (*at)
		at = &(*at)->next;
	*at = l;
	return 0;
}
