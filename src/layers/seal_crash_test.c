/* Wardens, and processes of cloche-layers, that are killed while they seal. */
#include "layers/seal.h"
#include "base/base.h"
#include "base/test.h"
#include "layers/seal_test.h"

/* Kills the warden after a while, in any state. */
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

/* Starts a new warden, and finds the same sandbox. */
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
	CHECK_EQ(st_run(&a, 1000,
			"cd /home/user; for i in $(seq 300); do head -c 20000 /dev/urandom > f$i; done; "
			"cat f* | cksum > /tmp/sum"),
		 0);
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
			CHECK_EQ(st_run(&b, 1000, "cd /home/user; test \"$(cat f* | cksum)\" = \"$(cat /tmp/sum)\""),
				 0);
			CHECK(st_end(&w, &b));
			CHECK_EQ(client_unseal(w.client, id, &e), 0);
			whole++;
		} else {
			CHECK(r < 0);
			lost++;
		}
	}
	printf("# 50 wardens killed: %u layers whole, %u not there, %u left something half-made for the next\n", whole,
	       lost, halves);
	CHECK(lost && halves);
	CHECK(st_end(&w, &a));
	CHECK(st_stop(&w));
}

/* Finds a cloche-layers of that warden that makes layers, 0: none. */
static pid_t find_maker(pid_t warden)
{
	DIR *d = opendir("/proc");
	struct dirent *x;
	pid_t found = 0;

	while (d && !found && (x = readdir(d))) {
		char path[64], text[512];
		int pid, parent;
		char state;

		snprintf(path, sizeof(path), "/proc/%ld/stat", strtol(x->d_name, NULL, 10));
		if (fd_get(AT_FDCWD, path, text, sizeof(text)) <= 0 ||
		    sscanf(text, "%d (cloche-layers) %c %d", &pid, &state, &parent) != 3 || parent != warden ||
		    state == 'Z')
			continue;
		snprintf(path, sizeof(path), "/proc/%d/cmdline", pid);
		if (fd_get(AT_FDCWD, path, text, sizeof(text)) > 0 && !strcmp(text + strlen(text) + 1, "make"))
			found = pid;
	}
	if (d)
		closedir(d);
	return found;
}

/* Kills the process that makes layers after a while, whether it works or is idle. */
static pid_t kill_maker_later(pid_t warden, unsigned us)
{
	pid_t pid = fork();

	if (pid == 0) {
		usleep(us);
		for (int i = 0; i < 200 && !(pid = find_maker(warden)); i++)
			usleep(100);
		if (pid > 0)
			kill(pid, SIGKILL);
		_exit(0);
	}
	return pid;
}

TEST(a_process_that_makes_a_layer_is_killed_at_any_time_and_only_that_seal_fails)
{
	unsigned whole = 0, lost = 0;
	struct sandbox_spec spec;
	struct client_layer l;
	struct st_box a, b;
	char id[ID_SIZE];
	uint64_t pause;
	struct wt w;

	st_fresh();
	wt_spec(&spec);
	CHECK(wt_open(&w, st_args()));
	CHECK(st_create(&w, &spec, &a));
	CHECK_EQ(st_run(&a, 1000,
			"cd /home/user; for i in $(seq 300); do head -c 20000 /dev/urandom > f$i; done; "
			"cat f* | cksum > /tmp/sum"),
		 0);
	for (unsigned i = 0; i < 30; i++) {
		struct err e = { 0 };
		pid_t killer = kill_maker_later(w.pid, i * 3100 % 90000);
		int r;

		id_new(id, sizeof(id));
		r = client_seal(w.client, a.s.handle, id, &l, &pause, &e);
		waitpid(killer, NULL, 0);
		/* The sandbox runs on. */
		CHECK_EQ(st_run(&a, 1000, "cd /home/user; test \"$(cat f* | cksum)\" = \"$(cat /tmp/sum)\""), 0);
		CHECK(none_half_made());
		if (r < 0) {
			CHECK(strstr(e.msg, "killed"));
			CHECK_EQ(client_layers(w.client, "", &l, &e), 0);
			lost++;
			continue;
		}
		spec.layers = 0;
		st_stand_on(&spec, id);
		CHECK(st_create(&w, &spec, &b));
		CHECK_EQ(st_run(&b, 1000, "cd /home/user; test \"$(cat f* | cksum)\" = \"$(cat /tmp/sum)\""), 0);
		CHECK(st_end(&w, &b));
		CHECK_EQ(client_unseal(w.client, id, &e), 0);
		whole++;
	}
	printf("# 30 killed: %u layers whole, %u not there\n", whole, lost);
	CHECK(lost);
	CHECK(st_end(&w, &a));
	CHECK(st_stop(&w));
}
