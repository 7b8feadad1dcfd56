/*
 * Parts that need no machine: which template a sandbox is a clone of, copies with holes, memory that is kept for a
 * while.
 */
#include "engine/sandbox/internal.h"
#include "base/base.h"
#include "base/sys.h"
#include "base/test.h"
#include "layers/sparse_copy.h"
#include "layers/tree.h"
#include "vm/host/host.h"
#include "vm/host/tier.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const struct tier_ops *const vm_only[] = { &vm_tier, NULL };

static const uint8_t programs[SHA256_SIZE] = "programs", root[SHA256_SIZE] = "root", usr[SHA256_SIZE];

static struct sandbox_spec good(void)
{
	struct sandbox_spec s = {
		.tenant = 7, .image = "/images/x", .workdir = "/home/user", .flags = vm_tier.flag | SPEC_NET
	};

	s.limits.memory = 256 * MIB;
	s.limits.cpu_milli = 1000;
	s.net.mode = STEER_OPEN;
	return s;
}

/* Whether it is a clone of the same template as good(). */
static bool same(const struct sandbox_spec *s)
{
	const struct sandbox_spec g = good();
	uint8_t a[SHA256_SIZE], b[SHA256_SIZE];

	return vm_key(&g, VM_TCG, programs, root, usr, a) == 0 && vm_key(s, VM_TCG, programs, root, usr, b) == 0 &&
	       !memcmp(a, b, sizeof(a));
}

TEST(what_is_one_sandboxs_own_makes_no_other_template)
{
	struct sandbox_spec s = good();

	CHECK(same(&s));
	snprintf(s.hostname, sizeof(s.hostname), "box");
	s.limits.io_bps = 1 << 20;
	s.limits.cpu_milli = 700; /* still one processor */
	s.net.mode = STEER_OBSERVE; /* which a guest cannot distinguish from open */
	s.flags |= SPEC_MEMORY;
	memset(s.image + strlen(s.image) + 1, 'x', 20); /* bytes after the end of a text */
	CHECK(same(&s));
}

TEST(whatever_a_guest_could_tell_apart_is_another_template)
{
	const struct sandbox_spec g = good();
	uint8_t a[SHA256_SIZE], b[SHA256_SIZE];
	struct sandbox_spec s;

#define OTHER(change)                                                                                                  \
	do {                                                                                                           \
		s = good();                                                                                            \
		change;                                                                                                \
		CHECK(!same(&s));                                                                                      \
	} while (0)
	OTHER(s.tenant++);
	OTHER(s.limits.memory += MIB);
	OTHER(s.limits.cpu_milli = 1001);
	OTHER(s.limits.disk = 64 * MIB);
	OTHER(s.limits.inodes = 1000);
	OTHER(s.limits.pids = 50);
	OTHER(s.uid = 1000);
	OTHER(s.workdir[1] = 'x');
	OTHER(s.flags |= SPEC_READ_ONLY);
	OTHER(s.flags &= ~SPEC_NET; memset(&s.net, 0, sizeof(s.net)));
	OTHER(s.net.mode = STEER_ALLOW);
	CHECK_EQ(vm_key(&g, VM_TCG, programs, root, usr, a), 0);
	CHECK_EQ(vm_key(&g, VM_TCG, programs, root, root, b), 0);
	CHECK(memcmp(a, b, sizeof(a)));
	CHECK_EQ(vm_key(&g, VM_KVM, programs, root, usr, b), 0);
	CHECK(memcmp(a, b, sizeof(a)));
	CHECK_EQ(vm_key(&g, VM_TCG, root, root, usr, b), 0);
	CHECK(memcmp(a, b, sizeof(a)));
}

static int file(void)
{
	return sys_openat(AT_FDCWD, "/var/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
}

TEST(a_copy_is_the_same_and_has_no_zeros_on_the_disk)
{
	AUTO_CLOSE int from = file(), to = file();
	static char a[12289], b[sizeof(a)];
	const off_t places[] = { 0, 4096, 1 << 20, (3 << 20) + 5, (9 << 20) - 1 };
	int stop = 0;
	struct stat st;

	CHECK_EQ(ftruncate(from, 10 << 20), 0);
	memset(a + 4096, 'y', 4096); /* zeros before and after it */
	for (size_t i = 0; i < ARRAY_LEN(places); i++)
		CHECK_EQ(pwrite(from, a, sizeof(a), places[i]), sizeof(a));
	CHECK_EQ(vm_copy(from, to, &stop), 0);
	CHECK_EQ(fstat(to, &st), 0);
	CHECK_EQ(st.st_size, 10 << 20);
	CHECK(st.st_blocks * 512 < 256 * 1024);
	for (off_t at = 0; at < 10 << 20; at += (off_t)sizeof(a)) {
		ssize_t n = pread(from, a, sizeof(a), at);

		CHECK_EQ(pread(to, b, sizeof(b), at), n);
		CHECK(!memcmp(a, b, (size_t)n));
	}
	stop = 1;
	CHECK_EQ(vm_copy(from, to, &stop), -ECANCELED);
}

TEST(of_memory_that_was_put_together_the_oldest_goes)
{
	char id[ID_SIZE] = "0";
	struct vms v = { 0 };

	for (unsigned i = 0; i < VM_FLATS; i++)
		v.flat[i].ram = -1;
	CHECK_EQ(vm_flat_find(&v, id), -1);
	for (int c = 'a'; c < 'a' + (int)VM_FLATS; c++) {
		id[0] = (char)c;
		vm_flat_put(&v, id, sys_memfd_create("x", MFD_CLOEXEC));
	}
	id[0] = 'a';
	CHECK(vm_flat_find(&v, id) >= 0); /* a lookup counts as a use: 'b' is the oldest now */
	id[0] = 'z';
	vm_flat_put(&v, id, sys_memfd_create("x", MFD_CLOEXEC));
	id[0] = 'b';
	CHECK_EQ(vm_flat_find(&v, id), -1);
	id[0] = 'a';
	CHECK(vm_flat_find(&v, id) >= 0);
	vm_flats_idle(&v, UINT64_MAX);
	CHECK_EQ(vm_flat_find(&v, id), -1);
}

TEST(what_goes_to_a_guest_is_nothing_of_its_host)
{
	struct sandbox_spec s = good(), g;

	s.flags |= SPEC_MEMORY;
	s.layers = 1;
	memcpy(s.layer[0], "abc", 4);
	s.net.n = 1;
	s.net.rule[0].first = 1;
	vm_guest_spec(&s, &g);
	CHECK_EQ(g.flags, SPEC_NET);
	CHECK_EQ(g.layers, 0);
	CHECK_EQ(g.layer[0][0], 0);
	CHECK_EQ(g.tenant, 0);
	CHECK_EQ(g.net.mode, STEER_OPEN);
	CHECK_EQ(g.net.n, 0);
}

/* A warden with only a folder for machines. */
static int store(struct warden *w, struct vms *v)
{
	static char path[] = "/var/tmp/cloche-vm-XXXXXX";

	memcpy(path + sizeof(path) - 7, "XXXXXX", 6);
	*v = (struct vms){ .epoll = -1, .timer = -1 };
	v->dir = mkdtemp(path) ? sys_openat(AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0) : -1;
	snprintf(v->path, sizeof(v->path), "%s", path);
	*w = (struct warden){ .vms = v, .env.persist = true };
	return v->dir < 0 ? -1 : 0;
}

static void store_end(struct vms *v)
{
	vm_templates_end(v);
	fd_close(v->dir);
	CHECK_EQ(tree_remove(AT_FDCWD, v->path), 0);
}

static void put_file(int dir, const char *name, const char *text)
{
	AUTO_CLOSE int fd = sys_openat(dir, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	CHECK_EQ(fd_write_all(fd, text, strlen(text)), 0);
}

static void put_folder(int dir, const char *name, time_t used)
{
	const struct timespec times[2] = { { .tv_sec = used }, { .tv_sec = used } };

	CHECK_EQ(sys_mkdirat(dir, name, 0700), 0);
	CHECK_EQ(utimensat(dir, name, times, 0), 0);
}

static bool there(const struct vms *v, const char *name)
{
	return faccessat(v->dir, name, F_OK, 0) == 0;
}

TEST(a_sweep_leaves_disks_of_machines_that_nobody_knows_yet)
{
	struct warden_sandbox s = { .handle = 0xab };
	struct machine m = { .sandbox = &s };
	struct warden w;
	struct vms v;

	CHECK_EQ(store(&w, &v), 0);
	v.machines = &m;
	put_file(v.dir, "d-00000000000000ab.0", "x");
	put_file(v.dir, "d-00000000000000ac.0", "x");
	vm_store_sweep(&w);
	CHECK(there(&v, "d-00000000000000ab.0"));
	CHECK(!there(&v, "d-00000000000000ac.0"));
	store_end(&v);
}

TEST(of_templates_beyond_so_many_the_least_used_go)
{
	const time_t now = time(NULL);
	struct vm_template t = { .name = "t-05" };
	struct warden w;
	struct vms v;
	char name[16];

	CHECK_EQ(store(&w, &v), 0);
	v.templates = &t; /* a template in use */
	for (int i = 0; i < 20; i++) {
		snprintf(name, sizeof(name), "t-%02d", (i * 7) % 20);
		put_folder(v.dir, name, now - 1000 + (i * 7) % 20 * 10); /* t-00 is the oldest */
	}
	put_folder(v.dir, "t-05.1.part", now);
	vm_store_sweep(&w);
	for (int i = 0; i < 20; i++) {
		snprintf(name, sizeof(name), "t-%02d", i);
		CHECK_EQ(there(&v, name), i >= 4);
	}
	CHECK(!there(&v, "t-05.1.part"));
	CHECK_EQ(utimensat(v.dir, "t-05", (struct timespec[2]){ { .tv_sec = 1 }, { .tv_sec = 1 } }, 0), 0);
	CHECK_EQ(utimensat(v.dir, "t-06", (struct timespec[2]){ { .tv_sec = 1 }, { .tv_sec = 1 } }, 0), 0);
	vm_store_sweep(&w);
	CHECK(there(&v, "t-05"));
	CHECK(!there(&v, "t-06"));
	v.templates = NULL;
	store_end(&v);
}

TEST(a_template_that_fails_stays_what_its_machines_are_sealed_with)
{
	const uint8_t key[SHA256_SIZE] = "key";
	const struct err e = { 0 };
	struct vm_template *a, *b;
	struct warden w;
	struct vms v;

	CHECK_EQ(store(&w, &v), 0);
	a = vm_template_hold(&w, 7, key, NULL);
	vm_template_fail(&w, a, -EIO, &e);
	b = vm_template_hold(&w, 7, key, NULL);
	CHECK(a && b && a != b);
	CHECK(!memcmp(a->key, key, sizeof(key)));
	vm_template_drop(b);
	vm_templates_idle(&v, 0);
	CHECK(v.templates == a && !a->next);
	vm_template_drop(a);
	vm_templates_idle(&v, 0);
	CHECK(!v.templates);
	store_end(&v);
}

TEST(kvm_that_a_machine_came_up_with_is_not_given_up_for_one_that_did_not)
{
	struct vm_template t = { .instead = true };
	const struct machine m = { .accel = VM_KVM };
	char folder[] = "/var/tmp/vm-accel-XXXXXX";
	struct warden w;
	struct vms v;

	CHECK_EQ(store(&w, &v), 0);
	CHECK(mkdtemp(folder) && setenv("CLOCHE_CACHE", folder, 1) == 0);
	v.accel = VM_KVM;
	v.kvm_ran |= m.accel == VM_KVM;
	vm_accel_blame(&w, &t);
	CHECK_EQ(v.accel, VM_KVM);
	v.kvm_ran = false;
	vm_accel_blame(&w, &t);
	CHECK_EQ(v.accel, VM_TCG);
	CHECK_EQ(tree_remove(AT_FDCWD, folder), 0);
	unsetenv("CLOCHE_CACHE");
	store_end(&v);
}

static void *do_work(void *arg)
{
	struct vm_work *x = arg;

	x->work.run(&x->work);
	return NULL;
}

/* Two `cloche run` of one kind at the same time. */
TEST(who_wants_a_template_that_somebody_makes_waits_and_takes_that)
{
	const struct timespec nap = { .tv_nsec = 1000000 };
	struct vm_work *x = vm_work_new(VM_NEW, NULL);
	AUTO_CLOSE int theirs = -1;
	struct vms v;
	struct warden w;
	pthread_t thread;

	CHECK_EQ(store(&w, &v), 0);
	put_folder(v.dir, "t-1.part", 1);
	theirs = sys_openat(v.dir, "t-1.part", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	CHECK_EQ(flock(theirs, LOCK_EX | LOCK_NB), 0);
	x->fd[VM_FILE_DIR] = v.dir;
	x->given.template_wanted = true;
	snprintf(x->given.name, sizeof(x->given.name), "t-1");
	snprintf(x->given.part, sizeof(x->given.part), "t-1.part");
	CHECK_EQ(pthread_create(&thread, NULL, do_work, x), 0);
	while (__atomic_load_n(&x->pace.step, __ATOMIC_RELAXED) != VM_STEP_OTHER)
		nanosleep(&nap, NULL);
	put_file(theirs, "meta", "theirs");
	put_file(theirs, "ram", "theirs");
	put_file(theirs, "disk", "theirs");
	put_file(theirs, "root.erofs", "theirs");
	CHECK_EQ(renameat(v.dir, "t-1.part", v.dir, "t-1"), 0);
	fd_close(TAKE_FD(theirs));
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK_EQ(x->made.result, 0);
	CHECK(x->made.found && x->fd[VM_FILE_META] >= 0 && x->fd[VM_FILE_RAM] >= 0 && x->fd[VM_FILE_DISK] >= 0);
	CHECK(!there(&v, "t-1.part"));
	x->work.end(&x->work);
	CHECK(there(&v, "t-1"));
	store_end(&v);
}

/* Without the lock: of two templates that were made at the same time one is kept. */
TEST(who_comes_second_with_a_template_takes_all_of_the_first)
{
	struct vm_work *x = vm_work_new(VM_STORE, NULL);
	AUTO_CLOSE int theirs = -1;
	char text[8] = "";
	struct warden w;
	struct vms v;

	CHECK_EQ(store(&w, &v), 0);
	put_folder(v.dir, "t-1", 1);
	theirs = sys_openat(v.dir, "t-1", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	put_file(theirs, "meta", "theirs");
	put_file(theirs, "ram", "theirs");
	put_file(theirs, "disk", "theirs");
	put_file(theirs, "root.erofs", "theirs");
	x->fd[VM_FILE_DIR] = v.dir;
	snprintf(x->given.name, sizeof(x->given.name), "t-1");
	snprintf(x->given.part, sizeof(x->given.part), "t-1.1.part");
	put_folder(v.dir, x->given.part, 1);
	x->fd[VM_FILE_FOLDER] = sys_openat(v.dir, x->given.part, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	x->fd[VM_FILE_DISK] = sys_openat(x->fd[VM_FILE_FOLDER], "disk", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	x->fd[VM_FILE_ROOT] = file();
	x->fd[VM_FILE_META] = sys_memfd_create("meta", MFD_CLOEXEC);
	x->fd[VM_FILE_RAM] = sys_memfd_create("ram", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	CHECK_EQ(fd_write_all(x->fd[VM_FILE_META], "ours", 4), 0);
	CHECK_EQ(fd_write_all(x->fd[VM_FILE_RAM], "ours", 4), 0);
	x->work.run(&x->work);
	CHECK_EQ(x->made.result, 0);
	CHECK_EQ(pread(x->fd[VM_FILE_RAM], text, sizeof(text) - 1, 0), 6);
	CHECK_STR(text, "theirs");
	CHECK_EQ(pread(x->fd[VM_FILE_META], text, sizeof(text) - 1, 0), 6);
	CHECK(!there(&v, x->given.part));
	vm_work_free(x);
	store_end(&v);
}

/* A warden that knows one machine only. */
struct lone {
	struct warden w;
	struct vms v;
	struct warden_sandbox s;
	struct machine *m;
	int side; /* cloche-vmm's end */
};

static void lone_open(struct lone *x)
{
	const struct sandbox_spec spec = good();
	struct epoll_event in = { .events = EPOLLIN };
	int pair[2];

	*x = (struct lone){ .v = { .dir = -1 } };
	x->w.vms = &x->v;
	x->w.tiers = vm_only;
	for (unsigned i = 0; i < VM_FLATS; i++)
		x->v.flat[i].ram = -1;
	x->v.epoll = epoll_create1(EPOLL_CLOEXEC);
	x->v.timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	CHECK_EQ(epoll_ctl(x->v.epoll, EPOLL_CTL_ADD, x->v.timer, &in), 0);
	CHECK_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	blank_init(&x->s.blank);
	x->s.handle = 0x1234;
	x->s.tier = &vm_tier;
	x->m = x->s.vm = vm_machine_new(&spec);
	CHECK(x->m != NULL);
	x->m->sandbox = &x->s;
	x->m->side = pair[0];
	x->side = pair[1];
	x->v.machines = x->m;
	in.data.ptr = x->m;
	CHECK_EQ(epoll_ctl(x->v.epoll, EPOLL_CTL_ADD, x->m->side, &in), 0);
}

static void lone_close(struct lone *x)
{
	fd_close(x->side);
	fd_close(x->v.epoll);
	fd_close(x->v.timer);
	fd_close(x->v.dir);
	vm_machine_free(x->m);
}

TEST(a_machine_that_never_stops_talking_ends_and_holds_up_nobody)
{
	static struct lone x;
	struct warden_done done;
	int status = 0;
	pid_t pid;

	lone_open(&x);
	x.m->stage = VM_RUNS;
	pid = fork();
	if (pid == 0) {
		const struct vm_msg m = { .version = VM_SIDE_VERSION, .type = VM_SAVED };

		for (;;)
			send(x.side, &m, sizeof(m), MSG_NOSIGNAL);
	}
	CHECK(pid > 0);
	x.s.blank.pidfd = sys_pidfd_open(pid, 0);
	alarm(60); /* a machine may send already when it is first read, and then without end */
	while (!x.m->dead) {
		struct pollfd p = { .fd = x.v.epoll, .events = POLLIN };

		poll(&p, 1, 1000);
		CHECK(!vm_done(&x.w, &done));
	}
	alarm(0);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	fd_close(x.s.blank.pidfd);
	lone_close(&x);
}

TEST(who_ends_in_the_middle_of_a_seal_leaves_no_disk)
{
	static struct lone x;
	char path[] = "/var/tmp/vm-test-XXXXXX";

	lone_open(&x);
	CHECK(mkdtemp(path) != NULL);
	x.v.dir = sys_openat(AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	x.w.env.persist = true;
	x.m->stage = VM_RUNS;
	fd_close(sys_openat(x.v.dir, "d-0000000000001234.0", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	fd_close(sys_openat(x.v.dir, "d-0000000000001234.1", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	x.m->prev = &x.v.machines;
	x.m->nown = 1;
	x.m->next_disk = 1;
	x.m->saving = x.m->ends = true;
	vm_leave(&x.w, &x.s);
	x.m = NULL;
	CHECK_EQ(unlinkat(AT_FDCWD, path, AT_REMOVEDIR), 0);
	lone_close(&x);
}

TEST(a_tenant_that_varies_its_machines_has_few_templates_at_a_time)
{
	struct vm_template *t[8], other = { .tenant = 8, .state = VM_T_READY, .fd = { -1, -1, -1, -1, -1 } };
	uint8_t key[SHA256_SIZE] = "key";
	static struct lone x;
	struct vm_work busy = { 0 };
	struct err e = { 0 };
	unsigned n = 0;

	lone_open(&x);
	/* The limit counts templates in the making; those of another tenant do not count. */
	for (unsigned i = 0; i < 8; i++) {
		key[5] = (uint8_t)i;
		t[i] = vm_template_hold(&x.w, 7, key, &e);
		CHECK(t[i] != NULL);
		t[i]->work = &busy;
	}
	key[5] = 100;
	CHECK(!vm_template_get(&x.w, 7, key, &e));
	CHECK_EQ(e.kind, ERR_EXHAUSTED);
	/* Of unused templates the last four stay in memory. */
	for (unsigned i = 0; i < 8; i++) {
		t[i]->work = NULL;
		t[i]->users = 0;
		t[i]->state = VM_T_READY;
		t[i]->used = 1000 + i;
	}
	other.next = x.v.templates;
	x.v.templates = &other;
	vm_templates_idle(&x.v, 2000);
	for (struct vm_template *i = x.v.templates; i; i = i->next, n++)
		CHECK(i == &other || i->used >= 1004);
	CHECK_EQ(n, 5);
	x.v.templates = other.next;
	vm_templates_end(&x.v);
	lone_close(&x);
}

TEST(a_machine_has_a_size_and_no_mounts)
{
	struct sandbox_spec s = good();
	struct err e = { 0 };

	s.limits.memory = 96 * MIB;
	CHECK_EQ(vm_tier.check(&s, &e), 0);
	s.limits.memory = 96 * MIB - 1;
	CHECK_EQ(vm_tier.check(&s, &e), -EINVAL);
	s.limits.memory = 0;
	CHECK_EQ(vm_tier.check(&s, &e), -EINVAL);
	s.limits.memory = 96 * MIB;
	s.limits.disk = 16 * MIB - 1;
	CHECK_EQ(vm_tier.check(&s, &e), -EINVAL);
	s.limits.disk = 0;
	s.nmounts = 1;
	CHECK_EQ(vm_tier.check(&s, &e), -EOPNOTSUPP);
}
