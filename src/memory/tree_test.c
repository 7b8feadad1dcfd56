/* Trees, sessions, threads, and everything a descriptor can be. */
#include "base/base.h"
#include "base/test.h"
#include "memory/dump_test.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <pthread.h>
#include <pty.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/un.h>

static const struct mem_proc *by_pid(const struct dt *t, uint64_t pid)
{
	for (uint32_t i = 0; i < t->image.n[MEM_S_PROC]; i++)
		if (t->image.proc[i].pid == pid)
			return &t->image.proc[i];
	return NULL;
}

static bool has_data(const struct dt *t, struct mem_span s, const void *want, size_t len)
{
	return s.len == len && !memcmp(t->image.bytes + s.off, want, len);
}

static void *waits(void *arg)
{
	struct dt_shared *s = arg;

	s->value[4] = (uint64_t)syscall(SYS_gettid);
	__atomic_add_fetch(&s->ready, 1, __ATOMIC_SEQ_CST);
	pause();
	return NULL;
}

/* A child in another group, a zombie, and a grandchild whose session's leader is gone. */
static void family(struct dt_shared *s)
{
	pthread_t thread;
	pid_t pid = fork();

	if (pid == 0) {
		setpgid(0, 0);
		s->value[0] = (uint64_t)getpid();
		__atomic_add_fetch(&s->ready, 1, __ATOMIC_SEQ_CST);
		for (;;)
			pause();
	}
	s->value[1] = (uint64_t)fork();
	if (s->value[1] == 0)
		_exit(7);
	pid = fork();
	if (pid == 0) {
		setsid();
		s->value[2] = (uint64_t)getpid();
		if (fork() == 0) {
			s->value[3] = (uint64_t)getpid();
			while (getppid() != 1)
				dt_sleep_ms(1);
			__atomic_add_fetch(&s->ready, 1, __ATOMIC_SEQ_CST);
			for (;;)
				pause();
		}
		_exit(0);
	}
	waitpid(pid, NULL, 0);
	pthread_create(&thread, NULL, waits, s);
	for (;;)
		pause();
}

TEST(a_family_with_groups_sessions_zombies_and_threads)
{
	const struct mem_proc *first, *child, *zombie, *orphan, *gone;
	struct dt t;

	CHECK(dt_start(&t, family));
	CHECK(dt_reaches(&t.shared->ready, 3));
	CHECK(dt_dump(&t));
	first = by_pid(&t, 2);
	child = by_pid(&t, t.shared->value[0]);
	orphan = by_pid(&t, t.shared->value[3]);
	gone = by_pid(&t, t.shared->value[2]);
	CHECK(first && child && orphan && gone);
	CHECK_EQ(first->parent, MEM_NONE);
	CHECK_EQ(first->thread.n, 2);
	CHECK_EQ(t.image.thread[first->thread.first].tid, 2);
	CHECK_EQ(t.image.thread[first->thread.first + 1].tid, t.shared->value[4]);
	CHECK(t.image.thread[first->thread.first + 1].tid_address != 0);
#ifdef __GLIBC__ /* another libc makes one when it is used */
	CHECK(t.image.thread[first->thread.first + 1].robust_list != 0);
#endif
	CHECK_EQ(&t.image.proc[child->parent] - first, 0);
	CHECK_EQ(child->pgid, child->pid);
	CHECK_EQ(child->sid, 2);
	CHECK_EQ(orphan->parent, MEM_NONE);
	CHECK_EQ(orphan->sid, gone->pid);
	CHECK_EQ(gone->state, MEM_PLACEHOLDER);
	zombie = NULL;
	for (uint32_t i = 0; i < t.image.n[MEM_S_PROC]; i++)
		if (t.image.proc[i].state == MEM_ZOMBIE)
			zombie = &t.image.proc[i];
	CHECK(zombie);
	CHECK_EQ(zombie->status, 7 << 8);
	CHECK_EQ(zombie->pgid, 2);
	dt_end(&t);
}

enum {
	F_PIPE = 10,
	F_UNIX = 12,
	F_SEQ = 14,
	F_EVENT = 16,
	F_EPOLL,
	F_TIMER,
	F_SIGNAL,
	F_INOTIFY,
	F_MASTER,
	F_SLAVE,
	F_FILE,
	F_UNLINKED,
	F_MEM,
	F_FIFO,
	F_LISTEN,
	F_UDP,
	F_ULISTEN,
	F_DUP,
	F_SOCKET,
	F_CLOSED,
	F_LAST
};

static void at(int fd, int place)
{
	if (fd < 0 || dup2(fd, place) < 0)
		_exit(1);
	close(fd);
}

static void pairs(void)
{
	int p[2];

	if (pipe(p) < 0 || write(p[1], "in the pipe", 11) != 11)
		_exit(1);
	at(p[0], F_PIPE);
	at(p[1], F_PIPE + 1);
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, p) < 0 || write(p[0], "one ", 4) != 4 || write(p[0], "two", 3) != 3)
		_exit(1);
	at(p[0], F_UNIX);
	at(p[1], F_UNIX + 1);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, p) < 0 || write(p[1], "packet", 6) != 6)
		_exit(1);
	at(p[0], F_SEQ);
	at(p[1], F_SEQ + 1);
	if (openpty(&p[0], &p[1], NULL, NULL, &(struct winsize){ .ws_row = 33, .ws_col = 44 }) < 0)
		_exit(1);
	at(p[0], F_MASTER);
	at(p[1], F_SLAVE);
}

static void files(struct dt_shared *s)
{
	char *shared;
	int fd;

	fd = open("/dump-test-file", O_RDWR | O_CREAT | O_TRUNC, 0600);
	if (write(fd, "0123456789", 10) != 10 || lseek(fd, 4, SEEK_SET) != 4)
		_exit(1);
	at(fd, F_FILE);
	fd = open("/dump-test-gone", O_RDWR | O_CREAT | O_TRUNC, 0640);
	unlink("/dump-test-gone");
	if (pwrite(fd, "unlinked", 8, 3 * 4096) != 8)
		_exit(1);
	at(fd, F_UNLINKED);
	fd = sys_memfd_create("some name", 0);
	if (pwrite(fd, "memory", 6, 5000) != 6)
		_exit(1);
	shared = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	s->value[0] = (uintptr_t)shared;
	at(fd, F_MEM);
	if (fork() == 0) {
		shared[1] = 'x';
		for (;;)
			pause();
	}
	mkfifo("/dump-test-fifo", 0600);
	at(open("/dump-test-fifo", O_RDWR), F_FIFO);
}

static void loopback_up(void)
{
	struct ifreq r = { .ifr_name = "lo", .ifr_flags = IFF_UP };
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	if (ioctl(fd, SIOCSIFFLAGS, &r) < 0)
		_exit(1);
	close(fd);
}

static void sockets(void)
{
	struct sockaddr_in in = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_ANY),
				  .sin_port = htons(4711) };
	struct sockaddr_un un = { .sun_family = AF_UNIX, .sun_path = "/dump-test-socket" };
	int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, (struct sockaddr *)&in, sizeof(in)) < 0 || listen(fd, 7) < 0)
		_exit(1);
	at(fd, F_LISTEN);
	fd = socket(AF_INET, SOCK_DGRAM, 0);
	if (bind(fd, (struct sockaddr *)&in, sizeof(in)) < 0)
		_exit(1);
	at(fd, F_UDP);
	unlink(un.sun_path);
	fd = socket(AF_UNIX, SOCK_STREAM, 0);
	if (bind(fd, (struct sockaddr *)&un, sizeof(un)) < 0 || listen(fd, 3) < 0)
		_exit(1);
	at(fd, F_ULISTEN);
	at(socket(AF_INET6, SOCK_STREAM, 0), F_SOCKET);
	/* One whose other end was closed. */
	loopback_up();
	in.sin_port = htons(4714);
	in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	fd = socket(AF_INET, SOCK_STREAM, 0);
	at(socket(AF_INET, SOCK_STREAM, 0), F_CLOSED);
	if (bind(fd, (struct sockaddr *)&in, sizeof(in)) < 0 || listen(fd, 1) < 0 ||
	    connect(F_CLOSED, (struct sockaddr *)&in, sizeof(in)) < 0 || close(accept(fd, NULL, NULL)) < 0)
		_exit(1);
	close(fd);
}

static void many(struct dt_shared *s)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.u64 = 0x1234567890 };
	struct itimerspec it = { { 5, 6 }, { 1000, 0 } };
	struct itimerval iv = { { 0, 0 }, { 500, 0 } };
	sigset_t set;
	timer_t timer;
	int fd;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, NULL);
	raise(SIGUSR1);
	pairs();
	at(eventfd(42, EFD_SEMAPHORE), F_EVENT);
	at(epoll_create1(EPOLL_CLOEXEC), F_EPOLL);
	if (epoll_ctl(F_EPOLL, EPOLL_CTL_ADD, F_EVENT, &ev) < 0)
		_exit(1);
	fd = timerfd_create(CLOCK_MONOTONIC, 0);
	timerfd_settime(fd, 0, &it, NULL);
	at(fd, F_TIMER);
	at(signalfd(-1, &set, 0), F_SIGNAL);
	at(inotify_init1(0), F_INOTIFY);
	files(s);
	sockets();
	dup2(F_FILE, F_DUP);
	setitimer(ITIMER_REAL, &iv, NULL);
	timer_create(CLOCK_REALTIME, &(struct sigevent){ .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR2 },
		     &timer);
	timer_settime(timer, 0, &it, NULL);
	signal(SIGPIPE, SIG_IGN);
	s->ready = 1;
	for (;;)
		pause();
}

static bool ends_with(const struct dt *t, struct mem_span s, const char *text, size_t len)
{
	return s.len >= len && !memcmp(t->image.bytes + s.off + s.len - len, text, len);
}

static void check_pairs(const struct dt *t, const struct mem_proc *p)
{
	const struct mem_object *o = dt_object(t, p, F_PIPE), *other = dt_object(t, p, F_PIPE + 1);
	struct mem_pty pty;

	CHECK_EQ(o->kind, MEM_OBJ_PIPE);
	CHECK_EQ(o->pair, other->pair);
	CHECK(has_data(t, o->data, "in the pipe", 11));
	o = dt_object(t, p, F_UNIX + 1);
	CHECK_EQ(o->kind, MEM_OBJ_SOCKET);
	CHECK_EQ(o->pair, dt_object(t, p, F_UNIX)->pair);
	CHECK(ends_with(t, o->data, "one two", 7));
	CHECK(ends_with(t, dt_object(t, p, F_SEQ)->data, "packet", 6));
	o = dt_object(t, p, F_MASTER);
	CHECK_EQ(o->kind, MEM_OBJ_PTMX);
	memcpy(&pty, t->image.bytes + o->data.off, sizeof(pty));
	CHECK_EQ(pty.rows, 33);
	CHECK_EQ(pty.cols, 44);
	CHECK_EQ(dt_object(t, p, F_SLAVE)->kind, MEM_OBJ_PTS);
	CHECK_EQ(dt_object(t, p, F_SLAVE)->a, o->a);
}

static void check_kernel_objects(const struct dt *t, const struct mem_proc *p)
{
	const struct mem_object *o = dt_object(t, p, F_EVENT);
	uint64_t timer[5];

	CHECK_EQ(o->kind, MEM_OBJ_EVENTFD);
	CHECK_EQ(o->a, 42);
	CHECK_EQ(o->b, 1);
	o = dt_object(t, p, F_EPOLL);
	CHECK_EQ(o->kind, MEM_OBJ_EPOLL);
	CHECK_EQ(o->watch.n, 1);
	CHECK_EQ(t->image.watch[o->watch.first].fd_num, F_EVENT);
	CHECK_EQ(t->image.watch[o->watch.first].data, 0x1234567890);
	CHECK_EQ(t->image.watch[o->watch.first].object, dt_fd(t, p, F_EVENT)->object);
	o = dt_object(t, p, F_TIMER);
	CHECK_EQ(o->kind, MEM_OBJ_TIMERFD);
	CHECK_EQ(o->data.len, sizeof(timer));
	memcpy(timer, t->image.bytes + o->data.off, sizeof(timer));
	CHECK_EQ(timer[0], 5);
	CHECK_EQ(timer[1], 6);
	CHECK(timer[2] > 900 && timer[2] < 1000);
	CHECK_EQ(dt_object(t, p, F_SIGNAL)->kind, MEM_OBJ_SIGNALFD);
	CHECK_EQ(dt_object(t, p, F_SIGNAL)->a, 1ULL << (SIGUSR1 - 1));
	CHECK_EQ(dt_object(t, p, F_INOTIFY)->kind, MEM_OBJ_INOTIFY);
	CHECK(p->itimer[0][2] > 400);
	CHECK_EQ(p->timer.n, 1);
	CHECK_EQ(t->image.timer[p->timer.first].signo, SIGUSR2);
	CHECK(t->image.timer[p->timer.first].value_s > 900);
	CHECK_EQ(t->image.action[p->action.first + SIGPIPE - 1].handler, 1);
	CHECK_EQ(t->image.thread[p->thread.first].sigmask & 1ULL << (SIGUSR1 - 1), 1ULL << (SIGUSR1 - 1));
	CHECK_EQ(t->image.thread[p->thread.first].pending.len + p->pending.len, 128);
}

static bool content(const struct dt *t, struct mem_range range, uint64_t at_offset, const char *want)
{
	char text[64];

	for (uint32_t i = 0; i < range.n; i++) {
		const struct mem_run *r = &t->image.run[range.first + i];
		AUTO_CLOSE int pages = openat(t->out, "pages", O_RDONLY);

		if (at_offset < r->start || at_offset >= r->start + r->len)
			continue;
		return pread(pages, text, strlen(want), (off_t)(r->off + at_offset - r->start)) ==
			       (ssize_t)strlen(want) &&
		       !memcmp(text, want, strlen(want));
	}
	return false;
}

static void check_files(const struct dt *t, const struct mem_proc *p, uint64_t shared)
{
	const struct mem_object *o = dt_object(t, p, F_FILE);
	const struct mem_file *f = &t->image.file[o->file];
	const struct mem_node *gone;

	CHECK_EQ(o->kind, MEM_OBJ_FILE);
	CHECK_EQ(o->pos, 4);
	CHECK(has_data(t, f->path, "/dump-test-file", 15));
	CHECK_EQ(dt_fd(t, p, F_DUP)->object, dt_fd(t, p, F_FILE)->object);
	o = dt_object(t, p, F_UNLINKED);
	CHECK_EQ(o->kind, MEM_OBJ_FILE);
	f = &t->image.file[o->file];
	CHECK(has_data(t, f->path, "/dump-test-gone", 15) && f->node < t->image.n[MEM_S_NODE]);
	gone = &t->image.node[f->node];
	CHECK_EQ(gone->size, 3 * 4096 + 8);
	CHECK_EQ(gone->mode, 0100640);
	CHECK_EQ(gone->flags, MEM_NODE_REMOVED);
	CHECK_EQ(gone->run.n, 1);
	CHECK(content(t, gone->run, 3 * 4096, "unlinked"));
	o = dt_object(t, p, F_MEM);
	CHECK_EQ(o->kind, MEM_OBJ_SHMEM);
	CHECK(has_data(t, o->data, "some name", 9));
	CHECK(content(t, o->run, 5000, "memory"));
	CHECK_EQ(dt_object(t, p, F_FIFO)->kind, MEM_OBJ_FIFO);
	for (uint32_t i = 0; i < p->vma.n; i++)
		if (t->image.vma[p->vma.first + i].start == shared) {
			CHECK_EQ(t->image.vma[p->vma.first + i].kind, MEM_VMA_SHMEM);
			CHECK_EQ(t->image.vma[p->vma.first + i].object, dt_fd(t, p, F_MEM)->object);
			return;
		}
	TEST_FAIL("the shared mapping is not there");
}

static void check_sockets(const struct dt *t, const struct mem_proc *p)
{
	struct mem_socket k;
	const struct mem_object *o = dt_object(t, p, F_LISTEN);

	CHECK_EQ(o->kind, MEM_OBJ_SOCKET);
	memcpy(&k, t->image.bytes + o->data.off, sizeof(k));
	CHECK_EQ(k.state, MEM_SOCK_LISTEN);
	CHECK_EQ(k.backlog, 7);
	CHECK_EQ(k.family, AF_INET);
	memcpy(&k, t->image.bytes + dt_object(t, p, F_UDP)->data.off, sizeof(k));
	CHECK_EQ(k.state, MEM_SOCK_BOUND);
	CHECK_EQ(k.type, SOCK_DGRAM);
	memcpy(&k, t->image.bytes + dt_object(t, p, F_ULISTEN)->data.off, sizeof(k));
	CHECK_EQ(k.state, MEM_SOCK_LISTEN);
	CHECK_EQ(k.family, AF_UNIX);
	memcpy(&k, t->image.bytes + dt_object(t, p, F_SOCKET)->data.off, sizeof(k));
	CHECK_EQ(k.state, MEM_SOCK_UNBOUND);
	memcpy(&k, t->image.bytes + dt_object(t, p, F_CLOSED)->data.off, sizeof(k));
	CHECK_EQ(k.state, MEM_SOCK_PAIR);
	CHECK_EQ(k.peer_len, sizeof(struct sockaddr_in));
}

TEST(every_kind_of_descriptor)
{
	const struct mem_proc *p;
	struct dt t;

	dt_alone();
	CHECK(dt_start(&t, many));
	CHECK(dt_reaches(&t.shared->ready, 1));
	CHECK(dt_dump(&t));
	CHECK_EQ(t.image.n[MEM_S_PROC], 2);
	p = by_pid(&t, 2);
	CHECK(p);
	for (uint32_t i = F_PIPE; i < F_LAST; i++)
		CHECK(dt_object(&t, p, i));
	check_pairs(&t, p);
	check_kernel_objects(&t, p);
	check_files(&t, p, t.shared->value[0]);
	check_sockets(&t, p);
	/* Both have the same open files. */
	for (uint32_t i = F_PIPE; i < F_FIFO; i++)
		CHECK_EQ(dt_fd(&t, &t.image.proc[1], i)->object, dt_fd(&t, p, i)->object);
	dt_end(&t);
	unlink("/dump-test-file");
	unlink("/dump-test-fifo");
	unlink("/dump-test-socket");
}

static void stops(struct dt_shared *s)
{
	pid_t pid = fork();

	if (pid == 0)
		for (;;) {
			s->count++;
			dt_sleep_ms(1);
		}
	kill(pid, SIGSTOP);
	waitpid(pid, NULL, WUNTRACED);
	s->ready = 1;
	while (!s->stop)
		dt_sleep_ms(1);
	kill(pid, SIGCONT);
	for (;;)
		pause();
}

TEST(a_stopped_process_stays_stopped_and_can_go_on)
{
	uint64_t count;
	struct dt t;

	CHECK(dt_start(&t, stops));
	CHECK(dt_reaches(&t.shared->ready, 1));
	count = t.shared->count;
	CHECK(dt_dump(&t));
	CHECK_EQ(t.image.n[MEM_S_PROC], 2);
	CHECK(!(t.image.proc[0].flags & MEM_PROC_STOPPED));
	CHECK(t.image.proc[1].flags & MEM_PROC_STOPPED);
	dt_sleep_ms(30);
	CHECK_EQ(t.shared->count, count);
	t.shared->stop = 1;
	CHECK(dt_reaches(&t.shared->count, count + 5));
	dt_end(&t);
}

/* Children that come and go all the time. */
static void spawns(struct dt_shared *s)
{
	for (;;) {
		pid_t pid = fork();

		if (pid == 0)
			_exit(0);
		waitpid(pid, NULL, 0);
		s->count++;
		s->ready = 1;
	}
}

TEST(children_that_come_and_go_are_there_or_not)
{
	struct dt t;

	CHECK(dt_start(&t, spawns));
	CHECK(dt_reaches(&t.shared->ready, 1));
	for (int i = 0; i < 20; i++) {
		uint64_t count = t.shared->count;

		CHECK(dt_dump(&t));
		CHECK(t.image.n[MEM_S_PROC] <= 2);
		CHECK(dt_reaches(&t.shared->count, count + 3));
	}
	dt_end(&t);
}

/* Programs that are started by vfork: the parent cannot be stopped until they are. */
static void vforks(struct dt_shared *s)
{
	for (;;) {
		pid_t pid = vfork();

		if (pid == 0) {
			for (volatile int i = 0; i < 200000; i++)
				;
			execl("/bin/true", "true", NULL);
			_exit(1);
		}
		waitpid(pid, NULL, 0);
		s->count++;
		s->ready = 1;
	}
}

TEST(a_parent_that_waits_for_its_vfork_is_helped)
{
	struct dt t;

	CHECK(dt_start(&t, vforks));
	CHECK(dt_reaches(&t.shared->ready, 1));
	for (int i = 0; i < 20; i++) {
		uint64_t count = t.shared->count;

		CHECK(dt_dump(&t));
		CHECK(dt_reaches(&t.shared->count, count + 3));
	}
	dt_end(&t);
}
