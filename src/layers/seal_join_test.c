/* Sandboxes that are based on many layers are sealed together with some of them. */
#include "layers/seal.h"
#include "base/base.h"
#include "base/test.h"
#include "layers/seal_test.h"

/*
 * One generation's changes: folders become files and files folders, files are deleted and made again, names are linked,
 * files of the image are hidden and shown again. The generation's number decides which of these happen.
 */
static const char changes[] =
	"cd /home/user && umask 022; n=%u; d() { [ $((n %% $1)) = $2 ]; }\n"
	"mkdir -p keep/deep/$((n %% 5)) && echo $n > keep/deep/$((n %% 5))/f && echo $n >> log\n"
	"if d 2 0; then rm -rf flip; echo file$n > flip; else rm -rf flip; mkdir flip; echo $n > flip/in; fi\n"
	"if d 3 0; then rm -rf again; fi; mkdir -p again/sub; echo $n > again/sub/$n; ln -f again/sub/$n again/hard\n"
	"if d 3 1; then rm -rf again; mkdir again; chmod 711 again; fi\n"
	"if d 5 2; then rm -f link; ln -s log link; fi; if d 5 4; then rm -f link; mkfifo link; fi\n"
	"if d 4 1; then rm -rf /etc/opt /etc/skel; fi; if d 4 3; then mkdir -p /etc/skel; echo $n > /etc/skel/new; fi\n"
	"if d 4 2; then rm -f /etc/hostname; fi; if d 4 0; then echo $n > /etc/hostname; chmod 600 /etc/hostname; fi\n"
	"if d 7 3; then rm -rf keep/deep; fi; if d 7 5; then mv keep kept; mkdir keep; fi; if d 7 6; then rm -rf kept; fi\n"
	"if d 6 1; then touch -d @$((1000000000 + n)) again log; chmod 4755 log; chown 1234:77 log; fi; true";

/* Lists all files with all visible attributes. */
static const char look[] = "cd / && find etc home tmp -xdev ! -path etc/machine-id -printf '%p %y %m %U:%G %l ' "
			   "\\( -type d -printf '%T@\\n' -o -printf '%n %s %T@\\n' \\) | sort | sha256sum; "
			   "find etc home -xdev -type f ! -path etc/machine-id -exec sha256sum {} + | sort | sha256sum";

TEST(a_hundred_generations_are_what_they_were_and_stand_on_few_layers)
{
	char was[256], id[ID_SIZE], script[4096];
	struct sandbox_spec spec;
	struct client_layer l;
	struct st_box a;
	uint64_t pause;
	unsigned deepest = 0, joined = 0;
	struct wt w;

	st_fresh();
	wt_spec(&spec);
	CHECK(wt_open(&w, st_args()));
	for (unsigned n = 0; n < 100; n++) {
		CHECK(st_create(&w, &spec, &a));
		if (n) {
			CHECK_EQ(st_run(&a, 0, look), 0);
			if (strcmp(a.out, was))
				printf("# generation %u, on %u layers: %s was %s\n", n, spec.layers, a.out, was);
			CHECK_STR(a.out, was);
		}
		snprintf(script, sizeof(script), changes, n);
		CHECK_EQ(st_run(&a, 0, script), 0);
		CHECK_EQ(st_run(&a, 0, look), 0);
		snprintf(was, sizeof(was), "%.200s", a.out);
		CHECK(st_seal(&w, &a, id, &l, &pause));
		CHECK(st_end(&w, &a));
		joined += l.depth <= spec.layers;
		deepest = l.depth > deepest ? l.depth : deepest;
		/*
		 * As the daemon does: layers that are not the new layer's parent, or below it, are not used any more.
		 */
		spec.layers = l.depth - 1;
		if (spec.layers)
			CHECK_STR(l.parent, spec.layer[spec.layers - 1]);
		else
			CHECK_STR(l.parent, "");
		st_stand_on(&spec, id);
	}
	printf("# %u of 100 were joined with others, at most %u layers\n", joined, deepest);
	CHECK_EQ(deepest, SEAL_LAYERS);
	CHECK(joined > 5 && joined < 50);
	CHECK(st_stop(&w));
}

TEST(a_large_old_layer_is_not_copied_for_each_small_new_one)
{
	struct sandbox_spec spec;
	struct client_layer l;
	struct st_box a;
	char id[ID_SIZE];
	uint64_t pause;
	struct wt w;

	st_fresh();
	wt_spec(&spec);
	CHECK(wt_open(&w, st_args()));
	for (unsigned n = 0; n < 30; n++) {
		CHECK(st_create(&w, &spec, &a));
		CHECK_EQ(st_run(&a, 1000,
				n ? "echo x >> /home/user/small" : "head -c 8000000 /dev/urandom > /home/user/large"),
			 0);
		CHECK(st_seal(&w, &a, id, &l, &pause));
		CHECK(st_end(&w, &a));
		CHECK(n == 0 || l.size < 100000);
		spec.layers = l.depth - 1;
		st_stand_on(&spec, id);
	}
	CHECK(st_create(&w, &spec, &a));
	CHECK_EQ(st_run(&a, 1000, "wc -l < /home/user/small; stat -c %s /home/user/large"), 0);
	CHECK_STR(a.out, "29\n8000000\n");
	CHECK(st_end(&w, &a));
	CHECK(st_stop(&w));
}

TEST(a_damaged_layer_is_not_joined)
{
	struct sandbox_spec spec;
	struct client_layer l;
	struct st_box a;
	char id[ID_SIZE], cmd[256];
	struct err e = { 0 };
	uint64_t pause;
	struct wt w;

	st_fresh();
	wt_spec(&spec);
	CHECK(wt_open(&w, st_args()));
	while (spec.layers < SEAL_LAYERS) {
		CHECK(st_create(&w, &spec, &a));
		CHECK_EQ(st_run(&a, 1000, "echo data > /home/user/f"), 0);
		CHECK(st_seal(&w, &a, id, &l, &pause));
		CHECK(st_end(&w, &a));
		st_stand_on(&spec, id);
	}
	CHECK(st_create(&w, &spec, &a));
	snprintf(cmd, sizeof(cmd), "find %s/%s -name f -exec sh -c 'echo other > $0' {} \\;", st_store, id);
	CHECK_EQ(st_shell(cmd), 0);
	id_new(id, sizeof(id));
	CHECK_EQ(client_seal(w.client, a.s.handle, id, &l, &pause, &e), -EBADMSG);
	CHECK_CONTAINS(e.msg, "damaged");
	CHECK_EQ(st_run(&a, 1000, "true"), 0);
	CHECK(st_end(&w, &a));
	CHECK(st_stop(&w));
}

TEST(what_comes_into_a_folder_that_gives_rights_on_gets_none)
{
	struct sandbox_spec spec;
	struct client_layer l;
	struct st_box a;
	char id[ID_SIZE], script[1024];
	unsigned joined = 0, n;
	uint64_t pause;
	struct wt w;

	st_fresh();
	wt_spec(&spec);
	CHECK(wt_open(&w, st_args()));
	for (n = 0; n < 40 && !joined; n++) {
		CHECK(st_create(&w, &spec, &a));
		snprintf(
			script, sizeof(script),
			"mkdir -p /home/user/d && cd /home/user/d && python3 -c \"import os; [os.removexattr('.', x) for x in "
			"os.listxattr('.') if 'acl' in x]\" && echo %u > f%u && mkdir d%u && echo > d%u/f && python3 -c \"" ST_GIVES_RIGHTS(
				".") "\"",
			n, n, n, n);
		CHECK_EQ(st_run(&a, 1000, script), 0);
		CHECK(st_seal(&w, &a, id, &l, &pause));
		CHECK(st_end(&w, &a));
		joined += l.depth <= spec.layers;
		spec.layers = l.depth - 1;
		st_stand_on(&spec, id);
	}
	CHECK(joined);
	/* The next warden verifies all of them. */
	CHECK_EQ(wt_stop(&w), 0);
	CHECK(wt_open(&w, st_args()));
	CHECK(st_create(&w, &spec, &a));
	CHECK_EQ(st_run(&a, 1000,
			"cd /home/user/d; ls | wc -l; ls -ld * */f | cut -c 11 | sort -u; "
			"python3 -c \"import os; print(os.listxattr('.'))\""),
		 0);
	snprintf(script, sizeof(script), "%u\n \n['system.posix_acl_default']\n", 2 * n);
	CHECK_STR(a.out, script);
	CHECK(st_end(&w, &a));
	CHECK(st_stop(&w));
}
