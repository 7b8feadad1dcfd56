/* Sandboxes are prebuilt for a layer that is asked for again: with the real programs. */
#include "base/base.h"
#include "base/test.h"
#include "layers/seal_test.h"

#include <sys/stat.h>

static const char *const *args(void)
{
	static const char *all[] = { "--keep", "--state", kt_dir, "--layers", st_store, "--pool", "8", NULL };

	return all;
}

/* The warden's children in whose root the layer's file is: how many, at most @max. */
static unsigned find_all(pid_t warden, pid_t *ret, unsigned max)
{
	char path[96], text[65536], *at, *end;
	unsigned found = 0;
	struct dirent *d;
	DIR *tasks;
	pid_t pid;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)warden);
	tasks = opendir(path);
	while (tasks && (d = readdir(tasks))) {
		snprintf(path, sizeof(path), "/proc/%d/task/%.16s/children", (int)warden, d->d_name);
		if (d->d_name[0] == '.' || fd_get(AT_FDCWD, path, text, sizeof(text)) < 0)
			continue;
		for (at = text; (pid = (pid_t)strtol(at, &end, 10)) > 0; at = end) {
			snprintf(path, sizeof(path), "/proc/%d/root/etc/of-the-layer", (int)pid);
			if (found < max && access(path, F_OK) == 0)
				ret[found++] = pid;
		}
	}
	if (tasks)
		closedir(tasks);
	return found;
}

/* One of them, other than @but; 0 = none. */
static pid_t find_prebuilt(pid_t warden, pid_t but)
{
	pid_t all[16];
	unsigned n = find_all(warden, all, ARRAY_LEN(all));

	while (n-- > 0)
		if (all[n] != but)
			return all[n];
	return 0;
}

/* Until there is one, or none. */
static pid_t wait_prebuilt(pid_t warden, pid_t but, bool want)
{
	pid_t pid = 0;

	for (int i = 0; i < 2000 && !(pid = find_prebuilt(warden, but)) == want; i++)
		wt_sleep_ms(5);
	return pid;
}

static bool make_layer(struct wt *w, struct sandbox_spec *spec, char id[ID_SIZE])
{
	struct client_layer l;
	struct st_box a;
	uint64_t pause;

	wt_spec(spec);
	spec->tenant = 7;
	st_fresh();
	if (!wt_open(w, args()) || !st_create(w, spec, &a) || st_run(&a, 0, "echo first > /etc/of-the-layer") != 0 ||
	    !st_seal(w, &a, id, &l, &pause) || !st_end(w, &a))
		return false;
	st_stand_on(spec, id);
	return true;
}

/* Gets the prebuilt one, the next time or soon: it can be seen a moment before it can be taken. */
static bool get_prebuilt(struct wt *w, const struct sandbox_spec *spec, struct st_box *b)
{
	for (int i = 0; i < 20; i++) {
		pid_t prebuilt = wait_prebuilt(w->pid, 0, true);

		if (!st_create(w, spec, b))
			return false;
		if (prebuilt > 0 && wt_pid(b->s.pidfd) == prebuilt)
			return true;
		if (!st_end(w, b))
			return false;
	}
	return false;
}

static bool come_and_go(struct wt *w, const struct sandbox_spec *spec)
{
	struct st_box b;

	return st_create(w, spec, &b) &&
	       st_run(&b, 0, "grep -qx first /etc/of-the-layer && test -s /run/cloche/generation") == 0 &&
	       st_end(w, &b);
}

TEST(who_comes_back_to_a_layer_gets_the_one_that_stands_and_it_was_nobodys)
{
	char id[ID_SIZE], told[2][64];
	struct sandbox_spec spec;
	struct err e = { 0 };
	pid_t prebuilt, next;
	struct st_box b;
	struct wt w;

	CHECK(make_layer(&w, &spec, id));
	CHECK(come_and_go(&w, &spec));
	CHECK(come_and_go(&w, &spec));
	told[0][0] = '\0';
	for (int i = 0; i < 2; i++) {
		CHECK(get_prebuilt(&w, &spec, &b));
		prebuilt = wt_pid(b.s.pidfd);
		CHECK_EQ(st_run(&b, 0, "grep -qx first /etc/of-the-layer && echo changed > /etc/of-the-layer"), 0);
		CHECK_EQ(st_run(&b, 0, "cat /run/cloche/generation"), 0);
		snprintf(told[i], sizeof(told[i]), "%.60s", b.out);
		/* The next is there before this one has gone: they have nothing in common. */
		next = wait_prebuilt(w.pid, prebuilt, true);
		CHECK(next > 0 && next != prebuilt);
		CHECK(st_end(&w, &b));
	}
	CHECK(strlen(told[0]) > 16 && strcmp(told[0], told[1]) != 0);
	/* Only for its tenant. */
	spec.tenant = 8;
	CHECK(client_create(w.client, &spec, &b.s, &e) < 0);
	CHECK(wait_prebuilt(w.pid, 0, true) > 0);
	/* It keeps no layer from being removed, and goes with it. */
	CHECK_EQ(client_unseal(w.client, id, &e), 0);
	CHECK_EQ(wait_prebuilt(w.pid, 0, false), 0);
	CHECK(none_half_made());
	CHECK(st_stop(&w));
}

TEST(a_layer_that_is_asked_for_often_has_half_of_the_pool)
{
	pid_t all[16], got[3] = { 0 };
	unsigned n = 0, prebuilt = 0;
	struct sandbox_spec spec;
	struct err e = { 0 };
	struct st_box b[3];
	char id[ID_SIZE];
	struct wt w;

	CHECK(make_layer(&w, &spec, id));
	for (int i = 0; i < 6; i++)
		CHECK(come_and_go(&w, &spec));
	for (int i = 0; i < 2000 && (n = find_all(w.pid, all, ARRAY_LEN(all))) != 4; i++)
		wt_sleep_ms(5);
	CHECK_EQ(n, 4);
	for (int i = 0; i < 3; i++) {
		CHECK(st_create(&w, &spec, &b[i]));
		got[i] = wt_pid(b[i].s.pidfd);
		for (unsigned k = 0; k < n; k++)
			prebuilt += got[i] == all[k];
	}
	CHECK(prebuilt >= 2); /* the last one can be seen a moment before it can be taken */
	CHECK(got[0] != got[1] && got[1] != got[2] && got[0] != got[2]);
	CHECK_EQ(st_run(&b[0], 0, "echo mine > /etc/of-the-layer"), 0);
	CHECK_EQ(st_run(&b[1], 0, "grep -qx first /etc/of-the-layer"), 0);
	for (int i = 0; i < 3; i++)
		CHECK(st_end(&w, &b[i]));
	CHECK_EQ(client_unseal(w.client, id, &e), 0);
	CHECK_EQ(wait_prebuilt(w.pid, 0, false), 0);
	CHECK(st_stop(&w));
}

TEST(what_stands_dies_with_a_warden_that_is_killed)
{
	char id[ID_SIZE], path[64];
	struct sandbox_spec spec;
	pid_t prebuilt;
	struct wt w;

	CHECK(make_layer(&w, &spec, id));
	CHECK(come_and_go(&w, &spec));
	CHECK(come_and_go(&w, &spec));
	prebuilt = wait_prebuilt(w.pid, 0, true);
	CHECK(prebuilt > 0);
	kt_crash(&w);
	snprintf(path, sizeof(path), "/proc/%d/root/etc/of-the-layer", (int)prebuilt);
	for (int i = 0; i < 1000 && access(path, F_OK) == 0; i++)
		wt_sleep_ms(5);
	CHECK(access(path, F_OK) < 0);
	CHECK(wt_open(&w, args()));
	CHECK(come_and_go(&w, &spec));
	CHECK(st_stop(&w));
}
