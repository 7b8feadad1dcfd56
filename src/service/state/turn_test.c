#include "service/state/turn.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/sys.h"
#include "base/test.h"
#include "store/db.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uv.h>

static char folder[64], log_path[96], db_path[96];
static struct world {
	uv_loop_t loop;
	struct db *db;
	struct audit *audit;
	struct turn *turn;
} w;

static void begin(void)
{
	struct tenant_row t = { .id = "default", .number = 1 };
	struct err e = { 0 };

	snprintf(folder, sizeof(folder), "/tmp/cloche-turn-XXXXXX");
	if (!mkdtemp(folder))
		abort();
	snprintf(log_path, sizeof(log_path), "%s/audit.log", folder);
	snprintf(db_path, sizeof(db_path), "%s/state.db", folder);
	if (db_open(db_path, &w.db, &e) < 0 || audit_open(log_path, &w.audit, &e) < 0 || uv_loop_init(&w.loop) < 0 ||
	    turn_new(&w.loop, w.db, w.audit, &w.turn, &e) < 0 || tenants_put(w.db, &t, &e) < 0 ||
	    db_commit(w.db, &e) < 0) {
		printf("# %s\n", e.msg);
		abort();
	}
}

static void end(void)
{
	char name[128];

	turn_free(w.turn);
	uv_run(&w.loop, UV_RUN_DEFAULT);
	if (uv_loop_close(&w.loop) < 0)
		abort(); /* a handle was left */
	audit_close(w.audit);
	db_close(w.db);
	unlink(log_path);
	unlink(db_path);
	snprintf(name, sizeof(name), "%s-wal", db_path);
	unlink(name);
	snprintf(name, sizeof(name), "%s-shm", db_path);
	unlink(name);
	rmdir(folder);
}

static void change(const char *id)
{
	struct tenant_row t = { .id = id };
	struct err e;

	if (tenants_next(w.db, &t.number, &e) < 0 || tenants_put(w.db, &t, &e) < 0)
		abort();
	audit_begin(w.audit, &(struct audit_rec){ .kind = "tenant.create", .tenant = id });
	audit_end(w.audit, NULL);
}

static int count(void *arg, const struct tenant_row *t)
{
	(void)t;
	++*(unsigned *)arg;
	return 0;
}

/* What another process would find. */
static void stored(unsigned *ret_rows, uint64_t *ret_records)
{
	struct audit_verdict v;
	struct db *d = NULL;
	struct err e;

	*ret_rows = 0;
	if (db_open(db_path, &d, &e) < 0 || tenants_each(d, count, ret_rows, &e) < 0 ||
	    audit_verify(log_path, &v, &e) < 0)
		abort();
	db_close(d);
	*ret_records = v.records;
}

struct call {
	struct turn_wait wait, more;
	char name;
	unsigned rows;
	uint64_t records;
	struct turn_wait *cancel;
	bool again, quit;
};
static char order[64];

static void called(void *arg)
{
	struct call *c = arg;
	size_t n = strlen(order);

	order[n] = c->name;
	order[n + 1] = '\0';
	stored(&c->rows, &c->records);
	if (c->cancel)
		turn_cancel(c->cancel);
	if (c->again) {
		c->again = false;
		change("again");
		turn_after(w.turn, &c->wait, called, c);
	}
}

static void from_timer(uv_timer_t *t)
{
	struct call *c = t->data;

	change("timer");
	turn_after(w.turn, &c->wait, called, c);
	uv_close((uv_handle_t *)t, NULL);
}

TEST(callbacks_run_in_order_when_all_is_stored)
{
	struct call a = { .name = 'a' }, b = { .name = 'b' }, c = { .name = 'c' };

	begin();
	order[0] = '\0';
	change("one");
	turn_after(w.turn, &a.wait, called, &a);
	turn_after(w.turn, &b.wait, called, &b);
	change("two"); /* later, but in the same turn */
	turn_after(w.turn, &c.wait, called, &c);
	CHECK_STR(order, ""); /* never from within */
	uv_run(&w.loop, UV_RUN_DEFAULT);
	CHECK_STR(order, "abc");
	CHECK_EQ(a.rows, 3);
	CHECK_EQ(a.records, 2);
	end();
}

TEST(what_a_timer_changes_is_stored_in_the_same_iteration)
{
	struct call a = { .name = 't' };
	uv_timer_t timer, far;
	uint64_t start;

	begin();
	order[0] = '\0';
	uv_timer_init(&w.loop, &timer);
	timer.data = &a;
	uv_timer_start(&timer, from_timer, 0, 0);
	/* Another that is far away: the poll must not wait for it. */
	uv_timer_init(&w.loop, &far);
	uv_timer_start(&far, NULL, 100000, 0);
	start = clock_mono_ns();
	uv_run(&w.loop, UV_RUN_ONCE);
	CHECK_STR(order, "t");
	CHECK_EQ(a.records, 1);
	CHECK(clock_mono_ns() - start < 5000000000ULL);
	uv_close((uv_handle_t *)&far, NULL);
	end();
}

static void on_poll(uv_poll_t *p, int status, int events)
{
	struct call *c = p->data;

	(void)status;
	(void)events;
	change("poll");
	turn_after(w.turn, &c->wait, called, c);
	uv_close((uv_handle_t *)p, NULL);
}

TEST(what_a_descriptor_brings_is_stored_in_the_same_iteration)
{
	struct call a = { .name = 'p' };
	uv_poll_t poll;
	int p[2];

	begin();
	order[0] = '\0';
	CHECK_EQ(pipe2(p, O_CLOEXEC), 0);
	CHECK_EQ(write(p[1], "x", 1), 1);
	uv_poll_init(&w.loop, &poll, p[0]);
	poll.data = &a;
	uv_poll_start(&poll, UV_READABLE, on_poll);
	uv_run(&w.loop, UV_RUN_ONCE);
	CHECK_STR(order, "p");
	CHECK_EQ(a.rows, 2);
	close(p[0]);
	close(p[1]);
	end();
}

TEST(one_taken_back_is_not_called)
{
	struct call a = { .name = 'a' }, b = { .name = 'b' }, c = { .name = 'c' };

	begin();
	order[0] = '\0';
	turn_cancel(&a.wait); /* not waiting: fine */
	a.cancel = &c.wait; /* while the callbacks run */
	turn_after(w.turn, &b.wait, called, &b);
	turn_after(w.turn, &a.wait, called, &a);
	turn_after(w.turn, &c.wait, called, &c);
	turn_cancel(&b.wait);
	turn_cancel(&b.wait);
	uv_run(&w.loop, UV_RUN_DEFAULT);
	CHECK_STR(order, "a");
	/* Registered twice: once, at the end. */
	turn_after(w.turn, &b.wait, called, &b);
	turn_after(w.turn, &c.wait, called, &c);
	turn_after(w.turn, &b.wait, called, &b);
	uv_run(&w.loop, UV_RUN_DEFAULT);
	CHECK_STR(order, "acb");
	end();
}

TEST(a_callback_may_register_again_and_what_it_changed_is_stored_before)
{
	struct call a = { .name = 'a', .again = true };

	begin();
	order[0] = '\0';
	turn_after(w.turn, &a.wait, called, &a);
	uv_run(&w.loop, UV_RUN_DEFAULT);
	CHECK_STR(order, "aa");
	CHECK_EQ(a.rows, 2);
	CHECK_EQ(a.records, 1);
	end();
}

static unsigned forever_calls;

static void forever(void *arg)
{
	forever_calls++;
	turn_after(w.turn, arg, forever, arg);
}

static void stop(uv_timer_t *t)
{
	turn_cancel(t->data);
	uv_close((uv_handle_t *)t, NULL);
}

TEST(who_always_registers_again_does_not_starve_the_loop)
{
	struct turn_wait wait = { 0 };
	uv_timer_t timer;

	begin();
	uv_timer_init(&w.loop, &timer);
	timer.data = &wait;
	uv_timer_start(&timer, stop, 20, 0);
	turn_after(w.turn, &wait, forever, &wait);
	CHECK_EQ(uv_run(&w.loop, UV_RUN_DEFAULT), 0);
	CHECK(forever_calls > 1);
	end();
}

TEST(a_change_that_nobody_waits_for_is_stored)
{
	uint64_t records;
	unsigned rows;

	begin();
	change("one");
	turn_dirty(w.turn);
	uv_run(&w.loop, UV_RUN_ONCE);
	stored(&rows, &records);
	CHECK_EQ(rows, 2);
	CHECK_EQ(records, 1);
	end();
}

static void nothing(uv_timer_t *t)
{
	uv_close((uv_handle_t *)t, NULL);
}

static uint64_t cpu_ns(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return ((uint64_t)u.ru_utime.tv_sec + (uint64_t)u.ru_stime.tv_sec) * 1000000000 +
	       ((uint64_t)u.ru_utime.tv_usec + (uint64_t)u.ru_stime.tv_usec) * 1000;
}

TEST(with_nothing_to_do_the_loop_sleeps_and_ends)
{
	struct call a = { .name = 'a' };
	uv_timer_t timer;
	uint64_t cpu;

	begin();
	CHECK_EQ(uv_run(&w.loop, UV_RUN_DEFAULT), 0); /* nothing of ours keeps it alive */
	turn_after(w.turn, &a.wait, called, &a);
	uv_run(&w.loop, UV_RUN_ONCE);
	uv_timer_init(&w.loop, &timer);
	uv_timer_start(&timer, nothing, 300, 0);
	cpu = cpu_ns();
	uv_run(&w.loop, UV_RUN_DEFAULT);
	CHECK(cpu_ns() - cpu < 100000000); /* of 300 ms */
	end();
}

TEST(freeing_stores_what_is_left_and_calls_nobody)
{
	struct call a = { .name = 'a' };
	uint64_t records;
	unsigned rows;

	begin();
	order[0] = '\0';
	change("one");
	turn_after(w.turn, &a.wait, called, &a);
	turn_free(w.turn);
	w.turn = NULL;
	CHECK(!a.wait.next);
	stored(&rows, &records);
	CHECK_EQ(rows, 2);
	CHECK_EQ(records, 1);
	uv_run(&w.loop, UV_RUN_DEFAULT);
	CHECK_STR(order, "");
	end();
}

static void burst(uv_timer_t *t)
{
	static struct call calls[50];
	unsigned *left = t->data;
	struct call *c = &calls[--*left];

	*c = (struct call){ .name = (char)('A' + *left % 26) };
	change(c->name & 1 ? "odd" : "even");
	turn_after(w.turn, &c->wait, called, c);
	if (!*left)
		uv_close((uv_handle_t *)t, NULL);
}

TEST(answers_that_wait_for_the_disk_come_in_order_too)
{
	struct call a = { .name = 'a' }, b = { .name = 'b' }, c = { .name = 'c', .again = true };
	unsigned left = 40;
	uv_timer_t timer;
	struct err e;

	begin();
	order[0] = '\0';
	CHECK_EQ(turn_sync_always(w.turn, &e), 0);
	change("one");
	turn_after(w.turn, &a.wait, called, &a);
	turn_after(w.turn, &b.wait, called, &b);
	turn_after(w.turn, &c.wait, called, &c);
	turn_cancel(&b.wait);
	uv_run(&w.loop, UV_RUN_DEFAULT);
	CHECK_STR(order, "acc");
	CHECK_EQ(a.records, 1);
	CHECK_EQ(c.records, 2);
	order[0] = '\0';
	uv_timer_init(&w.loop, &timer);
	timer.data = &left;
	uv_timer_start(&timer, burst, 1, 1);
	uv_run(&w.loop, UV_RUN_DEFAULT);
	CHECK_STR(order, "NMLKJIHGFEDCBAZYXWVUTSRQPONMLKJIHGFEDCBA");
	/* Freed while a worker is at it. */
	turn_after(w.turn, &a.wait, called, &a);
	uv_run(&w.loop, UV_RUN_NOWAIT);
	end();
}

/* Whether the child ended by itself, without calling back. */
static int child_of_failure(void (*fail)(void))
{
	struct call a = { .name = 'a' };
	int status;
	pid_t pid;

	begin();
	pid = fork();
	if (pid == 0) {
		int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

		dup2(null, 2);
		change("one");
		turn_after(w.turn, &a.wait, called, &a);
		fail();
		uv_run(&w.loop, UV_RUN_DEFAULT);
		_exit(99);
	}
	waitpid(pid, &status, 0);
	end();
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void fail_write(void)
{
	sys_test_fail(SYSID_write, ENOSPC, 1);
}

/* The state's files may not grow any more; the log is not written that far. */
static void fail_commit(void)
{
	struct stat st;
	char wal[128];

	snprintf(wal, sizeof(wal), "%s-wal", db_path);
	if (stat(wal, &st) < 0)
		abort();
	signal(SIGXFSZ, SIG_IGN);
	setrlimit(RLIMIT_FSIZE, &(struct rlimit){ (rlim_t)st.st_size, (rlim_t)st.st_size });
}

static unsigned lacked;

static bool lacks(void *arg)
{
	if (!lacked++)
		sys_test_fail(SYSID_write, ENOSPC, 1);
	*(unsigned *)arg += !turn_stuck(w.turn);
	return lacked < 2;
}

/* The first try, the second with what was given back, and the third by itself. */
TEST(on_a_full_disk_answers_wait_until_there_is_room)
{
	struct call a = { .name = 'a' }, b = { .name = 'b' };
	unsigned rows, before = 0;
	uint64_t records;
	int null = open("/dev/null", O_WRONLY | O_CLOEXEC), err = dup(2);

	begin();
	order[0] = '\0';
	lacked = 0;
	turn_on_full(w.turn, lacks, &before);
	change("one");
	turn_after(w.turn, &a.wait, called, &a);
	sys_test_fail(SYSID_write, ENOSPC, 1);
	dup2(null, 2);
	uv_run(&w.loop, UV_RUN_NOWAIT);
	CHECK_EQ(lacked, 1);
	CHECK(turn_stuck(w.turn));
	CHECK_EQ(audit_written(w.audit), 0);
	CHECK_STR(order, "");
	change("two");
	turn_after(w.turn, &b.wait, called, &b);
	uv_run(&w.loop, UV_RUN_DEFAULT);
	dup2(err, 2);
	CHECK(!turn_stuck(w.turn));
	CHECK_STR(order, "ab");
	stored(&rows, &records);
	CHECK_EQ(rows, 3);
	CHECK_EQ(records, 2);
	CHECK_EQ(before, 1);
	close(null);
	close(err);
	end();
}

TEST(what_can_not_be_noted_ends_the_process)
{
	CHECK_EQ(child_of_failure(fail_write), EXIT_NO_ROOM);
	CHECK_EQ(child_of_failure(fail_commit), EXIT_FAILURE);
}
