/* What cannot be carried is refused with a reason, and the attempt harms no process. */
#include "base/base.h"
#include "base/test.h"
#include "memory/dump_test.h"

#include <arpa/inet.h>
#include <linux/filter.h>
#include <linux/io_uring.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/ptrace.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <net/if.h>
#include <sys/ioctl.h>

static void wait_here(struct dt_shared *s)
{
	s->ready = 1;
	for (;;) {
		s->count++;
		dt_sleep_ms(1);
	}
}

static bool refused_as(const char *kind, void (*fn)(struct dt_shared *), const char *why)
{
	struct dt t;
	bool ok = dt_start(&t, fn) && dt_reaches(&t.shared->ready, 1);
	uint64_t count;

	ok = ok && dt_refuses(&t, why) && strstr(t.said, "process ") && strstr(t.said, kind);
	count = t.shared->count;
	ok = ok && dt_reaches(&t.shared->count, count + 3);
	dt_end(&t);
	return ok;
}

static bool refused(void (*fn)(struct dt_shared *), const char *why)
{
	return refused_as("refused unsupported ", fn, why);
}

static void loopback_up(void)
{
	struct ifreq r = { .ifr_flags = IFF_UP };
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	snprintf(r.ifr_name, sizeof(r.ifr_name), "lo");
	if (ioctl(fd, SIOCSIFFLAGS, &r) < 0)
		_exit(1);
	close(fd);
}

static void with_tcp(struct dt_shared *s)
{
	struct sockaddr_in in = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
				  .sin_port = htons(4712) };
	int a = socket(AF_INET, SOCK_STREAM, 0), b = socket(AF_INET, SOCK_STREAM, 0);

	loopback_up();
	if (bind(a, (struct sockaddr *)&in, sizeof(in)) < 0 || listen(a, 1) < 0 ||
	    connect(b, (struct sockaddr *)&in, sizeof(in)) < 0 || send(b, "x", 1, 0) != 1)
		_exit(1);
	wait_here(s);
}

static void with_credentials(struct dt_shared *s)
{
	int p[2], one = 1;

	if (socketpair(AF_UNIX, SOCK_DGRAM, 0, p) < 0 ||
	    setsockopt(p[1], SOL_SOCKET, SO_PASSCRED, &one, sizeof(one)) < 0 || send(p[0], "x", 1, 0) != 1)
		_exit(1);
	wait_here(s);
}

static void with_filter(struct dt_shared *s)
{
	struct sock_filter code[] = { { BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW } };
	struct sock_fprog prog = { 1, code };

	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) < 0)
		_exit(1);
	wait_here(s);
}

static void with_lock(struct dt_shared *s)
{
	int fd = open("/dev/null", O_RDWR);

	if (flock(fd, LOCK_EX) < 0)
		_exit(1);
	wait_here(s);
}

static void with_tracer(struct dt_shared *s)
{
	pid_t pid = fork();

	if (pid == 0)
		wait_here(s);
	if (ptrace(PTRACE_SEIZE, pid, 0, 0) < 0)
		_exit(1);
	for (;;)
		pause();
}

static void with_exit_signal(struct dt_shared *s)
{
	long pid = syscall(SYS_clone, 100UL, NULL, NULL, NULL, NULL);

	if (pid < 0)
		_exit(1);
	if (pid == 0)
		for (;;)
			pause();
	wait_here(s);
}

static void with_sysv(struct dt_shared *s)
{
	int id = shmget(IPC_PRIVATE, 3 * 4096, IPC_CREAT | 0600);
	char *at = id < 0 ? (char *)-1 : shmat(id, NULL, 0);

	if (at == (char *)-1 || munmap(at + 4096, 4096) < 0)
		_exit(1);
	shmctl(id, IPC_RMID, NULL);
	wait_here(s);
}

/* The queue has no name any more, but a process that has it open can use it. */
static void with_queue(struct dt_shared *s)
{
	if (syscall(SYS_mq_open, "of-refuse-test", O_RDWR | O_CREAT, 0600, NULL) < 0 ||
	    syscall(SYS_mq_unlink, "of-refuse-test") < 0)
		_exit(1);
	wait_here(s);
}

static void with_namespace(struct dt_shared *s)
{
	if (unshare(CLONE_NEWUTS) < 0)
		_exit(1);
	wait_here(s);
}

static void with_root(struct dt_shared *s)
{
	if (chroot("/usr") < 0)
		_exit(1);
	wait_here(s);
}

static void with_watch(struct dt_shared *s)
{
	int fd = inotify_init1(0);

	if (inotify_add_watch(fd, "/", IN_CREATE) < 0 || close(creat("/dump-test-watched", 0600)) < 0)
		_exit(1);
	unlink("/dump-test-watched");
	wait_here(s);
}

static void with_device(struct dt_shared *s)
{
	int fd = open("/dev/kmsg", O_RDONLY);

	if (fd < 0)
		_exit(1);
	wait_here(s);
}

static void with_locks(struct dt_shared *s)
{
	/* By its number: a build with sanitizers has a function of that name that does nothing. */
	if (syscall(SYS_mlockall, MCL_FUTURE) < 0 ||
	    mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
		_exit(1);
	wait_here(s);
}

static void with_ring(struct dt_shared *s)
{
	struct io_uring_params p = { 0 };

	if (syscall(SYS_io_uring_setup, 4, &p) < 0)
		_exit(1);
	wait_here(s);
}

TEST(a_tcp_connection_with_data_that_was_not_accepted)
{
	/* It may be accepted in a moment. */
	CHECK(refused_as("refused conflict ", with_tcp, "TCP connection that process"));
}

TEST(messages_with_credentials_on_their_way)
{
	CHECK(refused(with_credentials, "messages with credentials"));
}

TEST(all_memory_locked_that_will_be_mapped)
{
	CHECK(refused(with_locks, "MCL_FUTURE"));
}

TEST(a_filter_of_its_own)
{
	CHECK(refused(with_filter, "has its own system call filter"));
}

TEST(a_lock_of_a_file_that_others_have)
{
	CHECK(refused(with_lock, "holds a lock"));
}

TEST(a_process_that_is_traced)
{
	CHECK(refused(with_tracer, "is traced"));
}

TEST(a_process_that_ends_with_a_signal_that_is_none)
{
	CHECK(refused(with_exit_signal, "signal 100, which does not exist"));
}

TEST(a_part_of_system_v_shared_memory)
{
	CHECK(refused(with_sysv, "has attached only a part of System V shared memory"));
}

TEST(a_posix_message_queue)
{
	CHECK(refused(with_queue, "has a POSIX message queue open"));
}

TEST(a_namespace_of_its_own)
{
	CHECK(refused(with_namespace, "is in its own namespace (ns/uts)"));
}

TEST(another_root_folder)
{
	CHECK(refused(with_root, "another root folder"));
}

TEST(news_of_watched_files)
{
	CHECK(refused(with_watch, "has unread inotify events"));
}

TEST(a_device)
{
	CHECK(refused(with_device, "has a device open"));
}

TEST(an_io_uring)
{
	CHECK(refused(with_ring, "io_uring"));
}
