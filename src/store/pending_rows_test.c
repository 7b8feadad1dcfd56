#include "store/pending_rows.h"
#include "base/base.h"
#include "base/test.h"
#include "store/db.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define TEXT 256

static char folder[64], path[96], late[112];

static void fresh(void)
{
	snprintf(folder, sizeof(folder), "/tmp/cloche-late-XXXXXX");
	if (!mkdtemp(folder))
		abort();
	snprintf(path, sizeof(path), "%s/state.db", folder);
	snprintf(late, sizeof(late), "%s-late", path);
}

static void gone(void)
{
	static const char *const ends[] = { "", "-wal", "-shm", "-late" };
	char name[128];

	for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
		snprintf(name, sizeof(name), "%s%s", path, ends[i]);
		unlink(name);
	}
	CHECK_EQ(rmdir(folder), 0);
}

static struct db *opened(void)
{
	const struct tenant_row t = { .id = "default", .number = 1 };
	struct db *d = NULL;
	struct err e;

	if (db_open(path, &d, &e) < 0 || tenants_put(d, &t, &e) < 0 || db_commit(d, &e) < 0) {
		printf("# %s\n", e.msg);
		abort();
	}
	return d;
}

static struct sandbox_row a_sandbox(const char *id)
{
	return (struct sandbox_row){ .id = id,
				     .tenant = "default",
				     .name = id,
				     .handle = UINT64_MAX - 1,
				     .state = "running",
				     .spec = "{\"a\":\"\u00e9\"}",
				     .created_ns = (uint64_t)id[0],
				     .expires_ns = 2,
				     .used_ns = 3,
				     .next_exec = 4,
				     .layers = "l1 l2",
				     .tree = 7 };
}

static int see(void *arg, const struct sandbox_row *b)
{
	const struct sandbox_row want = a_sandbox("x");
	char *text = arg;
	bool whole = b->handle == want.handle && !strcmp(b->tenant, "default") && !strcmp(b->name, b->id) &&
		     !strcmp(b->spec, want.spec) && b->expires_ns == 2 && b->used_ns == 3 && b->next_exec == 4 &&
		     !strcmp(b->layers, "l1 l2") && !strcmp(b->checkpoint, "") && b->tree == 7 && !b->key;

	snprintf(text + strlen(text), TEXT - strlen(text), "%s%s ", b->id, whole ? "" : "=wrong");
	return 0;
}

static int insert(struct db *d, const char *id)
{
	const struct sandbox_row b = a_sandbox(id);
	struct err e;

	return sandboxes_insert_pending(d, &b, &e);
}

/* What another process finds: db_open reads the file. */
static const char *found(void)
{
	static char text[TEXT];
	struct err e = { 0 };
	struct db *d = opened();

	text[0] = '\0';
	if (sandboxes_each(d, see, text, &e) < 0)
		snprintf(text, sizeof(text), "%s", e.msg);
	db_close(d);
	return text;
}

/* Runs @fn in a process that ends without another word. */
static void killed(void (*fn)(struct db *d))
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		fn(opened());
		_exit(0);
	}
	if (waitpid(pid, &status, 0) != pid || status)
		abort();
}

static off_t size_of(const char *name)
{
	struct stat st;

	return stat(name, &st) < 0 ? -1 : st.st_size;
}

static void two_turns(struct db *d)
{
	struct err e;

	if (insert(d, "a") < 0 || insert(d, "b") < 0 || db_commit(d, &e) < 0 || insert(d, "c") < 0 ||
	    sandboxes_delete(d, "a", &e) < 0 || db_commit(d, &e) < 0 || insert(d, "never") < 0)
		abort();
}

TEST(what_was_committed_outlives_a_kill_and_nothing_else_does)
{
	fresh();
	killed(two_turns);
	CHECK_STR(found(), "b c ");
	CHECK_STR(found(), "b c ");
	gone();
}

static void one_turn_more(struct db *d)
{
	struct err e;

	if (insert(d, "d") < 0 || db_commit(d, &e) < 0)
		abort();
}

TEST(who_comes_after_a_kill_may_be_killed_as_well)
{
	fresh();
	killed(two_turns);
	killed(one_turn_more);
	CHECK_STR(found(), "b c d ");
	gone();
}

TEST(one_that_lives_shortly_costs_the_database_nothing)
{
	struct db *d;
	uint64_t before;
	struct err e;

	fresh();
	d = opened();
	before = db_log_bytes(d);
	for (int i = 0; i < 500; i++) {
		CHECK_EQ(insert(d, "a"), 0);
		CHECK_EQ(db_commit(d, &e), 0);
		CHECK_EQ(sandboxes_delete(d, "a", &e), 0);
		CHECK_EQ(db_commit(d, &e), 0);
	}
	CHECK_EQ(db_log_bytes(d), before);
	CHECK(size_of(late) > 0 && size_of(late) < (off_t)(80 * KIB));
	CHECK_EQ(db_settle(d, &e), 0);
	db_close(d);
	CHECK_EQ(size_of(late), -1);
	CHECK_STR(found(), "");
	gone();
}

TEST(what_stands_on_a_row_finds_it)
{
	const struct exec_row x = { .id = "x", .sandbox = "a", .number = 1, .spec = "{}" };
	struct sandbox_row b = a_sandbox("b");
	char text[TEXT] = "";
	struct db *d;
	struct err e;

	fresh();
	d = opened();
	CHECK_EQ(insert(d, "a"), 0);
	CHECK_EQ(insert(d, "b"), 0);
	CHECK_EQ(db_commit(d, &e), 0);
	CHECK_EQ(execs_insert(d, &x, &e), 0);
	CHECK_EQ(sandboxes_update(d, &b, &e), 0);
	CHECK_EQ(db_commit(d, &e), 0);
	CHECK_EQ(db_settle(d, &e), 0);
	CHECK_EQ(tenants_delete(d, "default", &e), -EEXIST);
	CHECK_EQ(insert(d, "c"), 0);
	CHECK_EQ(sandboxes_each(d, see, text, &e), 0);
	CHECK_STR(text, "a b c ");
	CHECK_EQ(sandboxes_delete(d, "a", &e), 0);
	CHECK_EQ(sandboxes_delete(d, "c", &e), 0);
	CHECK_EQ(db_commit(d, &e), 0);
	db_close(d);
	CHECK_STR(found(), "b ");
	gone();
}

/* "a" is in both, then deleted while the file still has "b". */
static void settled_beside_another(struct db *d)
{
	struct err e;

	if (insert(d, "a") < 0 || db_commit(d, &e) < 0 || db_settle(d, &e) != 1 || insert(d, "b") < 0 ||
	    db_commit(d, &e) < 0 || sandboxes_delete(d, "a", &e) < 0 || db_commit(d, &e) < 0)
		abort();
}

TEST(one_that_was_settled_and_deleted_does_not_come_back)
{
	fresh();
	killed(settled_beside_another);
	CHECK_STR(found(), "b ");
	gone();
}

/* As if it had died between the database's commit and the emptying of the file. */
TEST(rows_in_both_places_are_one)
{
	char saved[4096];
	struct db *d;
	struct err e;
	ssize_t n;
	int fd;

	fresh();
	d = opened();
	CHECK_EQ(insert(d, "a"), 0);
	CHECK_EQ(insert(d, "b"), 0);
	CHECK_EQ(db_commit(d, &e), 0);
	fd = open(late, O_RDWR | O_CLOEXEC);
	n = pread(fd, saved, sizeof(saved), 0);
	CHECK(n > 100 && n < (ssize_t)sizeof(saved));
	CHECK_EQ(db_settle(d, &e), 1);
	CHECK_EQ(db_commit(d, &e), 0);
	CHECK(size_of(late) < 100);
	db_close(d);
	close(fd);
	fd = open(late, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	CHECK_EQ(pwrite(fd, saved, (size_t)n, 0), n);
	close(fd);
	CHECK_STR(found(), "a b ");
	gone();
}

TEST(a_torn_or_altered_end_is_left_out_and_another_boot_all)
{
	char saved[4096], bad[4096];
	unsigned whole = 0;
	struct db *d;
	struct err e;
	ssize_t n;
	int fd;

	fresh();
	d = opened();
	CHECK_EQ(insert(d, "a"), 0);
	CHECK_EQ(insert(d, "b"), 0);
	CHECK_EQ(db_commit(d, &e), 0);
	fd = open(late, O_RDONLY | O_CLOEXEC);
	n = pread(fd, saved, sizeof(saved), 0);
	close(fd);
	CHECK(n > 100 && n < (ssize_t)sizeof(saved));
	CHECK_EQ(sandboxes_delete(d, "a", &e), 0);
	CHECK_EQ(sandboxes_delete(d, "b", &e), 0);
	CHECK_EQ(db_commit(d, &e), 0);
	db_close(d);
	for (ssize_t at = 0; at < n; at += 13) {
		for (int cut = 0; cut < 2; cut++) {
			const char *text;

			memcpy(bad, saved, sizeof(bad));
			bad[at] ^= 0x41;
			fd = open(late, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
			CHECK_EQ(write(fd, bad, cut ? (size_t)at : (size_t)n), cut ? at : n);
			close(fd);
			text = found();
			CHECK(!strcmp(text, "") || !strcmp(text, "a "));
			whole += text[0] == 'a';
			d = opened();
			CHECK_EQ(sandboxes_delete(d, "a", &e), 0);
			CHECK_EQ(db_commit(d, &e), 0);
			db_close(d);
		}
	}
	CHECK(whole > 4);
	gone();
}

TEST(a_large_row_and_many_rows_are_stored_too)
{
	AUTO_FREE char *spec = malloc(100 * KIB);
	struct sandbox_row b = a_sandbox("big");
	char name[16];
	struct db *d;
	struct err e;

	fresh();
	d = opened();
	memset(spec, 'x', 100 * KIB - 1);
	spec[100 * KIB - 1] = '\0';
	b.spec = spec;
	CHECK_EQ(sandboxes_insert_pending(d, &b, &e), 0);
	for (int i = 0; i < 8000; i++) {
		snprintf(name, sizeof(name), "n%d", i);
		CHECK_EQ(insert(d, name), 0);
		if (i % 100 == 99)
			CHECK_EQ(db_commit(d, &e), 0);
	}
	CHECK(size_of(late) < (off_t)(100 * KIB));
	for (int i = 0; i < 8000; i++) {
		snprintf(name, sizeof(name), "n%d", i);
		CHECK_EQ(sandboxes_delete(d, name, &e), 0);
	}
	CHECK_EQ(db_commit(d, &e), 0);
	db_close(d);
	CHECK_STR(found(), "big=wrong ");
	gone();
}

static void one_turn(struct db *d)
{
	struct err e;

	if (insert(d, "a") < 0 || db_commit(d, &e) < 0)
		abort();
}

static void fill(const char *name)
{
	static const char some[4096];
	int fd = open(name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	while (write(fd, some, sizeof(some)) > 0)
		continue;
	close(fd);
}

/* On a disk of its own, which no other process sees. */
static int on_a_full_disk(void)
{
	struct err e = { 0 };
	struct db *d = NULL;
	char name[128];
	int r;

	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("none", folder, "tmpfs", 0, "size=1m") < 0)
		return 2;
	killed(one_turn);
	snprintf(name, sizeof(name), "%s-shm", path);
	unlink(name); /* the file that SQLite creates first */
	snprintf(name, sizeof(name), "%s/fill", folder);
	fill(name);
	r = db_open(path, &d, &e);
	if (r != -ENOSPC || e.errnum != ENOSPC || e.kind != ERR_EXHAUSTED) {
		printf("# %d %s\n", r, e.msg);
		return 3;
	}
	return truncate(name, 0) < 0 || strcmp(found(), "a ") ? 4 : 0;
}

TEST(a_full_disk_is_told_as_one_and_costs_no_row)
{
	pid_t pid;
	int status = -1;

	fresh();
	pid = fork();
	if (pid == 0)
		_exit(on_a_full_disk());
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
	gone();
}
