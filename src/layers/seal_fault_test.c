/* Sealing in this process: when any one call fails, and where mounts must be attached to be stacked (older kernels). */
#include "engine/sandbox/sandbox.h"
#include "base/base.h"
#include "base/test.h"
#include "engine/kernel_memory/looks.h"
#include "layers/seal_test.h"

static struct warden *open_warden(void)
{
	char agent[512], layers[512];
	struct warden_opts o = { .looker = &kernel_looker_threads,
				 .env.freezer = true,
				 .env.accounting = true,
				 .env.agent = agent,
				 .env.layers = st_store,
				 .env.layers_program = layers };
	struct warden *w = NULL;
	struct err e = { 0 };

	if (!wt_program("cloche-agent", agent, sizeof(agent)) ||
	    !wt_program("faulty/cloche-layers", layers, sizeof(layers)) || warden_new(&o, &w, &e) < 0)
		printf("# %s\n", e.msg);
	return w;
}

static bool make(struct warden *w, const struct sandbox_spec *spec, struct st_box *b, struct warden_sandbox **ret)
{
	struct err e = { 0 };
	struct frame f;
	int fds[8];

	memset(b, 0, sizeof(*b));
	if (warden_create(w, spec, ret, &e) < 0) {
		printf("# create: %s\n", e.msg);
		return false;
	}
	kt_open(&b->p, fcntl(warden_sock(*ret), F_DUPFD_CLOEXEC, 3));
	return kt_wait(&b->p, FRAME_UP, 0, &f, fds);
}

/* Starts a seal, and waits for its end. */
static int seal(struct warden *w, struct warden_sandbox *s, const char *id, struct warden_done *d)
{
	struct pollfd p = { .fd = warden_done_fd(w), .events = POLLIN };
	struct err e = { 0 };
	int r = warden_seal(w, s, id, WARDEN_FILES, NULL, &e);

	if (r < 0)
		return r;
	while (!warden_done(w, d))
		if (poll(&p, 1, 20000) != 1)
			return -ETIMEDOUT;
	return d->result;
}

static const char some[] = "cd /home/user; mkdir -p d/e; echo 1 > d/f; ln d/f d/g; ln -s x l; mkfifo p; "
			   "truncate -s 1M s; printf x >> s";

TEST(in_process_a_layer_is_made_and_stood_on)
{
	unsigned fds = wt_fds(getpid());
	struct warden_sandbox *s, *t;
	struct sandbox_spec spec;
	struct warden_done d;
	struct err e = { 0 };
	struct st_box a, b;
	char id[ID_SIZE];
	struct warden *w;

	st_fresh();
	wt_spec(&spec);
	w = open_warden();
	CHECK(w && make(w, &spec, &a, &s));
	CHECK_EQ(st_run(&a, 1000, some), 0);
	id_new(id, sizeof(id));
	CHECK_EQ(seal(w, s, id, &d), 0);
	st_stand_on(&spec, id);
	CHECK_EQ(warden_layers_ready(w, &spec, NULL, &e), 0);
	CHECK(make(w, &spec, &b, &t));
	CHECK_EQ(st_run(&b, 1000, "test $(stat -c %h /home/user/d/g) = 2"), 0);
	CHECK_EQ(warden_unseal(w, id, &e), -EBUSY);
	kt_close(&a.p);
	kt_close(&b.p);
	CHECK_EQ(warden_destroy(w, s, &e), 0);
	CHECK_EQ(warden_destroy(w, t, &e), 0);
	CHECK_EQ(warden_unseal(w, id, &e), 0);
	warden_free(w);
	CHECK(wt_fds_wait(getpid(), fds) <= fds);
	st_remove_store();
}

#ifdef CLOCHE_FAULTS
static unsigned left_over(void)
{
	DIR *d = opendir(st_store);
	const struct dirent *x;
	unsigned n = 0;

	while (d && (x = readdir(d)))
		n += strlen(x->d_name) > ID_LEN && strstr(x->d_name, ".tmp");
	if (d)
		closedir(d);
	return n;
}

TEST(when_any_one_call_fails_the_sandbox_runs_and_nothing_half_made_is_left)
{
	static const enum sys_id calls[] = { SYSID_openat,     SYSID_mkdirat,  SYSID_mknodat, SYSID_symlinkat,
					     SYSID_getdents64, SYSID_fchownat, SYSID_fchmod,  SYSID_ftruncate,
					     SYSID_read,       SYSID_write };
	unsigned failed = 0, made = 0;
	struct warden_sandbox *s;
	struct sandbox_spec spec;
	struct warden_done d;
	struct st_box a;
	struct warden *w;

	st_fresh();
	wt_spec(&spec);
	CHECK(st_share_faults());
	w = open_warden();
	CHECK(w && make(w, &spec, &a, &s));
	CHECK_EQ(st_run(&a, 1000, some), 0);
	for (size_t c = 0; c < ARRAY_LEN(calls); c++)
		for (unsigned nth = 1; nth <= 24; nth++) {
			unsigned before = (st_wait_ready(), sys_test_count(calls[c]));
			struct err e = { 0 };
			char id[ID_SIZE];
			int r;

			id_new(id, sizeof(id));
			sys_test_fail(calls[c], EIO, nth);
			r = seal(w, s, id, &d);
			sys_test_fail(calls[c], 0, 0);
			failed += r < 0;
			made += r == 0;
			/* If it were frozen it could not answer. */
			CHECK_EQ(st_run(&a, 1000, "test -p /home/user/p"), 0);
			CHECK_EQ(left_over(), 0);
			if (r == 0)
				CHECK_EQ(warden_unseal(w, id, &e), 0);
			if (sys_test_count(calls[c]) < before + nth)
				break;
		}
	printf("# %u failed, %u did all the same\n", failed, made);
	CHECK(failed > 40);
	kt_close(&a.p);
	{
		struct err e = { 0 };

		CHECK_EQ(warden_destroy(w, s, &e), 0);
	}
	warden_free(w);
	st_unshare_faults();
	st_remove_store();
}

/* In a process of its own, which enters a mount namespace and covers /sys. Its exit code is the step that failed. */
static int live_staged(void)
{
	struct warden_sandbox *s, *t;
	struct sandbox_spec spec;
	struct warden_done d;
	struct err e = { 0 };
	struct st_box a, b;
	char id[ID_SIZE];
	struct warden *w;

	setenv("CLOCHE_STAGE", "1", 1);
	wt_spec(&spec);
	w = open_warden();
	if (!w || !make(w, &spec, &a, &s) || st_run(&a, 1000, some))
		return 1;
	id_new(id, sizeof(id));
	if (seal(w, s, id, &d) < 0)
		return 2;
	st_stand_on(&spec, id);
	if (!make(w, &spec, &b, &t) || st_run(&b, 1000, "test -p /home/user/p && test $(cat /home/user/d/g) = 1"))
		return 3;
	if (warden_destroy(w, s, &e) < 0 || warden_destroy(w, t, &e) < 0)
		return 4;
	warden_free(w);
	return 0;
}

TEST(where_mounts_must_be_attached_to_be_stacked_layers_are_too)
{
	int status = -1;
	pid_t pid;

	st_fresh();
	pid = fork();
	if (pid == 0)
		_exit(live_staged());
	CHECK(pid > 0);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
	st_remove_store();
}
#endif
