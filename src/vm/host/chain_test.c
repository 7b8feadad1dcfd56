/* A machine's disks from seal to seal, with a cloche-vmm whose answers the test decides. */
#include "engine/sandbox/internal.h"
#include "base/base.h"
#include "base/sys.h"
#include "base/test.h"
#include "layers/seal_impl.h"
#include "layers/tree.h"
#include "vm/host/host.h"
#include "vm/host/tier.h"
#include "vm/vmm/meta.h"
#include "warden/warden_test.h"

#include <poll.h>
#include <pthread.h>
#include <dirent.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct tier_ops *const vm_only[] = { &vm_tier, NULL };

#define MEMORY (128 * MIB)

enum answer { SAVES, FAILS, FAILS_AFTER_ANOTHERS };

/* A warden that knows one machine and its layers. */
struct one {
	char path[32];
	struct warden w;
	struct vms v;
	struct vm_template t;
	struct warden_sandbox s;
	struct machine *m;
	int side; /* cloche-vmm's end */
	enum answer answer;
	unsigned joins;
	uint32_t top, bases[64];
	struct sandbox_spec spec;
};

/* Checks a condition without which the test cannot continue. */
static void must(bool ok)
{
	if (!ok)
		abort();
}

static int folder(const struct one *x, const char *name)
{
	AUTO_CLOSE int dir = sys_openat(AT_FDCWD, x->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);

	must(sys_mkdirat(dir, name, 0700) == 0);
	return sys_openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
}

static void one_open(struct one *x)
{
	struct err e = { 0 };
	char program[512];
	int pair[2];

	memset(x, 0, sizeof(*x));
	snprintf(x->path, sizeof(x->path), "/var/tmp/vm-chain-XXXXXX");
	CHECK(mkdtemp(x->path) != NULL);
	x->w.vms = &x->v;
	x->w.tiers = vm_only;
	x->w.env.persist = true;
	x->v.dir = folder(x, "vm");
	x->v.epoll = epoll_create1(EPOLL_CLOEXEC);
	x->v.timer = -1; /* it never expires */
	x->w.env.layers = folder(x, "layers");
	must(wt_program("cloche-layers", program, sizeof(program)));
	x->w.env.program[ENV_LAYERS] = open(program, O_PATH | O_CLOEXEC);
	x->w.children = layer_children_new(x->w.env.program[ENV_LAYERS], x->w.env.layers);
	CHECK_EQ(workers_new(2, &x->w.workers, &e), 0);
	CHECK_EQ(layers_new(x->w.env.layers, x->w.workers, &x->w.layers, &e), 0);
	CHECK_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	x->side = pair[1];
	memcpy(x->t.key, "key", 3);
	x->spec.limits.memory = MEMORY;
	snprintf(x->s.image, sizeof(x->s.image), "image");
	blank_init(&x->s.blank);
	x->s.handle = 0x1234;
	x->s.flags = vm_tier.flag;
	x->s.tier = &vm_tier;
	x->m = x->s.vm = vm_machine_new(&x->spec);
	x->m->sandbox = &x->s;
	x->m->template = &x->t;
	x->m->role = VM_CLONE;
	x->m->stage = VM_RUNS;
	x->m->side = pair[0];
	CHECK_EQ(vm_own_first(&x->w, x->m, 1, &e), 0);
	CHECK_EQ(fd_write_all(x->m->own[0].fd, "disk", 4), 0);
	x->top = 1;
}

static void one_close(struct one *x)
{
	fd_close(x->side);
	x->m->ends = true;
	vm_own_remove_all(&x->w, x->m);
	vm_machine_free(x->m);
	workers_free(x->w.workers);
	seal_free(x->w.retired);
	layer_children_free(x->w.children);
	fd_close(x->w.env.program[ENV_LAYERS]);
	layers_free(x->w.layers);
	fd_close(x->v.dir);
	fd_close(x->v.epoll);
	fd_close(x->w.env.layers);
	CHECK_EQ(tree_remove(AT_FDCWD, x->path), 0);
}

static uint8_t key[SHA256_SIZE]; /* of the template, in the file "key" */

/* Writes what cloche-vmm would have saved. */
static void write_saved(int meta, int pages)
{
	const struct pages_head h = { .magic = PAGES_MAGIC, .page = 4096 };
	struct vm_meta m = { .what.key = "key", .memory_mib = MEMORY / MIB };
	struct err e = { 0 };

	m.what.key[3] = key[3];
	must(meta_save(meta, &m, "", "", &e) == 0);
	must(fd_write_all(pages, &h, sizeof(h)) == 0);
}

static void say(const struct one *x, struct vm_msg *m)
{
	m->version = VM_SIDE_VERSION;
	must(send(x->side, m, sizeof(*m), MSG_NOSIGNAL) == sizeof(*m));
}

static void *vmm(void *arg)
{
	struct one *x = arg;
	struct vm_msg in, out;
	int fds[4] = { -1 };
	size_t n = 0;

	while (fd_recv(x->side, &in, sizeof(in), fds, 4, &n) == (ssize_t)sizeof(in)) {
		if (in.type == VM_JOIN) {
			x->bases[x->joins++ % ARRAY_LEN(x->bases)] = in.join.base;
			out = (struct vm_msg){ .type = VM_JOINED, .joined = { .id = in.join.id, .top = x->top } };
			say(x, &out);
			continue;
		}
		must(in.type == VM_SAVE && in.save.id && n == 3);
		out = (struct vm_msg){ .type = VM_SAVED, .saved.id = in.save.id ^ 1 };
		if (x->answer == FAILS_AFTER_ANOTHERS)
			say(x, &out);
		if (x->answer == SAVES) {
			must(in.save.disk > x->top);
			x->top = in.save.disk;
			write_saved(fds[0], fds[1]);
			must(fd_write_all(fds[2], "disk", 4) == 0);
			out.saved.id = in.save.id;
		} else {
			out = (struct vm_msg){ .type = VM_FAILED,
					       .failed = { .id = in.save.id, .errnum = EIO, .text = "no" } };
		}
		say(x, &out);
		fd_close_many(fds, n);
		return NULL;
	}
	return NULL;
}

static int seal(struct one *x, const char *id, enum answer answer)
{
	struct warden_done done = { 0 };
	struct err e = { 0 };
	pthread_t thread;

	x->answer = answer;
	must(pthread_create(&thread, NULL, vmm, x) == 0);
	must(warden_seal(&x->w, &x->s, id, WARDEN_WITH_MEMORY, NULL, &e) == 0);
	while (!done.what) {
		struct pollfd p = { .fd = workers_fd(x->w.workers), .events = POLLIN };

		poll(&p, 1, 1000);
		warden_done(&x->w, &done);
	}
	pthread_join(thread, NULL);
	return done.result;
}

static unsigned count(int dir)
{
	unsigned n = 0;
	DIR *d = fdopendir(sys_openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0));

	must(d != NULL);
	for (struct dirent *x; (x = readdir(d));)
		n += x->d_name[0] == 'd';
	closedir(d);
	return n;
}

static void put_id(char id[ID_SIZE], unsigned n)
{
	memset(id, '0', ID_LEN);
	id[ID_LEN] = '\0';
	snprintf(id + ID_LEN - 4, 5, "%04u", n);
}

TEST(seals_go_on_for_ever_and_each_has_few_disks_most_of_which_are_others_too)
{
	static struct one x;
	struct err e = { 0 };
	int fds[VM_CHAIN_MAX], disks;
	struct stat st;
	char id[ID_SIZE];

	one_open(&x);
	for (unsigned i = 1; i <= 40; i++) {
		put_id(id, i);
		CHECK_EQ(seal(&x, id, SAVES), 0);
		CHECK_EQ(count(x.v.dir), x.m->nown);
		CHECK(x.m->nown < 12);
	}
	CHECK(x.joins >= 2 && x.joins < 8);
	for (unsigned i = 0; i < x.joins; i++)
		CHECK(x.bases[i] < x.top);
	/* A layer keeps its content when all others are gone, although it shared files with them. */
	disks = vm_layer_disks(&x.w, (const char(*)[ID_SIZE])id, 1, fds, VM_CHAIN_MAX, &e);
	CHECK(disks > 1 && fstat(fds[0], &st) == 0 && st.st_nlink > 1);
	fd_close_many(fds, (size_t)disks);
	for (unsigned i = 1; i < 40; i++) {
		put_id(id, i);
		CHECK_EQ(warden_unseal(&x.w, id, &e), 0);
	}
	workers_free(x.w.workers); /* the workers have removed them */
	CHECK_EQ(workers_new(2, &x.w.workers, &e), 0);
	put_id(id, 40);
	{
		AUTO_CLOSE int dir = sys_openat(x.w.env.layers, id, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
		struct manifest m;
		int stop = 0;

		CHECK_EQ(manifest_read(dir, id, &m), 0);
		CHECK_EQ(manifest_verify(dir, &stop, &m), 0);
	}
	one_close(&x);
}

TEST(disks_that_are_written_whole_between_seals_take_no_more_than_a_few_times_their_size)
{
	static char much[MIB] = { 1 };
	static struct one x;
	char id[ID_SIZE];

	one_open(&x);
	x.m->spec.limits.disk = MIB;
	for (unsigned i = 1; i <= 9; i++) {
		CHECK_EQ(fd_write_all(x.m->own[x.m->nown - 1].fd, much, sizeof(much)), 0);
		put_id(id, i);
		CHECK_EQ(seal(&x, id, SAVES), 0);
		CHECK(x.m->nown <= 3);
	}
	CHECK(x.joins >= 3);
	one_close(&x);
}

TEST(a_save_that_fails_leaves_no_disk_and_anothers_answer_is_not_taken_for_it)
{
	static struct one x;
	struct record_vm rec;
	char id[ID_SIZE];

	one_open(&x);
	put_id(id, 1);
	for (unsigned i = 0; i < 20; i++) {
		CHECK(seal(&x, id, i % 2 ? FAILS : FAILS_AFTER_ANOTHERS) < 0);
		CHECK(x.m->nown == 1 && count(x.v.dir) == 1);
	}
	CHECK_EQ(seal(&x, id, SAVES), 0);
	/* The next warden finds the recorded disks, and one that was created after the record. */
	vm_own_record(x.m, &rec);
	CHECK(rec.own == 2 && rec.disk[0] == 1 && rec.disk[1] == 22 && rec.next == 23);
	fd_close(sys_openat(x.v.dir, "d-0000000000001234.23", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	vm_machine_free(x.m);
	x.m = x.s.vm = vm_machine_new(&x.spec);
	x.m->sandbox = &x.s;
	CHECK_EQ(vm_own_find(&x.w, &x.s, &rec), 0);
	CHECK(x.m->nown == 3 && x.m->own[2].number == 23 && x.m->next_disk == 24);
	one_close(&x);
}

TEST(layers_of_one_tenant_stand_on_so_many_templates_and_those_stay)
{
	static struct one x;
	struct err e = { 0 };
	char id[ID_SIZE];

	one_open(&x);
	x.s.tenant = 7;
	for (unsigned i = 0; i < 32; i++) {
		put_id(id, i);
		key[3] = x.t.key[3] = (uint8_t)(i + 1);
		CHECK_EQ(seal(&x, id, SAVES), 0);
	}
	/* Another layer of the same template is allowed, and another tenant has its own limit. */
	put_id(id, 32);
	CHECK_EQ(seal(&x, id, SAVES), 0);
	key[3] = x.t.key[3] = 100;
	put_id(id, 33);
	CHECK_EQ(warden_seal(&x.w, &x.s, id, WARDEN_WITH_MEMORY, NULL, &e), -EDQUOT);
	CHECK(!layers_of_template(x.w.layers, x.t.key, 16));
	x.s.tenant = 8;
	CHECK_EQ(seal(&x, id, SAVES), 0);
	CHECK(layers_of_template(x.w.layers, x.t.key, 16));
	memset(key, 0, sizeof(key));
	one_close(&x);
}

/* Does what cloche-vmm and drop_joined() would: of the disks above ->base the last two are left. */
static void join(struct seal_source *f)
{
	uint32_t left = 0;

	for (uint32_t n = 0; n < f->disks; n++) {
		if (f->disk[n].number <= f->base || n + 2 >= f->disks)
			f->disk[left++] = f->disk[n];
		else
			seal_disk_done(&f->disk[n]);
	}
	f->disks = left;
}

TEST(a_disk_that_a_dead_warden_did_not_write_down_is_found_however_many_there_are)
{
	static struct one x;
	struct err e = { 0 };
	unsigned joins = 0;

	one_open(&x);
	for (unsigned i = 0; i < 40; i++) {
		/* A paused machine with a chain that is not full: it is not thawed for joining. */
		struct seal_source from = { .paused = true, .side = -1 };
		struct seal_impl impl = { .save = SEAL_SAVED };
		const struct seal sealed = { .impl = &impl };
		struct record_vm rec;
		char name[48];

		CHECK_EQ(vm_seal_begin(&x.w, &x.s, &from, &e), 0);
		impl.from = from;
		if (from.joins_disks) {
			join(&impl.from);
			joins++;
		}
		vm_seal_end(&x.w, &x.s, NULL, &sealed);
		vm_own_record(x.m, &rec);
		snprintf(name, sizeof(name), "d-0000000000001234.%u", rec.next);
		fd_close(sys_openat(x.v.dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
		{
			const int side = TAKE_FD(x.m->side);

			vm_machine_free(x.m);
			x.m = x.s.vm = vm_machine_new(&x.spec);
			x.m->sandbox = &x.s;
			x.m->template = &x.t;
			x.m->role = VM_CLONE;
			x.m->side = side;
		}
		CHECK_EQ(vm_own_find(&x.w, &x.s, &rec), 0);
		CHECK(x.m->nown == rec.own + 1 && x.m->own[rec.own].number == rec.next &&
		      x.m->next_disk == rec.next + 1);
	}
	CHECK(joins > 1);
	one_close(&x);
}
