#include "store/db.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/test.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* A folder of its own per test. */
static char folder[64], path[96];

static void fresh(void)
{
	snprintf(folder, sizeof(folder), "/tmp/cloche-store-XXXXXX");
	if (!mkdtemp(folder))
		abort();
	snprintf(path, sizeof(path), "%s/state.db", folder);
}

static void gone(void)
{
	static const char *const ends[] = { "", "-wal", "-shm", "-journal", "-late" };
	char name[128];

	for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
		snprintf(name, sizeof(name), "%s%s", path, ends[i]);
		unlink(name);
	}
	rmdir(folder);
}

static struct tenant_row a_tenant(const char *id, uint64_t number)
{
	return (struct tenant_row){ .id = id,
				    .number = number,
				    .sandboxes = 3,
				    .cpu_milli = 4000,
				    .memory = UINT64_MAX,
				    .disk = 5,
				    .execs = 6,
				    .rate_points = 7,
				    .rate_window_ms = 8,
				    .rate_block_ms = 9,
				    .created_ns = 10 };
}

static struct sandbox_row a_sandbox(const char *id, const char *name, const char *key)
{
	return (struct sandbox_row){ .id = id,
				     .tenant = "default",
				     .name = name,
				     .key = key,
				     .handle = 0xfffffffffffffff0ULL,
				     .state = "running",
				     .spec = "{}",
				     .created_ns = 1,
				     .expires_ns = 2,
				     .used_ns = 3,
				     .next_exec = 4 };
}

static struct exec_row an_exec(const char *id, const char *sandbox, uint32_t number)
{
	return (struct exec_row){
		.id = id, .sandbox = sandbox, .number = number, .spec = "{\"cmd\":[]}", .started_ns = number
	};
}

static struct db *opened(void)
{
	struct tenant_row t = a_tenant("default", 1);
	struct db *d = NULL;
	struct err e;

	if (db_open(path, &d, &e) < 0 || tenants_put(d, &t, &e) < 0 || db_commit(d, &e) < 0) {
		printf("# %s\n", e.msg);
		abort();
	}
	return d;
}

struct seen {
	unsigned n;
	char text[512];
	int stop;
};

static void say(struct seen *s, const char *a, const char *b)
{
	size_t n = strlen(s->text);

	s->n++;
	snprintf(s->text + n, sizeof(s->text) - n, "%s=%s ", a, b ? b : "null");
}

static int see_tenant(void *arg, const struct tenant_row *t)
{
	struct seen *s = arg;

	say(s, t->id, t->memory == UINT64_MAX && t->rate_block_ms == 9 && t->created_ns == 10 ? "whole" : "wrong");
	return s->stop;
}

static int see_sandbox(void *arg, const struct sandbox_row *b)
{
	struct seen *s = arg;

	say(s, b->name, b->key);
	say(s, b->state,
	    b->handle == 0xfffffffffffffff0ULL && b->created_ns == 1 && b->next_exec >= 4 ? b->spec : "wrong");
	return s->stop;
}

static int see_exec(void *arg, const struct exec_row *x)
{
	struct seen *s = arg;

	say(s, x->id, x->result);
	return s->stop;
}

static int see_token(void *arg, const struct token_row *t)
{
	struct seen *s = arg;

	say(s, t->name,
	    t->hash[31] == 7 && !t->old_hash[0] && t->scope == 3 && t->rate_points == 11 ? t->tenant : "wrong");
	return s->stop;
}

TEST(a_new_file_is_private_and_opens_again)
{
	struct seen s = { 0 };
	struct stat st;
	struct err e;

	fresh();
	{
		AUTO(db_close) struct db *d = opened();

		CHECK(d);
		CHECK_EQ(stat(path, &st), 0);
		CHECK_EQ(st.st_mode & 0777, 0600);
	}
	{
		AUTO(db_close) struct db *d = NULL;

		CHECK_EQ(db_open(path, &d, &e), 0);
		CHECK_EQ(tenants_each(d, see_tenant, &s, &e), 0);
		CHECK_STR(s.text, "default=whole ");
	}
	gone();
}

TEST(what_was_not_committed_is_not_there)
{
	struct tenant_row t = a_tenant("other", 2);
	struct seen s = { 0 };
	struct err e;

	fresh();
	{
		AUTO(db_close) struct db *d = opened();

		CHECK_EQ(tenants_put(d, &t, &e), 0);
	}
	{
		AUTO(db_close) struct db *d = NULL;

		CHECK_EQ(db_open(path, &d, &e), 0);
		CHECK_EQ(tenants_each(d, see_tenant, &s, &e), 0);
		CHECK_STR(s.text, "default=whole ");
	}
	gone();
}

/* Of this process alone: others run on the machine. */
static uint64_t cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

TEST(a_commit_without_a_change_costs_nothing)
{
	struct err e;
	uint64_t start;

	fresh();
	{
		AUTO(db_close) struct db *d = opened();

		start = cpu_ns();
		for (unsigned i = 0; i < 100000; i++)
			CHECK_EQ(db_commit(d, &e), 0);
		CHECK((cpu_ns() - start) / 100000 < 1000);
	}
	gone();
}

TEST(sandboxes_are_stored_changed_and_deleted_with_their_execs)
{
	struct sandbox_row b = a_sandbox("b1", "one", "k"), c = a_sandbox("b2", "two", NULL);
	struct exec_row x = an_exec("x1", "b1", 1), y = an_exec("x2", "b1", 2), z = an_exec("x3", "b2", 1);
	struct seen s = { 0 };
	struct err e;

	fresh();
	{
		AUTO(db_close) struct db *d = opened();

		CHECK_EQ(sandboxes_insert(d, &b, &e), 0);
		CHECK_EQ(sandboxes_insert(d, &c, &e), 0);
		CHECK_EQ(execs_insert(d, &y, &e), 0);
		CHECK_EQ(execs_insert(d, &x, &e), 0);
		CHECK_EQ(execs_insert(d, &z, &e), 0);
		CHECK_EQ(execs_finish(d, "x1", "{\"code\":0}", 99, &e), 0);
		CHECK_EQ(execs_finish(d, "none", "{}", 99, &e), -ENOENT);
		c.name = "three";
		c.state = "paused";
		c.spec = "[2]";
		c.next_exec = 9;
		c.key = "new";
		CHECK_EQ(sandboxes_update(d, &c, &e), 0);
		c.id = "none";
		CHECK_EQ(sandboxes_update(d, &c, &e), -ENOENT);
		CHECK_EQ(e.kind, ERR_NOT_FOUND);
		CHECK_EQ(db_commit(d, &e), 0);
		CHECK_EQ(sandboxes_each(d, see_sandbox, &s, &e), 0);
		CHECK_STR(s.text, "one=k running={} three=new paused=[2] ");
		s = (struct seen){ 0 };
		CHECK_EQ(execs_each(d, see_exec, &s, &e), 0);
		CHECK_EQ(s.n, 3);
		CHECK_CONTAINS(s.text, "x1={\"code\":0} ");
		CHECK_EQ(sandboxes_delete(d, "b1", &e), 0);
		CHECK_EQ(sandboxes_delete(d, "b1", &e), 0);
		CHECK_EQ(execs_delete(d, "nope", &e), 0);
		CHECK_EQ(db_commit(d, &e), 0);
		s = (struct seen){ 0 };
		CHECK_EQ(execs_each(d, see_exec, &s, &e), 0);
		CHECK_STR(s.text, "x3=null ");
	}
	gone();
}

TEST(a_name_taken_is_a_conflict_and_the_turn_goes_on)
{
	struct sandbox_row b = a_sandbox("b1", "one", "k"), same_name = a_sandbox("b2", "one", NULL),
			   same_key = a_sandbox("b3", "three", "k"), nobody = a_sandbox("b4", "four", NULL),
			   fine = a_sandbox("b5", "five", NULL);
	struct seen s = { 0 };
	struct err e;

	fresh();
	nobody.tenant = "nobody";
	{
		AUTO(db_close) struct db *d = opened();

		CHECK_EQ(sandboxes_insert(d, &b, &e), 0);
		CHECK_EQ(sandboxes_insert(d, &same_name, &e), -EEXIST);
		CHECK_EQ(e.kind, ERR_CONFLICT);
		CHECK_EQ(sandboxes_insert(d, &same_key, &e), -EEXIST);
		CHECK_EQ(sandboxes_insert(d, &nobody, &e), -EEXIST);
		CHECK_EQ(sandboxes_insert(d, &fine, &e), 0);
		CHECK_EQ(tenants_delete(d, "default", &e), -EEXIST);
		CHECK_EQ(db_commit(d, &e), 0);
		CHECK_EQ(sandboxes_each(d, see_sandbox, &s, &e), 0);
		CHECK_EQ(s.n, 4);
	}
	gone();
}

TEST(a_tenants_number_is_never_used_again)
{
	struct tenant_row t = a_tenant("other", 0);
	uint64_t n = 0;
	struct err e;

	fresh();
	{
		AUTO(db_close) struct db *d = opened();

		CHECK_EQ(tenants_next(d, &n, &e), 0);
		CHECK_EQ(n, 2);
		t.number = n;
		CHECK_EQ(tenants_put(d, &t, &e), 0);
		CHECK_EQ(tenants_delete(d, "other", &e), 0);
		CHECK_EQ(db_commit(d, &e), 0);
		CHECK_EQ(tenants_next(d, &n, &e), 0);
		CHECK_EQ(n, 3);
	}
	gone();
}

TEST(tokens_go_with_their_tenant)
{
	struct token_row k = { .id = "k1", .tenant = "other", .name = "n", .scope = 3, .rate_points = 11 };
	struct tenant_row t = a_tenant("other", 2);
	struct seen s = { 0 };
	struct err e;

	fresh();
	k.hash[31] = 7;
	{
		AUTO(db_close) struct db *d = opened();

		CHECK_EQ(tokens_put(d, &k, &e), -EEXIST); /* no such tenant */
		CHECK_EQ(tenants_put(d, &t, &e), 0);
		CHECK_EQ(tokens_put(d, &k, &e), 0);
		k.name = "again";
		CHECK_EQ(tokens_put(d, &k, &e), 0);
		k.id = "k2"; /* the same hash twice */
		CHECK_EQ(tokens_put(d, &k, &e), -EEXIST);
		CHECK_EQ(tokens_each(d, see_token, &s, &e), 0);
		CHECK_STR(s.text, "again=other ");
		CHECK_EQ(tenants_delete(d, "other", &e), 0);
		s = (struct seen){ 0 };
		CHECK_EQ(tokens_each(d, see_token, &s, &e), 0);
		CHECK_EQ(s.n, 0);
	}
	gone();
}

TEST(each_stops_when_told)
{
	struct sandbox_row b = a_sandbox("b1", "one", NULL), c = a_sandbox("b2", "two", NULL);
	struct seen s = { .stop = 17 };
	struct err e;

	fresh();
	{
		AUTO(db_close) struct db *d = opened();

		CHECK_EQ(sandboxes_insert(d, &b, &e), 0);
		CHECK_EQ(sandboxes_insert(d, &c, &e), 0);
		CHECK_EQ(sandboxes_each(d, see_sandbox, &s, &e), 17);
		CHECK_EQ(s.n, 2); /* two words per sandbox */
	}
	gone();
}

TEST(answers_are_found_again_until_they_are_old)
{
	struct idem_row i = { .tenant = "default", .key = "k\"'; --", .body = { 1, 2, 3 }, .created_ns = 100 }, got;
	struct err e;

	fresh();
	{
		AUTO(db_close) struct db *d = opened();

		CHECK_EQ(idem_find(d, "default", i.key, &got, &e), 0);
		CHECK_EQ(idem_put(d, &i, &e), 0);
		CHECK_EQ(idem_find(d, "default", i.key, &got, &e), 1);
		CHECK_EQ(got.status, 0);
		CHECK(!got.answer);
		i.status = 201;
		i.answer = "{\"id\":\"x\"}";
		CHECK_EQ(idem_put(d, &i, &e), 0);
		CHECK_EQ(db_commit(d, &e), 0);
		CHECK_EQ(idem_find(d, "default", i.key, &got, &e), 1);
		CHECK_EQ(got.status, 201);
		CHECK_STR(got.answer, i.answer);
		CHECK_STR(got.key, i.key);
		CHECK(!memcmp(got.body, i.body, 32));
		CHECK_EQ(idem_find(d, "other", i.key, &got, &e), 0);
		CHECK_EQ(idem_prune(d, 100, &e), 0);
		CHECK_EQ(idem_find(d, "default", i.key, &got, &e), 1);
		CHECK_EQ(idem_prune(d, 101, &e), 0);
		CHECK_EQ(idem_find(d, "default", i.key, &got, &e), 0);
		CHECK_EQ(idem_put(d, &i, &e), 0);
		CHECK_EQ(idem_delete(d, "default", i.key, &e), 0);
		CHECK_EQ(idem_find(d, "default", i.key, &got, &e), 0);
	}
	gone();
}

static void poke(const char *sql)
{
	sqlite3 *s;

	if (sqlite3_open(path, &s) != SQLITE_OK || sqlite3_exec(s, sql, NULL, NULL, NULL) != SQLITE_OK)
		abort();
	sqlite3_close(s);
}

TEST(a_newer_schema_is_refused)
{
	struct db *d = NULL;
	struct err e;

	fresh();
	db_close(opened());
	poke("PRAGMA user_version=1000");
	CHECK_EQ(db_open(path, &d, &e), -EPROTO);
	CHECK_CONTAINS(e.msg, "1000");
	CHECK(e.remedy[0]);
	CHECK(!d);
	gone();
}

TEST(another_programs_file_is_refused_and_left_alone)
{
	struct db *d = NULL;
	struct err e;
	char head[20];
	int fd;

	fresh();
	poke("CREATE TABLE theirs (a); INSERT INTO theirs VALUES (1)");
	CHECK_EQ(db_open(path, &d, &e), -EBADMSG);
	CHECK_CONTAINS(e.msg, "another program");
	fd = open(path, O_RDONLY | O_CLOEXEC);
	CHECK_EQ(pread(fd, head, sizeof(head), 0), sizeof(head));
	close(fd);
	CHECK_EQ(head[18], 1); /* not made a WAL file */
	gone();
}

#define PAGE 4096

static void write_at(off_t at, const char *text, size_t n)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	if (fd < 0 || pwrite(fd, text, n, at) != (ssize_t)n)
		abort();
	close(fd);
}

/* Neither a page for what does not fit, nor the list of free ones: the row's own page, and the one of its name. */
TEST(a_usual_sandbox_costs_two_pages_when_it_comes_and_when_it_goes)
{
	struct sandbox_row b = a_sandbox("b1", "one", NULL);
	struct db *d = NULL;
	struct err e;
	uint64_t before;
	char spec[460];

	memset(spec, 'x', sizeof(spec) - 1);
	spec[sizeof(spec) - 1] = '\0';
	b.spec = spec;
	fresh();
	d = opened();
	for (int i = 0; i < 3; i++) {
		before = db_log_bytes(d);
		CHECK_EQ(sandboxes_insert(d, &b, &e), 0);
		CHECK_EQ(db_commit(d, &e), 0);
		CHECK(db_log_bytes(d) - before <= 2 * (PAGE + 24));
		before = db_log_bytes(d);
		CHECK_EQ(sandboxes_delete(d, b.id, &e), 0);
		CHECK_EQ(db_commit(d, &e), 0);
		CHECK(db_log_bytes(d) - before <= 2 * (PAGE + 24));
	}
	db_close(d);
	gone();
}

TEST(a_damaged_file_is_an_error_with_a_remedy)
{
	static char junk[PAGE];
	struct sandbox_row b = a_sandbox("b1", "one", NULL);
	struct db *d = NULL;
	struct err e;
	struct stat st;

	memset(junk, 0xa5, sizeof(junk));
	fresh();
	write_at(0, "this is not a database, whatever its name says; it only has text in it", 70);
	CHECK_EQ(db_open(path, &d, &e), -EBADMSG);
	CHECK(e.remedy[0]);
	gone();
	/* Any page of a real one: it is refused, or it works. It does not crash. */
	fresh();
	d = opened();
	CHECK_EQ(sandboxes_insert(d, &b, &e), 0);
	CHECK_EQ(db_commit(d, &e), 0);
	db_close(d);
	CHECK_EQ(stat(path, &st), 0);
	CHECK(st.st_size >= 8 * PAGE);
	for (off_t at = PAGE; at < st.st_size; at += PAGE) {
		char saved[PAGE];
		int fd = open(path, O_RDONLY | O_CLOEXEC);

		CHECK_EQ(pread(fd, saved, sizeof(saved), at), sizeof(saved));
		close(fd);
		write_at(at, junk, sizeof(junk));
		d = NULL;
		CHECK_EQ(db_open(path, &d, &e), -EBADMSG);
		CHECK(e.remedy[0]);
		write_at(at, saved, sizeof(saved));
	}
	CHECK_EQ(db_open(path, &d, &e), 0);
	db_close(d);
	gone();
}

TEST(what_is_no_file_is_refused)
{
	struct db *d = NULL;
	struct err e;
	char other[128];

	fresh();
	CHECK_EQ(mkfifo(path, 0600), 0);
	CHECK_EQ(db_open(path, &d, &e), -EINVAL);
	unlink(path);
	snprintf(other, sizeof(other), "%s/other", folder);
	CHECK_EQ(symlink(other, path), 0);
	CHECK_EQ(db_open(path, &d, &e), -ELOOP);
	gone();
}

TEST(a_checkpoint_shrinks_what_must_be_read_while_the_turn_is_open)
{
	struct err e;
	struct exec_row x = an_exec("", "b1", 0);
	struct sandbox_row b = a_sandbox("b1", "one", NULL);
	char id[32], wal[128], spec[1000];
	uint64_t before;
	struct stat st;

	fresh();
	memset(spec, 'x', sizeof(spec) - 1);
	spec[sizeof(spec) - 1] = '\0';
	snprintf(wal, sizeof(wal), "%s-wal", path);
	{
		AUTO(db_close) struct db *d = opened();

		CHECK_EQ(sandboxes_insert(d, &b, &e), 0);
		for (unsigned i = 0; db_log_bytes(d) < DB_LOG_MAX && i < 100000; i++) {
			snprintf(id, sizeof(id), "x%u", i);
			x.id = id;
			x.number = i;
			x.spec = spec;
			CHECK_EQ(execs_insert(d, &x, &e), 0);
			CHECK_EQ(db_commit(d, &e), 0);
		}
		before = db_log_bytes(d);
		CHECK(before >= DB_LOG_MAX);
		CHECK_EQ(stat(wal, &st), 0);
		CHECK(st.st_size >= (off_t)DB_LOG_MAX);
		/* In the middle of a turn: it neither waits for it nor disturbs it. */
		CHECK_EQ(execs_delete(d, "x0", &e), 0);
		CHECK_EQ(db_checkpoint(path), 0);
		CHECK_EQ(db_commit(d, &e), 0);
		CHECK_EQ(db_checkpoint(path), 0);
		/* All of it is in the file: the next turn begins the log anew. */
		CHECK_EQ(execs_delete(d, "x1", &e), 0);
		CHECK_EQ(db_commit(d, &e), 0);
		CHECK(db_log_bytes(d) < before / 10);
	}
	gone();
}

TEST(a_log_that_has_become_huge_is_cut)
{
	struct sandbox_row b = a_sandbox("b1", "one", NULL);
	AUTO_FREE char *spec = malloc(MIB);
	char id[32], wal[128];
	struct stat st;
	struct err e;

	memset(spec, 'x', MIB - 1);
	spec[MIB - 1] = '\0';
	fresh();
	snprintf(wal, sizeof(wal), "%s-wal", path);
	{
		AUTO(db_close) struct db *d = opened();

		CHECK_EQ(sandboxes_insert(d, &b, &e), 0);
		for (uint32_t i = 1; i <= 66; i++) {
			struct exec_row x = an_exec(id, "b1", i);

			snprintf(id, sizeof(id), "x%u", i);
			x.spec = spec;
			CHECK_EQ(execs_insert(d, &x, &e), 0);
			CHECK_EQ(db_commit(d, &e), 0);
		}
		CHECK_EQ(stat(wal, &st), 0);
		CHECK(st.st_size > (off_t)(64 * MIB));
		CHECK_EQ(db_checkpoint(path), 0);
		CHECK_EQ(stat(wal, &st), 0);
		CHECK_EQ(st.st_size, 0);
		CHECK_EQ(execs_delete(d, "x1", &e), 0);
		CHECK_EQ(db_commit(d, &e), 0);
	}
	gone();
}

static int count_exec(void *arg, const struct exec_row *x)
{
	unsigned *n = arg;

	if (x->number != *n + 1)
		return -EBADMSG;
	*n = x->number;
	return 0;
}

/* Stores rows for ever, and writes the number of each to @out when it is stored. */
static void writer(int out, uint32_t from)
{
	struct db *d = NULL;
	struct err e;
	char id[32];

	if (db_open(path, &d, &e) < 0) {
		printf("# %s\n", e.msg);
		_exit(1);
	}
	for (uint32_t i = from;; i++) {
		struct exec_row x = an_exec(id, "b1", i);

		snprintf(id, sizeof(id), "x%u", i);
		if (execs_insert(d, &x, &e) < 0 || db_commit(d, &e) < 0 || write(out, &i, sizeof(i)) != sizeof(i)) {
			printf("# %s\n", e.msg);
			_exit(1);
		}
		if (i % 500 == 0)
			db_checkpoint(path);
	}
}

/* Runs a writer for @ms, reads its numbers, kills it; returns the last number, 0 when it ended by itself. */
static uint32_t kill_writer(uint32_t from, unsigned ms)
{
	uint64_t end = clock_mono_ns() + ms * 1000000ULL;
	uint32_t last = from - 1, got[64];
	int p[2], status;
	pid_t pid;

	if (pipe2(p, O_CLOEXEC) < 0)
		abort();
	pid = fork();
	if (pid == 0) {
		close(p[0]);
		writer(p[1], from);
	}
	close(p[1]);
	/* At least one, however slow the machine is. */
	for (bool any = false; !any || clock_mono_ns() < end; any = true) {
		ssize_t n = read(p[0], got, sizeof(got));

		if (n <= 0)
			break;
		last = got[(size_t)n / 4 - 1];
	}
	kill(pid, SIGKILL);
	/* Numbers that it wrote before it died count, too. */
	for (ssize_t n; (n = read(p[0], got, sizeof(got))) > 0;)
		last = got[(size_t)n / 4 - 1];
	close(p[0]);
	waitpid(pid, &status, 0);
	return WIFSIGNALED(status) ? last : 0;
}

TEST(after_kill_9_everything_that_was_told_is_there)
{
	struct sandbox_row b = a_sandbox("b1", "one", NULL);
	uint32_t told = 0;
	unsigned n;
	struct err e;
	struct db *d;

	fresh();
	d = opened();
	CHECK_EQ(sandboxes_insert(d, &b, &e), 0);
	CHECK_EQ(db_commit(d, &e), 0);
	db_close(d);
	for (unsigned i = 0; i < 20; i++) {
		told = kill_writer(told + 1, 20 + i * 3);
		CHECK(told);
		n = 0;
		CHECK_EQ(db_open(path, &d, &e), 0);
		CHECK_EQ(execs_each(d, count_exec, &n, &e), 0);
		db_close(d);
		CHECK(n == told || n == told + 1); /* one may have been stored without its number being written */
		told = n;
	}
	printf("# %u rows through 20 kills\n", told);
	CHECK(told > 100);
	gone();
}

TEST(figures_per_row)
{
	struct sandbox_row b = a_sandbox("b1", "one", NULL);
	uint64_t start, alone, together;
	struct err e;
	char id[32];

	fresh();
	{
		AUTO(db_close) struct db *d = opened();

		CHECK_EQ(sandboxes_insert(d, &b, &e), 0);
		start = cpu_ns();
		for (uint32_t i = 1; i <= 2000; i++) {
			struct exec_row x = an_exec(id, "b1", i);

			snprintf(id, sizeof(id), "x%u", i);
			CHECK_EQ(execs_insert(d, &x, &e), 0);
			CHECK_EQ(db_commit(d, &e), 0);
		}
		alone = (cpu_ns() - start) / 2000;
		start = cpu_ns();
		for (uint32_t i = 2001; i <= 4000; i++) {
			struct exec_row x = an_exec(id, "b1", i);

			snprintf(id, sizeof(id), "x%u", i);
			CHECK_EQ(execs_insert(d, &x, &e), 0);
		}
		CHECK_EQ(db_commit(d, &e), 0);
		together = (cpu_ns() - start) / 2000;
		printf("# %.1f us of CPU per row with its own commit, %.1f us when 2000 share one\n",
		       (double)alone / 1e3, (double)together / 1e3);
	}
	gone();
}

static int see_template(void *arg, const struct template_row *t)
{
	struct seen *s = arg;
	char text[64];

	snprintf(text, sizeof(text), "%llu,%llu,%llu,%s", (unsigned long long)t->version,
		 (unsigned long long)t->created_ns, (unsigned long long)t->updated_ns, t->spec);
	say(s, t->name, text);
	return s->stop;
}

static int see_pool(void *arg, const struct pool_row *p)
{
	struct seen *s = arg;
	char text[64];

	snprintf(text, sizeof(text), "%s,%u,%u,%llu", p->template, p->min, p->max, (unsigned long long)p->created_ns);
	say(s, p->name, text);
	return s->stop;
}

TEST(templates_and_pools_are_kept_and_go_with_what_they_stand_on)
{
	struct template_row t = { "default", "t", 1, "{}", 5, 5 };
	struct pool_row p = { "id1", "default", "p", "t", 2, 3, 6 };
	struct seen s = { 0 }, after = { 0 };
	struct err e;

	fresh();
	{
		AUTO(db_close) struct db *d = opened();

		CHECK_EQ(pools_put(d, &p, &e), -EEXIST); /* no such template */
		CHECK_EQ(templates_put(d, &t, &e), 0);
		t = (struct template_row){ "default", "t", 2, "{2}", 99, 7 };
		CHECK_EQ(templates_put(d, &t, &e), 0);
		t.name = "u";
		CHECK_EQ(templates_put(d, &t, &e), 0);
		CHECK_EQ(pools_put(d, &p, &e), 0);
		p.template = "u";
		p.min = 9;
		p.created_ns = 99;
		CHECK_EQ(pools_put(d, &p, &e), 0);
		p.id = "id2";
		CHECK_EQ(pools_put(d, &p, &e), -EEXIST); /* the name is taken */
		p.name = "q";
		p.template = "t";
		CHECK_EQ(pools_put(d, &p, &e), 0);
		t.tenant = "nobody";
		CHECK_EQ(templates_put(d, &t, &e), -EEXIST);
		CHECK_EQ(db_commit(d, &e), 0);
	}
	{
		AUTO(db_close) struct db *d = opened();

		CHECK_EQ(templates_each(d, see_template, &s, &e), 0);
		CHECK_EQ(pools_each(d, see_pool, &s, &e), 0);
		CHECK_STR(s.text, "t=2,5,7,{2} u=2,99,7,{2} p=u,9,3,6 q=t,9,3,99 ");
		CHECK_EQ(templates_delete(d, "default", "t", &e), 0); /* q goes with it */
		CHECK_EQ(templates_delete(d, "default", "t", &e), 0);
		CHECK_EQ(pools_delete(d, "id1", &e), 0);
		CHECK_EQ(pools_each(d, see_pool, &after, &e), 0);
		CHECK_EQ(after.n, 0);
		CHECK_EQ(tenants_delete(d, "default", &e), 0);
		CHECK_EQ(templates_each(d, see_template, &after, &e), 0);
		CHECK_EQ(after.n, 0);
		CHECK_EQ(db_commit(d, &e), 0);
	}
	gone();
}
