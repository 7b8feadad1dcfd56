#include "driver/driver.h"
#include "base/base.h"
#include "base/test.h"
#include "driver/exec.h"
#include "warden/warden_test.h"

#include <sys/stat.h>

static const char *const plain_env[] = { "PATH=/usr/bin:/bin", "HOME=/home/user" };

struct done {
	int status; /* -1: no answer */
	char out[8192];
};

struct box {
	struct sandbox s;
	bool made;
	uint32_t next;
};

static bool box_open(struct engine *g, const struct sandbox_spec *spec, struct box *b)
{
	struct err e = { 0 };
	int r;

	b->next = 1;
	b->made = false;
	r = container_driver.create(g, spec, &b->s, &e);
	if (r == 0) {
		b->made = true;
		r = sandbox_wait_up(&b->s, 10000, &e);
	}
	if (r < 0)
		printf("# create: %s\n", e.msg);
	return r == 0;
}

static int box_close(struct box *b)
{
	struct err e = { 0 };
	int r;

	if (!b->made)
		return -ENOENT;
	b->made = false;
	r = b->s.driver->destroy(&b->s, &e);
	if (r < 0)
		printf("# destroy: %s\n", e.msg);
	return r;
}

/* Sends one exec with stdout on a pipe whose reading end is returned. */
static int start(struct box *b, const char *const *argv, uint32_t uid, int out)
{
	struct exec_spec x = {
		.argv = argv, .envp = plain_env, .envc = ARRAY_LEN(plain_env), .cwd = "/home/user", .uid = uid, .gid = uid,
		.filter = -1, .nofile = 256,
	};
	AUTO_CLOSE int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	const int stdio[3] = { null, out, out };
	struct err e = { 0 };
	int r;

	while (argv[x.argc])
		x.argc++;
	r = exec_send(&b->s, b->next, &x, stdio, &e);
	if (r < 0) {
		printf("# exec: %s\n", e.msg);
		return r;
	}
	return (int)b->next++;
}

static int wait_exit(struct box *b, uint32_t *ret_id)
{
	for (;;) {
		struct frame_exited x;
		struct frame f;
		int fd = -1, r = link_next(&b->s.link, 20000, &f, &fd);

		fd_close(fd);
		if (r <= 0)
			return -1;
		if (ret_id)
			*ret_id = f.id;
		if (f.type == FRAME_FAILED)
			return -1;
		if (f.type == FRAME_EXITED && frame_exited_decode(&f, &x) == 0)
			return x.status;
	}
}

static void read_all(int fd, char *buf, size_t size)
{
	size_t have = 0;
	ssize_t n;

	while (have < size - 1 && (n = read(fd, buf + have, size - 1 - have)) > 0)
		have += (size_t)n;
	buf[have] = '\0';
}

static struct done run(struct box *b, const char *const *argv, uint32_t uid)
{
	struct done d = { .status = -1 };
	int p[2];

	if (pipe2(p, O_CLOEXEC) < 0)
		return d;
	if (start(b, argv, uid, p[1]) > 0) {
		fd_close(TAKE_FD(p[1]));
		d.status = wait_exit(b, NULL);
		read_all(p[0], d.out, sizeof(d.out));
	}
	fd_close(p[1]);
	fd_close(p[0]);
	return d;
}

static struct done sh(struct box *b, const char *text)
{
	const char *const argv[] = { "/bin/sh", "-c", text, NULL };

	return run(b, argv, 1000);
}

/* An engine on a warden in a process of its own. */
static struct engine *engine_open(struct wt *w, const char *const *more)
{
	struct engine_opts o = { .remote = true };
	struct engine *g = NULL;
	struct err e = { 0 };

	if (!wt_start(w, more))
		return NULL;
	o.warden_fd = TAKE_FD(w->sock);
	if (engine_new(&o, &g, &e) < 0)
		printf("# engine: %s\n", e.msg);
	return g;
}

/* The first two words of a test of one engine with one sandbox. */
struct stand {
	struct wt w;
	struct engine *g;
	struct sandbox_spec spec;
	struct box b;
};

static bool stand_open(struct stand *s, const char *const *more)
{
	*s = (struct stand){ 0 };
	wt_spec(&s->spec);
	s->g = engine_open(&s->w, more);
	return s->g != NULL;
}

static int stand_close(struct stand *s)
{
	if (s->b.made)
		box_close(&s->b);
	engine_free(s->g);
	return wt_stop(&s->w);
}

TEST(a_command_runs_and_its_exit_code_comes_back)
{
	static struct stand s;
	struct done d;

	CHECK(stand_open(&s, NULL));
	CHECK(box_open(s.g, &s.spec, &s.b));
	CHECK_EQ(s.b.s.receipt.idmapped, true);
	CHECK(s.b.s.receipt.landlock_abi > 0);
	d = sh(&s.b, "true");
	CHECK_EQ(d.status, 0);
	d = sh(&s.b, "id -u; exit 7");
	CHECK(WIFEXITED(d.status));
	CHECK_EQ(WEXITSTATUS(d.status), 7);
	CHECK_STR(d.out, "1000\n");
	CHECK_EQ(box_close(&s.b), 0);
	CHECK_EQ(stand_close(&s), 0);
}

TEST(two_sandboxes_do_not_see_each_other)
{
	static struct stand s;
	static struct box other;

	CHECK(stand_open(&s, NULL));
	CHECK(box_open(s.g, &s.spec, &s.b));
	CHECK(box_open(s.g, &s.spec, &other));
	CHECK_EQ(sh(&s.b, "echo mine > /tmp/x; echo mine > /home/user/x").status, 0);
	CHECK(sh(&other, "cat /tmp/x /home/user/x").status != 0);
	CHECK_EQ(sh(&s.b, "cat /tmp/x").status, 0);
	CHECK_EQ(box_close(&s.b), 0);
	CHECK_EQ(sh(&other, "true").status, 0);
	CHECK_EQ(box_close(&other), 0);
	CHECK_EQ(stand_close(&s), 0);
}
