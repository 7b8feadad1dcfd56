/*
 * Memory sealed and restored in this process: when any one call of the warden fails, nothing is left behind and the
 * source runs on.
 */
#include "engine/sandbox/sandbox.h"
#include "base/base.h"
#include "base/test.h"
#include "engine/kernel_memory/looks.h"
#include "layers/memory.h"
#include "layers/seal_test.h"

#ifdef CLOCHE_FAULTS
static struct warden *open_warden(void)
{
	char agent[512], dump[512], layers[512];
	struct warden_opts o = { .looker = &kernel_looker_threads,
				 .env.freezer = true,
				 .env.accounting = true,
				 .env.agent = agent,
				 .env.dump = dump,
				 .env.layers_program = layers,
				 .env.layers = st_store,
				 .env.state = kt_dir,
				 .pool = 1 };
	struct warden *w = NULL;
	struct err e = { 0 };

	if (!wt_program("cloche-agent", agent, sizeof(agent)) || !wt_program("cloche-dump", dump, sizeof(dump)) ||
	    !wt_program("faulty/cloche-layers", layers, sizeof(layers)) || warden_new(&o, &w, &e) < 0)
		printf("# %s\n", e.msg);
	return w;
}

static int wait_done(struct warden *w, struct warden_done *d)
{
	struct pollfd p = { .fd = warden_done_fd(w), .events = POLLIN };

	while (!warden_done(w, d))
		if (poll(&p, 1, 20000) != 1)
			return -ETIMEDOUT;
	return d->result;
}

static int seal(struct warden *w, struct warden_sandbox *s, const char *id)
{
	struct warden_done d = { 0 };
	struct err e = { 0 };
	int r = warden_seal(w, s, id, WARDEN_WITH_MEMORY, NULL, &e);

	return r < 0 ? r : wait_done(w, &d);
}

static int create(struct warden *w, const struct sandbox_spec *spec)
{
	struct warden_sandbox *s = NULL;
	struct warden_done d = { 0 };
	struct err e = { 0 };
	int r = warden_layers_ready(w, spec, NULL, &e);

	if (r == 1)
		r = wait_done(w, &d);
	if (r == 0)
		r = warden_create(w, spec, &s, &e);
	if (r == 1) {
		r = wait_done(w, &d);
		s = d.sandbox;
	}
	if (r == 0 && s)
		r = warden_destroy(w, s, &e);
	return r;
}

static unsigned alive(struct warden *w)
{
	unsigned n = 0;

	for (struct warden_sandbox *s = warden_next(w, NULL); s; s = warden_next(w, s))
		n++;
	return n;
}

TEST(when_any_one_call_fails_nothing_half_made_is_left_and_the_source_runs)
{
	static const enum sys_id calls[] = { SYSID_openat,	SYSID_openat2, SYSID_mkdirat,
					     SYSID_socketpair,	SYSID_fcntl,   SYSID_execveat,
					     SYSID_pidfd_getfd, SYSID_prctl,   SYSID_dup3 };
	static const enum sys_id making[] = { SYSID_openat,  SYSID_openat2,   SYSID_open_tree, SYSID_mount_setattr,
					      SYSID_sendmsg, SYSID_getrandom, SYSID_socketpair };
	unsigned failed = 0, made = 0, stopped = 0, restored = 0;
	struct warden_sandbox *s;
	struct sandbox_spec spec;
	char id[ID_SIZE], good[ID_SIZE];
	struct err e = { 0 };
	struct kt_pipes x;
	struct st_box a = { 0 };
	struct warden *w;
	struct frame f;
	int fds[8], group;

	st_fresh();
	wt_spec(&spec);
	CHECK(st_share_faults());
	w = open_warden();
	CHECK(w);
	CHECK_EQ(warden_create(w, &spec, &s, &e), 0);
	kt_open(&a.p, fcntl(warden_sock(s), F_DUPFD_CLOEXEC, 3));
	a.id = 50;
	CHECK(kt_wait(&a.p, FRAME_UP, 0, &f, fds));
	group = warden_first_group(s);
	CHECK(kt_exec(&a.p, 1, "exec sleep 1000", group, &x));
	fd_close(group);
	wt_sleep_ms(200);
	id_new(good, sizeof(good));
	CHECK_EQ(seal(w, s, good), 0);
	for (size_t c = 0; c < ARRAY_LEN(calls); c++)
		for (unsigned nth = 1; nth <= 14; nth++) {
			unsigned before = (st_wait_ready(), sys_test_count(calls[c]));
			int r;

			id_new(id, sizeof(id));
			sys_test_fail(calls[c], EIO, nth);
			r = seal(w, s, id);
			sys_test_fail(calls[c], 0, 0);
			failed += r < 0;
			made += r == 0;
			CHECK_EQ(st_run(&a, 1000, "true"), 0);
			CHECK(none_half_made());
			if (r == 0)
				CHECK_EQ(warden_unseal(w, id, &e), 0);
			if (sys_test_count(calls[c]) < before + nth)
				break;
		}
	spec.flags = SPEC_MEMORY;
	st_stand_on(&spec, good);
	warden_pool_wait(w, 1);
	for (size_t c = 0; c < ARRAY_LEN(making); c++)
		for (unsigned nth = 1; nth <= 8; nth++) {
			int r;

			warden_pool_wait(w, 1);
			sys_test_fail(making[c], EIO, nth);
			r = create(w, &spec);
			sys_test_fail(making[c], 0, 0);
			stopped += r < 0;
			restored += r == 0;
			CHECK_EQ(alive(w), 1);
		}
	CHECK_EQ(create(w, &spec), 0);
	printf("# sealing: %u failed, %u did all the same; restoring: %u and %u\n", failed, made, stopped, restored);
	CHECK(failed > 20 && stopped > 5);
	kt_pipes_close(&x);
	kt_close(&a.p);
	CHECK_EQ(warden_destroy(w, s, &e), 0);
	CHECK_EQ(warden_unseal(w, good, &e), 0);
	warden_free(w);
	st_unshare_faults();
	kt_remove_state();
	st_remove_store();
}
#endif
