/* Reads frames from an agent's socket, and sends them. */
#include "proto/link.h"
#include "base/base.h"
#include "proto/account.h"

#include <poll.h>
#include <sys/socket.h>

#define SEND_AT_ONCE 4096

void link_init(struct link *l, int sock)
{
	l->sock = sock;
	l->len = l->used = 0;
	l->nfds = 0;
}

void link_done(struct link *l)
{
	fd_close_many(l->fds, l->nfds);
	l->nfds = 0;
}

static int take_fds(struct link *l, unsigned n, int *ret_fd)
{
	*ret_fd = -1;
	if (n > l->nfds)
		return -EBADMSG;
	for (unsigned i = 0; i < n; i++) {
		if (i == 0)
			*ret_fd = l->fds[0];
		else
			fd_close(l->fds[i]);
	}
	l->nfds -= n;
	memmove(l->fds, l->fds + n, l->nfds * sizeof(int));
	return 0;
}

int link_next(struct link *l, int wait_ms, struct frame *ret, int *ret_fd)
{
	for (;;) {
		struct pollfd p = { .fd = l->sock, .events = POLLIN };
		size_t got = 0;
		ssize_t n;
		long r;

		r = frame_decode(l->data + l->used, l->len - l->used, ret);
		if (r > 0) {
			l->used += (size_t)r;
			if (take_fds(l, ret->nfds, ret_fd) < 0)
				return -EBADMSG;
			return 1;
		}
		if (r < 0)
			return (int)r;
		memmove(l->data, l->data + l->used, l->len - l->used);
		l->len -= l->used;
		l->used = 0;
		if (l->len == sizeof(l->data))
			return -EBADMSG;
		n = poll(&p, 1, wait_ms);
		if (n == 0)
			return 0;
		if (n < 0) {
			if (errno == EINTR)
				return 0;
			return -errno;
		}
		n = fd_recv(l->sock, l->data + l->len, sizeof(l->data) - l->len, l->fds + l->nfds,
			    ARRAY_LEN(l->fds) - l->nfds, &got);
		if (n == -EMSGSIZE)
			return -EBADMSG;
		if (n <= 0)
			return -EPIPE;
		l->len += (size_t)n;
		l->nfds += got;
	}
}

int link_send(struct link *l, enum frame_type type, uint32_t id, const uint8_t *payload, size_t len, const int *fds,
	      size_t nfds)
{
	uint8_t out[SEND_AT_ONCE];
	int r;

	frame_head(out, type, (uint8_t)nfds, id, (uint32_t)len);
	/* In one piece when it is small, as nearly always: the agent then wakes once, not twice. */
	if (len <= sizeof(out) - FRAME_HEAD) {
		if (len)
			memcpy(out + FRAME_HEAD, payload, len);
		return fd_send(l->sock, out, FRAME_HEAD + len, fds, nfds);
	}
	r = fd_send(l->sock, out, FRAME_HEAD, fds, nfds);
	return r < 0 ? r : fd_send(l->sock, payload, len, NULL, 0);
}

int link_signal(struct link *l, uint32_t id, int sig, enum frame_scope scope)
{
	uint32_t payload[2] = { (uint32_t)sig, (uint32_t)scope }; /* both supported architectures are little-endian */

	return link_send(l, FRAME_SIGNAL, id, (const uint8_t *)payload, sizeof(payload), NULL, 0);
}

/* What a user can do about a step that failed. */
/* clang-format off */
static const struct {
	enum frame_stage stage;
	uint32_t errnum;
	const char *text;
} remedies[] = {
	{ FRAME_STAGE_EXECVE, ENOENT,
	  "the command, or the interpreter in its first line, must be in the image (on PATH), or be mounted into a "
	  "container with --mount" },
	{ FRAME_STAGE_EXECVE, EACCES,
	  "chmod +x it, give the user access to the folders above it, or start it as `sh FILE`" },
	{ FRAME_STAGE_EXECVE, E2BIG,
	  "arguments and environment exceed Linux's limit: pass large data on stdin or in a file" },
	{ FRAME_STAGE_ACCOUNT, ENOENT,
	  "the user must be a line of the sandbox's /etc/passwd, or UID[:GID]: add it first, with useradd as root" },
	{ FRAME_STAGE_ACCOUNT_GROUP, ENOENT, "the group must be a line of the sandbox's /etc/group, or a number" },
	{ FRAME_STAGE_ACCOUNT, ERANGE, "user ids in a sandbox must be at most 65535, and not 65533" },
	{ FRAME_STAGE_ACCOUNT_GROUP, ERANGE, "group ids in a sandbox must be at most 65535, and not 65533" },
	{ FRAME_STAGE_CWD, ENOENT, "the working folder of a command must exist: make it first" },
	{ FRAME_STAGE_CLONE, EAGAIN,
	  "the sandbox has reached its limit of processes and threads: end some, or raise the limit (pids)" },
	{ FRAME_STAGE_CLONE, ENOMEM,
	  "the sandbox's memory is full: end or remove something in it, or raise the limit (memory)" },
	{ FRAME_STAGE_CLONE, ETIMEDOUT,
	  "a process in the sandbox has stopped it during the start, or the host is very busy: try again" },
	{ FRAME_STAGE_TTY, ENOSPC, "all terminals of the sandbox are in use: end some execs that have one" },
	{ FRAME_STAGE_PROC, EPERM,
	  "a /proc without mounts over it is required: in a container, an unmasked one (--privileged, "
	  "systempaths=unconfined)" },
	{ FRAME_STAGE_MOUNT, EROFS, "a mount point below /usr must already exist: mount it elsewhere, as on /work" },
	{ FRAME_STAGE_MOUNT, EINVAL, "a folder can only be mounted on a folder, and a file only on a file" },
	{ FRAME_STAGE_WORKDIR, EROFS, "a new --workdir cannot be below /usr" },
	{ FRAME_STAGE_RLIMIT, EPERM,
	  "--nofile must be at most the value of `ulimit -Hn`, and of /proc/sys/fs/nr_open" },
};
/* clang-format on */

/* What a failed start means to the caller, or 0: nothing that the table has. */
static unsigned start_reason(const struct frame_failed *x)
{
	switch (x->stage) {
	case FRAME_STAGE_EXECVE:
		return x->errnum == ENOENT || x->errnum == ENOTDIR ? WHY_PROGRAM_MISSING :
		       x->errnum == EACCES || x->errnum == EPERM   ? WHY_NOT_EXECUTABLE :
		       x->errnum == ENOEXEC			   ? WHY_NOT_A_PROGRAM :
		       x->errnum == E2BIG			   ? WHY_ARGUMENT_TOO_LONG :
		       x->errnum == ENOMEM			   ? WHY_MEMORY_FULL :
		       x->errnum == ELOOP			   ? WHY_LINK_LOOP :
		       x->errnum == ENAMETOOLONG		   ? WHY_NAME_TOO_LONG :
								     WHY_REFUSED;
	case FRAME_STAGE_CWD:
		return x->errnum == ENOENT			 ? WHY_FOLDER_MISSING :
		       x->errnum == ENOTDIR			 ? WHY_NOT_A_FOLDER :
		       x->errnum == EACCES || x->errnum == EPERM ? WHY_FOLDER_PERMISSION :
		       x->errnum == ELOOP			 ? WHY_LINK_LOOP :
		       x->errnum == ENAMETOOLONG		 ? WHY_NAME_TOO_LONG :
								   WHY_REFUSED;
	case FRAME_STAGE_ACCOUNT:
		return x->errnum == ENOENT ? WHY_USER_UNKNOWN : WHY_USER_INVALID;
	case FRAME_STAGE_ACCOUNT_GROUP:
		return x->errnum == ENOENT ? WHY_GROUP_UNKNOWN : WHY_USER_INVALID;
	case FRAME_STAGE_CLONE:
		return x->errnum == EAGAIN ? WHY_PROCESS_LIMIT : x->errnum == ENOMEM ? WHY_MEMORY_FULL : 0U;
	case FRAME_STAGE_TTY:
		return x->errnum == ENOSPC || x->errnum == EAGAIN ? WHY_TERMINAL_LIMIT :
		       x->errnum == ENOMEM			  ? WHY_MEMORY_FULL :
								    0U;
	default:
		return 0;
	}
}

static int account_error(const struct frame_failed *x, const char *user, unsigned why, struct err *e)
{
	const bool group = x->stage == FRAME_STAGE_ACCOUNT_GROUP;
	const char *what = group ? "group" : "user", *file = group ? "/etc/group" : "/etc/passwd";
	const int r = -(int)(x->errnum ? x->errnum : EIO);

	switch (x->errnum) {
	case ENOENT:
		return err_set(e, why, r, "user '%.70s': no such %s in the sandbox's %s", user, what, file);
	case ERANGE:
		return err_set(
			e, why, r,
			"user '%.70s': its line in the sandbox's %s has an id that is invalid for a %s of a sandbox",
			user, file, what);
	case EINVAL:
		return err_set(e, why, r, "user '%.70s': the sandbox's %s is not a regular file", user, file);
	case EFBIG:
		return err_set(e, why, r, "user '%.70s': the sandbox's %s is larger than %u bytes", user, file,
			       ACCOUNT_FILE_MAX);
	case E2BIG:
		return err_set(e, why, r, "user '%.70s': is in more than %u groups of the sandbox's %s", user,
			       ACCOUNT_GROUPS, file);
	case ENAMETOOLONG:
		return err_set(e, why, r, "user '%.70s': its home folder in the sandbox's %s is longer than %u bytes",
			       user, file, ACCOUNT_HOME - 1);
	default:
		return err_sys(e, why, r, "user '%.70s': read the sandbox's %s", user, file);
	}
}

int link_error(const struct frame *f, const char *what, struct err *e, struct frame_failed *ret)
{
	struct frame_failed x;
	unsigned why;
	int r;

	if (frame_failed_decode(f, &x) < 0)
		return err_set(e, WHY_SANDBOX_LOST, -EBADMSG, "%s: the agent's answer is malformed", what);
	if (ret)
		*ret = x;
	why = start_reason(&x);
	if (!why)
		why = x.errnum == ETIMEDOUT ? WHY_NO_PROGRESS : ERR_UNSUPPORTED;
	if (x.stage == FRAME_STAGE_ACCOUNT || x.stage == FRAME_STAGE_ACCOUNT_GROUP)
		r = account_error(&x, what, why, e);
	else if (x.text && *x.text)
		r = err_set(e, why, -(int)(x.errnum ? x.errnum : EIO), "%s: %s", what, x.text);
	else
		r = err_sys(e, why, -(int)(x.errnum ? x.errnum : EIO), "%s: %s", what, frame_stage_text(x.stage));
	if (x.stage == FRAME_STAGE_EXECVE && x.errnum == ENOENT && strchr(what, ' '))
		err_remedy(e, "the program and each argument must be separate words; for a whole command line use a "
			      "shell: sh -c 'LINE'");
	for (size_t i = 0; i < ARRAY_LEN(remedies); i++)
		if (remedies[i].stage == x.stage && remedies[i].errnum == x.errnum)
			err_remedy(e, "%s", remedies[i].text);
	return r;
}
