/* Wardens that die while they seal. */
#include "layers/seal.h"
#include "base/base.h"
#include "base/test.h"
#include "layers/seal_test.h"

/* Kills the warden after a while, whatever it does then. */
static pid_t kill_later(pid_t warden, unsigned us)
{
	pid_t pid = fork();

	if (pid == 0) {
		usleep(us);
		kill(warden, SIGKILL);
		_exit(0);
	}
	return pid;
}

/* A new warden, the same sandbox. */
static bool again(struct wt *w, struct st_box *b)
{
	struct err e = { 0 };
	struct frame f;
	int fds[8];

	kt_close(&b->p);
	client_sandbox_done(&b->s);
	if (!wt_open(w, st_args()))
		return false;
	if (client_attach(w->client, b->s.handle, &b->s, &e) < 0) {
		printf("# attach: %s\n", e.msg);
		return false;
	}
	kt_open(&b->p, TAKE_FD(b->s.sock));
	return kt_wait(&b->p, FRAME_UP, 0, &f, fds);
}

TEST(a_warden_killed_while_it_seals_leaves_nothing_half_made_and_a_sandbox_that_runs)
{
	unsigned whole = 0, lost = 0, halves = 0;
	struct sandbox_spec spec;
	struct client_layer l;
	struct st_box a, b;
	uint64_t pause;
	struct wt w;

	st_fresh();
	wt_spec(&spec);
	CHECK(wt_open(&w, st_args()));
	CHECK(st_create(&w, &spec, &a));
	CHECK_EQ(st_run(&a, 1000, "cd /home/user; for i in $(seq 300); do head -c 20000 /dev/urandom > f$i; done; "
				  "cat f* | cksum > /tmp/sum"), 0);
	for (unsigned i = 0; i < 50; i++) {
		struct err e = { 0 };
		char id[ID_SIZE];
		pid_t killer;
		int r;

		id_new(id, sizeof(id));
		killer = kill_later(w.pid, i * 1700 % 70000);
		r = client_seal(w.client, a.s.handle, id, &l, &pause, &e);
		waitpid(killer, NULL, 0);
		halves += half_made() > 0;
		kt_crash(&w);
		CHECK(again(&w, &a));
		CHECK_EQ(st_run(&a, 1000, "cd /home/user; test \"$(cat f* | cksum)\" = \"$(cat /tmp/sum)\""), 0);
		CHECK(none_half_made());
		spec.layers = 0;
		if (client_layers(w.client, "", &l, &e) == 1) {
			CHECK(!strcmp(l.id, id) && !l.bad);
			st_stand_on(&spec, id);
			CHECK(st_create(&w, &spec, &b));
			CHECK_EQ(st_run(&b, 1000, "cd /home/user; test \"$(cat f* | cksum)\" = \"$(cat /tmp/sum)\""), 0);
			CHECK(st_end(&w, &b));
			CHECK_EQ(client_unseal(w.client, id, &e), 0);
			whole++;
		} else {
			CHECK(r < 0);
			lost++;
		}
	}
	printf("# 50 wardens killed: %u layers whole, %u not there, %u left something half-made for the next\n", whole, lost,
	       halves);
	CHECK(lost && halves);
	CHECK(st_end(&w, &a));
	CHECK(st_stop(&w));
}
