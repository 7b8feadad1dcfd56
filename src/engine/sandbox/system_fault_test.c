/* A /usr that is laid over later: after any call that failed it can be tried again, and no layer loses what was changed. */
#include "base/base.h"
#include "base/test.h"
#include "engine/kernel_memory/looks.h"
#include "engine/sandbox/internal.h"
#include "layers/seal_test.h"

#ifdef CLOCHE_FAULTS
static struct warden *open_warden(void)
{
	char agent[512], layers[512];
	struct warden_opts o = { .looker = &kernel_looker_threads,
				 .env.freezer = true,
				 .env.accounting = true,
				 .env.agent = agent,
				 .env.layers = st_store,
				 .env.state = kt_dir,
				 .env.layers_program = layers };
	struct warden *w = NULL;
	struct err e = { 0 };

	if (!wt_program("cloche-agent", agent, sizeof(agent)) || !wt_program("cloche-layers", layers, sizeof(layers)) ||
	    warden_new(&o, &w, &e) < 0)
		printf("# %s\n", e.msg);
	return w;
}

static struct warden_sandbox *make(struct warden *w, struct st_box *ret)
{
	struct warden_sandbox *s = NULL;
	struct sandbox_spec spec;
	struct err e = { 0 };
	struct frame f;
	int fds[8];

	wt_spec(&spec);
	spec.flags |= SPEC_SYSTEM_WRITABLE | SPEC_SYSTEM_LATER;
	if (warden_create(w, &spec, &s, &e) < 0) {
		printf("# %s\n", e.msg);
		return NULL;
	}
	kt_open(&ret->p, fcntl(warden_sock(s), F_DUPFD_CLOEXEC, 3));
	return kt_wait(&ret->p, FRAME_UP, 0, &f, fds) ? s : NULL;
}

/* How many mounts are at @place, and whether the one on top can be written to. */
static unsigned mounts_at(pid_t pid, const char *place, bool *ret_writable)
{
	char path[64], line[4096], at[256], how[256];
	unsigned n = 0;
	FILE *f;

	*ret_writable = false;
	snprintf(path, sizeof(path), "/proc/%d/mountinfo", (int)pid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "%*s %*s %*s %*s %255s %255s", at, how) == 2 && !strcmp(at, place)) {
			n++;
			*ret_writable = !strncmp(how, "rw", 2);
		}
	if (f)
		fclose(f);
	return n;
}

TEST(whatever_fails_the_next_try_lays_over_what_is_missing_and_nothing_twice)
{
	static const enum sys_id calls[] = { SYSID_openat,     SYSID_openat2, SYSID_open_tree, SYSID_mount_setattr,
					     SYSID_mkdirat,    SYSID_fsopen,  SYSID_fsconfig,  SYSID_fsmount,
					     SYSID_move_mount, SYSID_setns };
	unsigned failed = 0;
	struct warden_sandbox *s;
	struct warden *w;
	bool usr, dpkg;

	st_fresh();
	w = open_warden();
	CHECK(w);
	for (size_t c = 0; c < ARRAY_LEN(calls); c++)
		for (unsigned nth = 1; nth <= 16; nth++) {
			struct st_box a = { 0 };
			struct err e = { 0 };
			unsigned before, had;
			int r;

			s = make(w, &a);
			CHECK(s);
			had = mounts_at(warden_pid(s), "/var/lib/dpkg", &dpkg);
			CHECK_EQ(mounts_at(warden_pid(s), "/usr", &usr), 1);
			CHECK(!usr && !dpkg);
			before = sys_test_count(calls[c]);
			sys_test_fail(calls[c], EIO, nth);
			r = warden_system(w, s, &e);
			sys_test_fail(calls[c], 0, 0);
			before = sys_test_count(calls[c]) - before;
			failed += r < 0;
			CHECK_EQ(warden_system(w, s, &e), 0);
			CHECK_EQ(mounts_at(warden_pid(s), "/usr", &usr), 2);
			CHECK_EQ(mounts_at(warden_pid(s), "/var/lib/dpkg", &dpkg), 2 * had);
			CHECK(usr && dpkg == (had > 0));
			kt_close(&a.p);
			CHECK_EQ(warden_destroy(w, s, &e), 0);
			if (before < nth)
				break;
		}
	printf("# %u failed\n", failed);
	CHECK(failed > 15);
	warden_free(w);
	kt_remove_state();
	st_remove_store();
}

/* One try: the layer's flags, and whether its sandbox was still being copied when /usr had been laid over. */
static bool seal_meanwhile(struct warden *w, bool *ret_busy, uint32_t *ret_flags)
{
	struct warden_done d = { 0 };
	struct st_box a = { .id = 50 };
	struct err e = { 0 };
	struct warden_sandbox *s = make(w, &a);
	struct pollfd p = { .fd = warden_done_fd(w), .events = POLLIN };
	char id[ID_SIZE];
	bool ok = s && st_run(&a, 1000, "head -c 30000000 /dev/urandom > /home/user/f") == 0;

	id_new(id, sizeof(id));
	if (!ok || warden_seal(w, s, id, WARDEN_FILES, NULL, &e) < 0 || warden_system(w, s, &e) < 0)
		return false;
	*ret_busy = seal_busy(s->sealing->seal);
	while (!warden_done(w, &d))
		if (poll(&p, 1, 20000) != 1)
			return false;
	*ret_flags = d.layer.flags;
	kt_close(&a.p);
	return d.result == 0 && warden_destroy(w, s, &e) == 0 && warden_unseal(w, id, &e) == 0;
}

TEST(a_layer_that_may_have_what_was_changed_in_usr_does_not_say_that_nobody_could)
{
	struct warden *w;
	uint32_t flags = 0;
	bool busy = false;

	st_fresh();
	w = open_warden();
	CHECK(w);
	for (unsigned i = 0; !busy && i < 20; i++)
		CHECK(seal_meanwhile(w, &busy, &flags));
	CHECK(busy);
	CHECK_EQ(flags & (SPEC_SYSTEM_WRITABLE | SPEC_SYSTEM_LATER), SPEC_SYSTEM_WRITABLE);
	warden_free(w);
	kt_remove_state();
	st_remove_store();
}
#endif
