/* The agent's table of execs, as a host sees it: with the real programs. */
#include "proto/table.h"
#include "base/base.h"
#include "base/sys.h"
#include "base/test.h"
#include "engine/sandbox/persist_test.h"
#include "proto/memory.h"

static struct table is;

/* Until @n execs are in it, of which @ended have ended. */
static bool shows(int fd, unsigned n, unsigned ended)
{
	for (unsigned tries = 0; tries < 5000; tries++) {
		unsigned used = 0, over = 0;
		int r = table_read(fd, &is);

		for (unsigned i = 0; r == 0 && i < TABLE_EXECS; i++) {
			used += is.exec[i].flags & TABLE_USED;
			over += !!(is.exec[i].flags & TABLE_ENDED);
		}
		if (r == 0 && used == n && over == ended)
			return true;
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	}
	return false;
}

static const struct table_exec *find(uint32_t id)
{
	for (unsigned i = 0; i < TABLE_EXECS; i++)
		if (is.exec[i].flags && is.exec[i].id == id)
			return &is.exec[i];
	return NULL;
}

/* The agent's descriptor is an end of the pipe that @ours is the other one of. */
static bool same_pipe(int pidfd, int theirs, int ours)
{
	AUTO_CLOSE int fd = sys_pidfd_getfd(pidfd, theirs);
	struct stat a, b;

	return fd >= 0 && fstat(fd, &a) == 0 && fstat(ours, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

TEST(execs_come_change_and_go_in_the_agents_table)
{
	AUTO_CLOSE int table = -1;
	struct client_sandbox s;
	struct sandbox_spec spec;
	struct kt_pipes x, y;
	struct err e = { 0 };
	struct kt_peer p;
	struct frame f;
	struct wt w;
	int fds[8];

	wt_spec(&spec);
	kt_fresh();
	CHECK(wt_open(&w, kt_args()));
	CHECK_EQ(client_create(w.client, &spec, &s, &e), 0);
	kt_open(&p, TAKE_FD(s.sock));
	CHECK(kt_wait(&p, FRAME_UP, 0, &f, fds));
	CHECK(kt_exec(&p, 7, "read line; echo $line; exec sleep 100", -1, &x));
	CHECK(kt_exec(&p, 8, "echo two", -1, &y));
	CHECK(kt_wait(&p, FRAME_EXITED, 8, &f, fds));
	table = sys_pidfd_getfd(s.pidfd, FRAME_KEEP_TABLE);
	CHECK(table >= 0);
	CHECK_EQ(table_is(table), 0);
	CHECK(shows(table, 2, 1));
	CHECK(find(7) && find(8));
	CHECK_EQ(find(7)->flags, TABLE_USED | TABLE_KEEP | TABLE_STDIN);
	CHECK(find(7)->pid > 1);
	CHECK(same_pipe(s.pidfd, find(7)->fd[MEM_STDIN], x.in));
	CHECK(same_pipe(s.pidfd, find(7)->fd[MEM_STDOUT], x.out));
	CHECK(same_pipe(s.pidfd, find(7)->fd[MEM_STDERR], x.err));
	CHECK(find(7)->fd[MEM_TTY] == -1 && find(7)->fd[MEM_WARM] == -1);
	CHECK_EQ(find(8)->flags, TABLE_USED | TABLE_KEEP | TABLE_STDIN | TABLE_ENDED);

	CHECK(kt_send(&p, FRAME_RELEASE, 8, NULL, 0, NULL, 0));
	CHECK(kt_send(&p, FRAME_CLOSE_STDIN, 7, NULL, 0, NULL, 0));
	CHECK(kt_send(&p, FRAME_PING, 0, NULL, 0, NULL, 0));
	CHECK(kt_wait(&p, FRAME_PONG, 0, &f, fds));
	CHECK(shows(table, 1, 0));
	CHECK_EQ(find(7)->fd[MEM_STDIN], -1);
	CHECK(find(7)->flags & TABLE_STDIN);
	/* An exec without KEEP is in the table, too: it is a process like any other. */
	CHECK(kt_send(&p, FRAME_RELEASE, 7, NULL, 0, NULL, 0));
	CHECK(kt_send(&p, FRAME_PING, 0, NULL, 0, NULL, 0));
	CHECK(kt_wait(&p, FRAME_PONG, 0, &f, fds));
	CHECK(shows(table, 1, 0));
	CHECK_EQ(find(7)->flags, TABLE_USED | TABLE_STDIN);
	CHECK_EQ(find(7)->fd[MEM_STDOUT], -1);
	kt_pipes_close(&x);
	kt_pipes_close(&y);
	kt_close(&p);
	CHECK_EQ(client_destroy(w.client, s.handle, &e), 0);
	client_sandbox_done(&s);
	CHECK_EQ(wt_stop(&w), 0);
	kt_remove_state();
}
