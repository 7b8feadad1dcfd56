/*
 * cloche-dump may be killed at any moment, and the processes that it held must continue unharmed. The processes of this
 * test check that: they compare registers and flags, how long they slept, and what comes through a pipe.
 */
#include "base/base.h"
#include "base/test.h"
#include "memory/dump_test.h"

#include <pthread.h>
#include <stddef.h>
#include <sys/time.h>

#define SLEEP_NS 3000000ULL

#ifdef __x86_64__
/*
 * Every register that an injected call changes, the carry flag, and vector registers; @n rounds of nothing. All is reached
 * by one pointer: sanitizers leave no more registers.
 */
static bool registers_stay(uint64_t n)
{
	struct {
		uint64_t in[4], vectors[4], out[9], n;
		uint8_t carry;
	} v = { .in = { 0x1111111111111111, 0x2222222222222222, 0x3333333333333333, 0x4444444444444444 }, .n = n };

	_Static_assert(offsetof(typeof(v), out) == 64 && offsetof(typeof(v), n) == 136 &&
			       offsetof(typeof(v), carry) == 144,
		       "as below");
	__asm__ volatile("movups (%[v]), %%xmm5\n\t"
			 "movups 16(%[v]), %%xmm13\n\t"
			 "movq 136(%[v]), %%rcx\n\t"
			 "movabsq $0x0101010101010101, %%rax\n\t"
			 "movabsq $0x0202020202020202, %%rbx\n\t"
			 "movabsq $0x0303030303030303, %%rdx\n\t"
			 "movabsq $0x0404040404040404, %%rsi\n\t"
			 "movabsq $0x0505050505050505, %%rdi\n\t"
			 "movabsq $0x0606060606060606, %%r8\n\t"
			 "movabsq $0x0707070707070707, %%r9\n\t"
			 "movabsq $0x0808080808080808, %%r10\n\t"
			 "movabsq $0x0909090909090909, %%r11\n\t"
			 "stc\n"
			 "1:\n\t"
			 "leaq -1(%%rcx), %%rcx\n\t"
			 "jrcxz 2f\n\t"
			 "jmp 1b\n"
			 "2:\n\t"
			 "setc 144(%[v])\n\t"
			 "movq %%rax, 64(%[v])\n\t"
			 "movq %%rbx, 72(%[v])\n\t"
			 "movq %%rdx, 80(%[v])\n\t"
			 "movq %%rsi, 88(%[v])\n\t"
			 "movq %%rdi, 96(%[v])\n\t"
			 "movq %%r8, 104(%[v])\n\t"
			 "movq %%r9, 112(%[v])\n\t"
			 "movq %%r10, 120(%[v])\n\t"
			 "movq %%r11, 128(%[v])\n\t"
			 "movups %%xmm5, 32(%[v])\n\t"
			 "movups %%xmm13, 48(%[v])\n\t"
			 :
			 : [v] "r"(&v)
			 : "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "xmm5", "xmm13", "cc",
			   "memory");
	for (unsigned i = 0; i < ARRAY_LEN(v.out); i++)
		if (v.out[i] != 0x0101010101010101ULL * (i + 1))
			return false;
	return v.carry == 1 && !memcmp(v.vectors, v.in, sizeof(v.in));
}
#else
static bool registers_stay(uint64_t n)
{
	volatile double sum = 0;

	for (uint64_t i = 0; i < n; i++)
		sum += 0.5;
	return sum == (double)n * 0.5;
}
#endif

static void *sleeps(void *arg)
{
	struct dt_shared *s = arg;

	while (!s->stop) {
		struct timespec ts = { 0, SLEEP_NS };
		uint64_t start = clock_mono_ns();

		if (nanosleep(&ts, NULL) < 0 || clock_mono_ns() - start < SLEEP_NS)
			s->bad |= 2;
		s->value[1]++;
	}
	return NULL;
}

/* Numbers back and forth. */
static void plays(struct dt_shared *s)
{
	int a[2], b[2];
	uint64_t n = 0, got;

	if (pipe(a) < 0 || pipe(b) < 0)
		_exit(1);
	if (fork() == 0) {
		while (read(a[0], &got, 8) == 8 && write(b[1], &got, 8) == 8)
			;
		s->bad |= 4;
		_exit(1);
	}
	while (!s->stop) {
		n++;
		if (write(a[1], &n, 8) != 8 || read(b[0], &got, 8) != 8 || got != n)
			s->bad |= 8;
		s->value[2]++;
	}
	_exit(0);
}

static volatile struct dt_shared *alarmed;

static void on_alarm(int sig)
{
	(void)sig;
	alarmed->value[3]++;
}

static void works(struct dt_shared *s)
{
	struct itimerval it = { { 0, 7000 }, { 0, 7000 } };
	struct sigaction sa = { .sa_handler = on_alarm, .sa_flags = SA_RESTART };
	pthread_t t;
	sigset_t set;

	if (fork() == 0)
		plays(s);
	sigemptyset(&set);
	sigaddset(&set, SIGALRM);
	sigprocmask(SIG_BLOCK, &set, NULL);
	pthread_create(&t, NULL, sleeps, s);
	alarmed = s;
	sigaction(SIGALRM, &sa, NULL);
	setitimer(ITIMER_REAL, &it, NULL);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	s->ready = 1;
	while (!s->stop) {
		if (!registers_stay(20000))
			s->bad |= 1;
		s->count++;
	}
}

/* Whether all of them make progress, and none has noticed anything. */
static bool unharmed(struct dt *t)
{
	uint64_t was[3] = { t->shared->count, t->shared->value[1], t->shared->value[2] };

	if (!dt_reaches(&t->shared->count, was[0] + 3) || !dt_reaches(&t->shared->value[1], was[1] + 3) ||
	    !dt_reaches(&t->shared->value[2], was[2] + 3))
		return false;
	if (t->shared->bad)
		printf("# noticed: %llx\n", (unsigned long long)t->shared->bad);
	return !t->shared->bad;
}

static void kill_dump(struct dt *t)
{
	kill(t->dump, SIGKILL);
	waitpid(t->dump, NULL, 0);
	t->dump = 0;
}

TEST(killed_at_random_moments_it_harms_nobody)
{
	unsigned seed = 1;
	struct dt t;

	CHECK(dt_start(&t, works));
	CHECK(dt_reaches(&t.shared->ready, 1));
	for (int i = 0; i < 25; i++) {
		struct timespec ts = { 0, (long)rand_r(&seed) % 4000000 };

		CHECK(dt_launch(&t, NULL));
		CHECK(dt_hears(&t, "seized"));
		nanosleep(&ts, NULL);
		kill_dump(&t);
		CHECK(unharmed(&t));
	}
	CHECK(dt_dump(&t));
	CHECK(unharmed(&t));
	CHECK(t.shared->value[3] > 0);
	dt_end(&t);
}

TEST(killed_at_each_of_its_steps_it_harms_nobody)
{
	/* Another part of them each time. */
	unsigned nth = 1 + (unsigned)getpid() % 17;
	char fault[64];
	struct dt t;
	bool done = false;

	CHECK(dt_start(&t, works));
	CHECK(dt_reaches(&t.shared->ready, 1));
	for (; !done && nth < 4000; nth += 17) {
		snprintf(fault, sizeof(fault), "ptrace:0:%u", nth);
		setenv("CLOCHE_FAULT_DUMP", fault, 1);
		CHECK(dt_launch_as(&t, "faulty/cloche-dump", NULL));
		while (dt_hear(&t))
			if (!strcmp(t.said, "ready"))
				done = true, send(t.control, "go", 2, 0);
		waitpid(t.dump, NULL, 0);
		t.dump = 0;
		if (nth % 3 == 0 || done)
			CHECK(unharmed(&t));
		CHECK_EQ(t.shared->bad, 0);
	}
	unsetenv("CLOCHE_FAULT_DUMP");
	CHECK(done);
	CHECK(nth > 50);
	printf("# %u steps\n", nth);
	CHECK(dt_dump(&t));
	CHECK(unharmed(&t));
	dt_end(&t);
}

static void sleeps_long(struct dt_shared *s)
{
	struct timespec ts = { 0, 400000000 }, rest;
	uint64_t start = clock_mono_ns();

	s->ready = 1;
	s->value[0] = (uint64_t)nanosleep(&ts, &rest);
	s->value[1] = clock_mono_ns() - start;
	s->count = 1;
	pause();
}

TEST(a_sleep_goes_on_for_exactly_what_is_left)
{
	struct dt t;

	CHECK(dt_start(&t, sleeps_long));
	CHECK(dt_reaches(&t.shared->ready, 1));
	dt_sleep_ms(150);
	CHECK(dt_dump(&t));
	CHECK(dt_reaches(&t.shared->count, 1));
	CHECK_EQ(t.shared->value[0], 0);
	CHECK(t.shared->value[1] >= 400000000);
	CHECK(t.shared->value[1] < 520000000);
	dt_end(&t);
}
