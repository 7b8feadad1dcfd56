/*
 * cloche-seccomp < profile.json > program.bpf
 *
 * Theory of operation: `cloche run --seccomp FILE` and the daemon start this program to turn a user's profile into
 * the BPF program that the agent later installs. Parsing JSON and linking libseccomp stay out of everything that is
 * root or lives in a sandbox. One process, two descriptors, one pass: it gives up what it does not need before it
 * reads the first byte, then reads all, compiles, writes all. A profile it does not fully understand is an error: one
 * line on stderr, nothing on stdout, exit 1.
 */
#include "base/base.h"
#include "base/buf.h"
#include "seccomp/profile.h"

#include <linux/close_range.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static int confine(void)
{
	static const struct {
		__rlimit_resource_t what;
		rlim_t max;
	} limits[] = {
		{ RLIMIT_CORE, 0 },	  { RLIMIT_CPU, 10 },  { RLIMIT_NOFILE, 8 },
		{ RLIMIT_FSIZE, MIB },	  { RLIMIT_NPROC, 0 },
#ifndef __SANITIZE_ADDRESS__ /* AddressSanitizer reserves terabytes */
		{ RLIMIT_AS, 512 * MIB },
#endif
	};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return -errno;
	if (syscall(SYS_close_range, 3U, ~0U, 0U) < 0)
		return -errno;
	for (size_t i = 0; i < ARRAY_LEN(limits); i++) {
		struct rlimit l, want = { limits[i].max, limits[i].max };

		/* A lower limit that was inherited stays. */
		if (getrlimit(limits[i].what, &l) < 0)
			return -errno;
		if (l.rlim_max != RLIM_INFINITY && l.rlim_max < want.rlim_max)
			want.rlim_cur = want.rlim_max = l.rlim_max;
		if (setrlimit(limits[i].what, &want) < 0)
			return -errno;
	}
	return 0;
}

static int read_all(int fd, struct buf *b, struct err *e)
{
	for (;;) {
		size_t want = 64 * KIB;
		void *room;
		ssize_t n;

		/* Reads one byte more than allowed, so that profile_compile() sees that the profile is too long. */
		if (want > PROFILE_JSON_MAX + 1 - b->len)
			want = PROFILE_JSON_MAX + 1 - b->len;
		if (!want)
			return 0;
		room = buf_room(b, want);
		if (!room)
			return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory");
		n = read(fd, room, want);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_sys(e, ERR_INTERNAL, -errno, "read");
		if (n == 0)
			return 0;
		buf_added(b, (size_t)n);
	}
}

static int compile(struct err *e)
{
	AUTO(buf_done) struct buf in = BUF_INIT(PROFILE_JSON_MAX + 1);
	AUTO(buf_done) struct buf out = BUF_INIT(PROFILE_PROGRAM_MAX);
	int r;

	r = confine();
	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "cannot drop its privileges");
	r = read_all(STDIN_FILENO, &in, e);
	if (r < 0)
		return r;
	r = profile_compile(buf_str(&in), in.len, &out, e);
	if (r < 0)
		return r;
	r = fd_write_all(STDOUT_FILENO, out.data, out.len);
	return r < 0 ? err_sys(e, ERR_INTERNAL, r, "write") : 0;
}

int main(int argc, char **argv)
{
	struct err e = { 0 };

	(void)argv;
	if (argc != 1) {
		fprintf(stderr, "usage: cloche-seccomp < profile.json > program.bpf\n");
		return 1;
	}
	if (compile(&e) < 0) {
		fprintf(stderr, "cloche-seccomp: profile: %s\n", e.msg);
		return 1;
	}
	return 0;
}
