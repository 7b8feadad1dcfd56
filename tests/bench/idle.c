/*
 * Thousands of sandboxes that do nothing: what they cost in memory, and whether an exec still takes as long as it did.
 * They are held by several processes, since each sandbox takes a dozen descriptors of its holder.
 */
#include "bench.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/sys.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define PART "idle"
#define POOL 4
#define PSS_SAMPLE 50
#define EXECS_MAX 1000

enum order { ORDER_CREATE, ORDER_EXEC, ORDER_COST };

struct holder {
	int pid, sock;
	struct shared { /* both sides */
		uint32_t order, count;
		struct err err;
		uint64_t ns[EXECS_MAX];
		uint64_t pss, files; /* COST: means, bytes */
	} * shared;
};

static uint64_t kib_of(const char *text, const char *key)
{
	const char *at = strstr(text, key);

	return at ? strtoull(at + strlen(key), NULL, 10) : 0;
}

static uint64_t pss_of(int pid)
{
	char path[64], text[4096];

	snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", pid);
	return fd_get(AT_FDCWD, path, text, sizeof(text)) < 0 ? 0 : kib_of(text, "\nPss:") * KIB;
}

/* ---- in the holder ---- */

static int holder_exec(struct box *b, struct shared *s)
{
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < s->count && i < EXECS_MAX; i++) {
		uint64_t t = clock_mono_ns();

		r = box_exec(b, &s->err);
		s->ns[i] = clock_mono_ns() - t;
	}
	return r;
}

static int holder_create(struct engine *g, struct box *boxes, uint32_t *have, struct shared *s)
{
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < s->count; i++) {
		r = box_create(g, &boxes[*have], &s->err);
		if (r == 0)
			r = box_up(&boxes[(*have)++], &s->err);
	}
	warden_pool_wait(engine_warden(g), POOL);
	return r;
}

static void holder_cost(struct box *boxes, uint32_t have, struct shared *s)
{
	uint64_t pss = 0, files = 0;
	uint32_t n = have < PSS_SAMPLE ? have : PSS_SAMPLE;

	for (uint32_t i = 0; i < n; i++) {
		struct warden_stat st = { 0 };

		pss += pss_of(warden_pid(boxes[i].s.made));
		engine_stat(&boxes[i].s, &st, NULL);
		files += st.disk_used;
	}
	s->pss = n ? pss / n : 0;
	s->files = n ? files / n : 0;
}

static _Noreturn void holder_main(int sock, struct shared *s, uint32_t max)
{
	struct box *boxes = calloc(max, sizeof(*boxes));
	struct engine *g = NULL;
	uint32_t have = 0;
	int32_t r;

	prctl(PR_SET_PDEATHSIG, SIGTERM);
	r = boxes ? engine_new(&(struct engine_opts){ .pool = POOL }, &g, &s->err) : -ENOMEM;
	if (r == 0)
		warden_pool_wait(engine_warden(g), POOL);
	while (write(sock, &r, sizeof(r)) > 0 && read(sock, &r, sizeof(r)) > 0) {
		if (s->order == ORDER_CREATE)
			r = have + s->count <= max ? holder_create(g, boxes, &have, s) : -ENOSPC;
		else if (s->order == ORDER_EXEC)
			r = holder_exec(&boxes[0], s);
		else
			holder_cost(boxes, have, s);
	}
	for (uint32_t i = 0; i < have; i++)
		box_destroy(&boxes[i], NULL);
	engine_free(g);
	free(boxes);
	_exit(0);
}

/* ---- in the benchmark ---- */

static int holder_answer(struct holder *h, struct err *e)
{
	int32_t r;

	if (read(h->sock, &r, sizeof(r)) != (ssize_t)sizeof(r))
		return err_set(e, ERR_LOST, -EIO, "the process that holds sandboxes is gone");
	if (r < 0)
		*e = h->shared->err;
	return r;
}

static int holder_start(struct holder *h, uint32_t max, struct err *e)
{
	int sp[2], r = sys_socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sp);

	if (r < 0)
		return err_sys(e, ERR_EXHAUSTED, r, "make a socket pair");
	h->shared = mmap(NULL, sizeof(*h->shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	h->pid = h->shared == MAP_FAILED ? -1 : fork();
	if (h->pid == 0) {
		close(sp[0]);
		signal(SIGINT, SIG_IGN);
		holder_main(sp[1], h->shared, max);
	}
	close(sp[1]);
	h->sock = sp[0];
	return h->pid < 0 ? err_set(e, ERR_EXHAUSTED, -ENOMEM, "start a holder") : holder_answer(h, e);
}

static int holder_do(struct holder *h, enum order order, uint32_t count, struct err *e)
{
	int32_t r = 0;

	h->shared->order = order;
	h->shared->count = count;
	if (write(h->sock, &r, sizeof(r)) < 0)
		return err_set(e, ERR_LOST, -EPIPE, "the process that holds sandboxes is gone");
	return holder_answer(h, e);
}

static void holder_stop(struct holder *h)
{
	if (h->pid <= 0)
		return;
	/* Closing would not do: those started later have a copy. */
	shutdown(h->sock, SHUT_RDWR);
	fd_close(h->sock);
	waitpid(h->pid, NULL, 0);
	munmap(h->shared, sizeof(*h->shared));
}

struct memory {
	uint64_t kernel; /* what is used, but for programs' pages and all files: those move with what else runs here */
	uint64_t slab, percpu, stacks, tables;
};

static void read_memory(struct memory *m)
{
	char t[8192];

	*m = (struct memory){ 0 };
	if (fd_get(AT_FDCWD, "/proc/meminfo", t, sizeof(t)) < 0)
		return;
	m->slab = kib_of(t, "\nSlab:");
	m->percpu = kib_of(t, "\nPercpu:");
	m->stacks = kib_of(t, "\nKernelStack:");
	m->tables = kib_of(t, "\nPageTables:");
	m->kernel = kib_of(t, "MemTotal:") - kib_of(t, "\nMemFree:") - kib_of(t, "\nBuffers:") -
		    kib_of(t, "\nCached:") - kib_of(t, "\nAnonPages:");
}

struct idle {
	struct bench *b;
	struct holder *holders;
	unsigned nholders;
	uint32_t want, alive;
	double pss_kib, files_kib;
	struct memory before, after;
	struct samples *one, *many;
};

static int measure_exec(struct idle *x, struct samples *to, struct err *e)
{
	const uint32_t count = x->b->quick ? 50 : EXECS_MAX;
	int r = holder_do(&x->holders[0], ORDER_EXEC, 5, e); /* warm */

	if (r == 0)
		r = holder_do(&x->holders[0], ORDER_EXEC, count, e);
	for (uint32_t i = 0; r == 0 && i < count; i++)
		samples_add(to, x->holders[0].shared->ns[i]);
	return r;
}

static int measure(struct idle *x, struct err *e)
{
	const uint32_t each = x->want / x->nholders;
	int r = 0;

	for (unsigned i = 0; r == 0 && i < x->nholders; i++)
		r = holder_start(&x->holders[i], each + 1, e);
	if (r == 0)
		r = holder_do(&x->holders[0], ORDER_CREATE, 1, e);
	if (r == 0)
		r = measure_exec(x, x->one, e);
	read_memory(&x->before);
	for (unsigned i = 0; r == 0 && i < x->nholders && !bench_stop; i++) {
		r = holder_do(&x->holders[i], ORDER_CREATE, each, e);
		x->alive += r == 0 ? each : 0;
	}
	if (r == 0)
		r = holder_do(&x->holders[0], ORDER_COST, 0, e);
	read_memory(&x->after);
	x->pss_kib = (double)x->holders[0].shared->pss / 1024.0;
	x->files_kib = (double)x->holders[0].shared->files / 1024.0;
	return r == 0 ? measure_exec(x, x->many, e) : r;
}

static double each_kib(const struct idle *x, uint64_t before, uint64_t after)
{
	return ratio((double)(int64_t)(after - before), x->alive);
}

static void judge(struct idle *x)
{
	struct report *out = &x->b->report;
	const char *few = x->b->quick ? "too few sandboxes in a quick run" : NULL;
	double kernel = each_kib(x, x->before.kernel, x->after.kernel);

	report_fact(out, PART, "sandboxes alive", x->alive, "");
	report_fact(out, PART, "slab each", each_kib(x, x->before.slab, x->after.slab), "KiB");
	report_fact(out, PART, "per-CPU memory each", each_kib(x, x->before.percpu, x->after.percpu), "KiB");
	report_fact(out, PART, "kernel stacks each", each_kib(x, x->before.stacks, x->after.stacks), "KiB");
	report_fact(out, PART, "page tables each", each_kib(x, x->before.tables, x->after.tables), "KiB");
	report_fact(out, PART, "all kernel memory each", kernel, "KiB");
	report_fact(out, PART, "files in memory each", x->files_kib, "KiB");
	report_target(out, &(struct target){
				   .part = PART,
				   .what = "PSS of an idle sandbox",
				   .unit = "KiB",
				   .measured = x->pss_kib,
				   .limit = 64,
				   .bound = BOUND_MOST,
			   });
	report_target(out, &(struct target){
				   .part = PART,
				   .what = "an idle sandbox with all kernel memory",
				   .unit = "MiB",
				   .measured = (kernel + x->files_kib + x->pss_kib) / 1024.0,
				   .limit = 0.75,
				   .bound = BOUND_MOST,
				   .why_not = few,
			   });
	report_target(out, &(struct target){
				   .part = PART,
				   .what = "exec p50 with 2,000 alive / with one",
				   .unit = "",
				   .measured = ratio((double)samples_at(x->many, 500), (double)samples_at(x->one, 500)),
				   .limit = 1.5,
				   .bound = BOUND_MOST,
				   .why_not = few,
			   });
}

int bench_idle(struct bench *b, struct err *e)
{
	struct holder holders[4] = { 0 };
	struct idle x = { .b = b, .holders = holders, .nholders = ARRAY_LEN(holders), .want = b->quick ? 40 : 2000 };
	int r;

	x.one = report_row(&b->report, "cloche exec, one sandbox alive");
	x.many = report_row(&b->report, b->quick ? "cloche exec, 40 alive" : "cloche exec, 2,000 alive");
	r = measure(&x, e);
	if (r == 0)
		judge(&x);
	for (unsigned i = 0; i < x.nholders; i++)
		holder_stop(&holders[i]);
	return r;
}
