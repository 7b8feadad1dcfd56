/* What differs between images, layers and running sandboxes: with the real programs. */
#include "layers/diff.h"
#include "base/base.h"
#include "base/test.h"
#include "layers/seal_test.h"
#include "proto/change.h"

#include <dirent.h>
#include <signal.h>

static char told[1 << 20]; /* a line per entry: "A f PATH SIZE OLD_SIZE [content]" */
static struct change_end sum;
static char sum_msg[256];

static char type_of(uint32_t mode)
{
	return S_ISREG(mode) ? 'f' : S_ISDIR(mode) ? 'd' : S_ISLNK(mode) ? 'l' : mode ? 'o' : '-';
}

/* Reads a stream to its end. False when it is cut or makes no sense. */
static bool read_stream(int fd)
{
	static uint8_t buf[2 * CHANGE_FRAME_MAX];
	size_t have = 0, len = 0;
	struct change_frame f;
	struct change_entry x;
	bool ended = false;
	ssize_t n;

	told[0] = '\0';
	while ((n = read(fd, buf + have, sizeof(buf) - have)) > 0) {
		size_t used = 0;
		long r;

		have += (size_t)n;
		while ((r = change_decode(buf + used, have - used, &f)) > 0) {
			const uint8_t *p;
			uint64_t at;
			size_t m;

			used += (size_t)r;
			if (ended)
				return false;
			if (f.type == CHANGE_ENTRY && change_entry_decode(&f, &x) == 0 && len < sizeof(told) - 8192)
				len += (size_t)snprintf(told + len, sizeof(told) - len, "%s%c %c %s %llu %llu",
							len ? "\n" : "", "-ACR"[x.what],
							type_of(x.mode ? x.mode : x.old_mode), x.path,
							(unsigned long long)x.size, (unsigned long long)x.old_size);
			else if (f.type == CHANGE_END && change_end_decode(&f, &sum) == 0) {
				ended = true;
				snprintf(sum_msg, sizeof(sum_msg), "%s", sum.msg);
			} else if (change_data_decode(&f, &at, &p, &m) < 0)
				return false;
			else if (m < 64 && len < sizeof(told) - 8192)
				len += (size_t)snprintf(told + len, sizeof(told) - len, " %c%llu:%.*s",
							f.type == CHANGE_OLD ? '<' : '>', (unsigned long long)at,
							(int)m, (const char *)p);
		}
		if (r < 0)
			return false;
		memmove(buf, buf + used, have - used);
		have -= used;
	}
	if (len < sizeof(told) - 1)
		memcpy(told + len, "\n", 2);
	return ended && !have;
}

static bool compare(struct wt *w, const struct client_diff *d)
{
	AUTO_CLOSE int fd = -1;
	struct err e = { 0 };

	if (client_diff(w->client, d, &fd, &e) < 0) {
		printf("# diff: %s\n", e.msg);
		return false;
	}
	if (!read_stream(fd) || sum.errnum) {
		printf("# the stream: error %u '%s'\n", sum.errnum, sum_msg);
		return false;
	}
	return true;
}

static bool has(const char *line)
{
	char with[4200];

	snprintf(with, sizeof(with), "%s\n", line);
	for (const char *p = told; (p = strstr(p, with)); p++)
		if (p == told || p[-1] == '\n')
			return true;
	printf("# no '%s' among:\n# %.3000s", line, told);
	return false;
}

TEST(a_new_sandbox_differs_in_nothing_and_then_in_what_it_did)
{
	struct sandbox_spec spec, image;
	struct client_diff d = { .older = &image, .spec = &spec };
	struct st_box a;
	struct wt w;

	wt_spec(&spec);
	snprintf(spec.hostname, sizeof(spec.hostname), "sandbox"); /* another one is written into /etc/hosts */
	image = spec;
	st_fresh();
	CHECK(wt_open(&w, st_args()));
	CHECK(st_create(&w, &spec, &a));
	d.to = a.s.handle;
	CHECK(compare(&w, &d));
	CHECK_STR(told, "\n");
	CHECK(!sum.added && !sum.changed && !sum.removed && !sum.truncated);
	CHECK_EQ(st_run(&a, 0,
			"cd /root; printf hello > f; ln -s f l; mkdir -p d/e; printf 12 > d/e/g; mkfifo p; "
			"rm /etc/hostname; printf 'abc' > /etc/hosts; touch /etc/passwd; chmod 600 /etc/group; "
			"cat /etc/nsswitch.conf > /tmp/s; printf x > /etc/nsswitch.conf; cat /tmp/s > "
			"/etc/nsswitch.conf; rm /tmp/s; "
			"rm -r /etc/profile.d 2>/dev/null; mkdir /etc/profile.d; printf new > /etc/profile.d/only"),
		 0);
	CHECK(compare(&w, &d));
	CHECK(has("A f /root/f 5 0") && has("A l /root/l 1 0") && has("A d /root/d 0 0") && has("A d /root/d/e 0 0"));
	CHECK(has("A f /root/d/e/g 2 0") && has("A o /root/p 0 0"));
	CHECK(strstr(told, "R f /etc/hostname 0 ") && strstr(told, "C f /etc/hosts 3 ") &&
	      strstr(told, "C f /etc/group "));
	CHECK(strstr(told, "/etc/profile.d/only 3 "));
	/* It was copied up, but not changed. */
	CHECK(!strstr(told, "/etc/passwd") && !strstr(told, "/etc/nsswitch.conf") && !strstr(told, "/tmp"));
	CHECK(sum.added >= 7 && sum.changed >= 2 && sum.removed >= 1);
	/* The comparison in the other direction. */
	d = (struct client_diff){ .from = a.s.handle, .spec = &spec };
	CHECK(compare(&w, &d));
	CHECK(has("R f /root/f 0 5") && has("R f /root/d/e/g 0 2") && strstr(told, "A f /etc/hostname "));
	CHECK(st_end(&w, &a));
	CHECK(st_stop(&w));
}

TEST(layers_and_sandboxes_are_compared_with_each_other)
{
	struct sandbox_spec spec, one, two;
	struct client_diff d = { .older = &one, .spec = &two };
	char id[2][ID_SIZE];
	struct client_layer l;
	struct st_box a, b;
	struct err e = { 0 };
	uint64_t pause;
	struct wt w;

	wt_spec(&spec);
	one = spec;
	st_fresh();
	CHECK(wt_open(&w, st_args()));
	CHECK(st_create(&w, &spec, &a));
	CHECK_EQ(st_run(&a, 0,
			"cd /root; printf one > same; printf 1 > c; printf gone > g; mkdir -p dir/sub; printf x > "
			"dir/sub/f; "
			"mkdir whole; printf 1 > whole/old; rm -r /etc/init.d 2>/dev/null; true"),
		 0);
	CHECK(st_seal(&w, &a, id[0], &l, &pause));
	CHECK(st_end(&w, &a));
	st_stand_on(&one, id[0]);
	CHECK(st_create(&w, &one, &b));
	CHECK_EQ(st_run(&b, 0,
			"cd /root; cat same > t; cat t > same; rm t; printf 22 > c; rm g; rm -r dir; mkdir dir; printf "
			"n > dir/new; "
			"rm -r whole; printf file > whole"),
		 0);
	CHECK(st_seal(&w, &b, id[1], &l, &pause));
	two = one;
	st_stand_on(&two, id[1]);
	CHECK(compare(&w, &d));
	CHECK_STR(told, "C f /root/c 2 1\nA f /root/dir/new 1 0\nR d /root/dir/sub 0 0\nR f /root/dir/sub/f 0 1\nR f "
			"/root/g 0 4\n"
			"C f /root/whole 4 0\nR f /root/whole/old 0 1\n");
	/* With the old and the new content. */
	d.flags = DIFF_TEXT;
	CHECK(compare(&w, &d));
	CHECK(strstr(told, "C f /root/c 2 1 <0:1 >0:22\n") && strstr(told, "R f /root/g 0 4 <0:gone\n"));
	/* At most ->max entries are reported; the rest is counted. */
	d.flags = 0;
	d.max = 2;
	CHECK(compare(&w, &d));
	CHECK(sum.truncated && sum.added == 1 && sum.changed == 2 && sum.removed == 4);
	/* The sandbox equals the layer that was sealed from it, until it changes a file. */
	d = (struct client_diff){ .older = &two, .spec = &one, .to = b.s.handle };
	one.layers = 0;
	memset(one.layer, 0, sizeof(one.layer));
	CHECK(compare(&w, &d));
	CHECK_STR(told, "\n");
	CHECK_EQ(st_run(&b, 0, "printf 333 > /root/c"), 0);
	CHECK(compare(&w, &d));
	CHECK_STR(told, "C f /root/c 3 2\n");
	/* A layer cannot be removed while it is read; a layer of another tenant is not shown. */
	two.tenant = 99;
	two.layers = 1;
	memset(two.layer[1], 0, ID_SIZE);
	d = (struct client_diff){ .older = &spec, .spec = &two };
	{
		int fd = -1;

		CHECK_EQ(client_diff(w.client, &d, &fd, &e), 0); /* sealed with tenant 0: any tenant may use it */
		fd_close(fd);
	}
	CHECK(st_end(&w, &b));
	/* The comparison that was never read ends by itself, and then the layers are free. */
	for (int i = 0; i < 200 && client_unseal(w.client, id[1], &e) == -EBUSY; i++)
		wt_sleep_ms(20);
	for (int i = 0; i < 200 && client_unseal(w.client, id[0], &e) == -EBUSY; i++)
		wt_sleep_ms(20);
	CHECK_EQ(client_unseal(w.client, id[0], &e), -ESRCH);
	CHECK_EQ(client_unseal(w.client, id[1], &e), -ESRCH);
	CHECK(st_stop(&w));
}

/* With DIFF_DATA: all that is needed to apply the changes elsewhere. */
TEST(what_is_carried_has_attributes_holes_and_links_and_only_the_top_of_what_is_gone)
{
	struct sandbox_spec spec, image;
	struct client_diff d = { .older = &image, .spec = &spec, .flags = DIFF_DATA };
	struct st_box a;
	struct wt w;

	wt_spec(&spec);
	spec.flags = SPEC_SYSTEM_WRITABLE;
	image = spec;
	st_fresh();
	CHECK(wt_open(&w, st_args()));
	CHECK(st_create(&w, &spec, &a));
	CHECK_EQ(st_run(&a, 0,
			"cd /root; truncate -s 1G sparse; printf end | dd of=sparse bs=1 seek=500M conv=notrunc "
			"status=none; "
			"printf a > a; ln a b; setfattr -n user.k -v v a 2>/dev/null; rm -r /usr/share/doc; printf m > "
			"/usr/share/mine; "
			"touch -d 2001-01-01 /etc/hosts"),
		 0);
	d.to = a.s.handle;
	CHECK(compare(&w, &d));
	CHECK(strstr(told, "A f /root/sparse 1073741824 0 >") || strstr(told, "A f /root/sparse 1073741824 0\n"));
	CHECK(strstr(told, "R d /usr/share/doc 0 0\n") && !strstr(told, "/usr/share/doc/"));
	CHECK(has("A f /usr/share/mine 1 0 >0:m") && has("A f /root/a 1 0 >0:a") && has("A f /root/b 1 0 >0:a"));
	CHECK(strstr(told, "C f /etc/hosts "));
	CHECK(st_end(&w, &a));
	CHECK(st_stop(&w));
}

/* Folders deeper than a path can be, many names, and a process that replaces folders by links meanwhile. */
TEST(hostile_trees_cost_nothing_but_themselves)
{
	struct sandbox_spec spec, image;
	struct client_diff d = { .older = &image, .spec = &spec };
	struct st_box a;
	int fd;
	struct err e = { 0 };
	AUTO_CLOSE int running = -1;
	struct wt w;

	wt_spec(&spec);
	snprintf(spec.hostname, sizeof(spec.hostname), "sandbox"); /* another one is written into /etc/hosts */
	image = spec;
	st_fresh();
	CHECK(wt_open(&w, st_args()));
	CHECK(st_create(&w, &spec, &a));
	CHECK_EQ(st_run(&a, 0,
			"cd /root; c=dddddddd; for i in 1 2 3 4 5 6 7; do c=$c/$c; done; for i in 1 2 3 4 5; do mkdir "
			"-p $c; cd -P $c; done; "
			"cd /tmp; i=0; while [ $i -lt 3000 ]; do : > n$i; i=$((i+1)); done; printf x > \"$(printf "
			"'a\\377\\n')\""),
		 0);
	d.to = a.s.handle;
	CHECK(compare(&w, &d));
	CHECK(sum.truncated && sum.added > 3400);
	/* What cannot be carried is an error, so an incomplete stream is never taken for a complete one. */
	d.flags = DIFF_DATA;
	CHECK_EQ(client_diff(w.client, &d, &fd, &e), 0);
	CHECK(read_stream(fd) && sum.errnum == ENAMETOOLONG && strstr(sum_msg, "4095"));
	fd_close(fd);
	d.flags = 0;
	running = st_start(&a, 0,
			   "rm -r /root/dddddddd; mkdir -p /tmp/x/y; while :; do mv /tmp/x /tmp/z; ln -s / /tmp/x; rm "
			   "/tmp/x; mv /tmp/z /tmp/x; done");
	CHECK(running >= 0);
	for (int i = 0; i < 30; i++) {
		CHECK(compare(&w, &d));
		CHECK(!strstr(told, "/tmp/x/etc") && !strstr(told, "/tmp/x/usr"));
	}
	/* A reader that goes away, and one that never reads, delay nothing else, not even the sandbox's end. */
	for (int i = 0; i < 40; i++) {
		if (client_diff(w.client, &d, &fd, &e) == 0 && i % 8)
			fd_close(fd);
	}
	CHECK(st_end(&w, &a));
	CHECK(st_stop(&w));
}

/* Finds a process of cloche-layers of that warden that compares, 0: none. */
static pid_t find_child(pid_t warden)
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
		if (fd_get(AT_FDCWD, path, text, sizeof(text)) > 0 && !strcmp(text + strlen(text) + 1, "diff"))
			found = pid;
	}
	if (d)
		closedir(d);
	return found;
}

TEST(a_comparison_whose_process_is_killed_is_cut_and_lets_its_layers_go)
{
	struct sandbox_spec spec, one;
	struct client_diff d = { .older = &spec, .spec = &one, .flags = DIFF_DATA };
	AUTO_CLOSE int fd = -1;
	struct client_layer l;
	char id[ID_SIZE];
	struct st_box a;
	struct err e = { 0 };
	uint64_t pause;
	struct wt w;
	pid_t child;

	wt_spec(&spec);
	one = spec;
	st_fresh();
	CHECK(wt_open(&w, st_args()));
	CHECK(st_create(&w, &spec, &a));
	CHECK_EQ(st_run(&a, 0, "head -c 4000000 /dev/urandom > /root/big; printf x > /root/small"), 0);
	CHECK(st_seal(&w, &a, id, &l, &pause));
	CHECK(st_end(&w, &a));
	st_stand_on(&one, id);
	/* More than the pipe's size: the process waits for its reader in the middle of the stream. */
	CHECK_EQ(client_diff(w.client, &d, &fd, &e), 0);
	for (unsigned ms = 0; ms < 5000 && !find_child(w.pid); ms++)
		usleep(1000);
	child = find_child(w.pid);
	CHECK(child > 0);
	CHECK(client_unseal(w.client, id, &e) == -EBUSY);
	CHECK(kill(child, SIGKILL) == 0);
	CHECK(!read_stream(fd)); /* the stream was cut */
	/* Nothing is left of the process, and other sandboxes are not affected. */
	CHECK(find_child(w.pid) == 0);
	d.flags = 0;
	CHECK(compare(&w, &d));
	CHECK(has("A f /root/small 1 0") && has("A f /root/big 4000000 0"));
	CHECK_EQ(client_unseal(w.client, id, &e), 0);
	CHECK(st_stop(&w));
}
