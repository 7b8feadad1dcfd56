/* Layers sealed from sandboxes, and sandboxes based on them: with the real programs. */
#include "layers/seal.h"
#include "base/base.h"
#include "base/test.h"
#include "layers/seal_test.h"

static const char make_things[] =
	"set -e; cd /root; echo hello > a; chmod 640 a; chown 1000:5 a; ln -s /nowhere/x link; ln a b; mkdir -p d/e; "
	"touch -d '2001-02-03 04:05:06' d/e/old; mkfifo pipe; truncate -s 1G sparse; "
	"printf end | dd of=sparse bs=1 seek=500M conv=notrunc status=none; printf 'odd' > \"$(printf 'x\\ny z\\303')\"; "
	"rm /etc/hosts; echo changed > /etc/hostname; rm -r /etc/profile.d 2>/dev/null || true; mkdir -p /etc/profile.d; echo new > /etc/profile.d/only; "
	"echo mine > /usr/share/mine; rm /usr/bin/wc; rm -r /usr/share/doc; mkdir /usr/share/doc; echo doc > /usr/share/doc/mine; "
	"cp /bin/true /root/cap; setcap cap_net_bind_service+ep /root/cap 2>/dev/null || echo nocap; "
	"mkdir sticky; chmod 3777 sticky; chmod 711 /; echo u > /home/user/f; chown 1000:1000 /home/user/f; echo t > /tmp/t";

static const char look_at_things[] =
	"set -e; cd /root; test \"$(cat a)\" = hello; stat -c '%a %u %g %h' a b | grep -qx '640 1000 5 2'; "
	"test \"$(stat -c %i a)\" = \"$(stat -c %i b)\"; test \"$(readlink link)\" = /nowhere/x; "
	"test \"$(stat -c %Y d/e/old)\" = \"$(date -d '2001-02-03 04:05:06' +%s)\"; test -p pipe; "
	"test \"$(stat -c %s sparse)\" = 1073741824; test \"$(du -k sparse | cut -f1)\" -lt 100; "
	"test \"$(dd if=sparse bs=1 skip=500M count=3 status=none)\" = end; test \"$(cat x*z*)\" = odd; "
	"! test -e /etc/hosts; grep -qx changed /etc/hostname; test \"$(ls /etc/profile.d)\" = only; "
	"test \"$(cat /usr/share/mine)\" = mine; ! test -e /usr/bin/wc; test \"$(ls /usr/share/doc)\" = mine; "
	"test \"$(stat -c %a sticky)\" = 3777; test \"$(stat -c %a /)\" = 711; "
	"stat -c '%u:%g' /home/user/f | grep -qx 1000:1000; test \"$(cat /tmp/t)\" = t; test -x /usr/bin/ls";

TEST(what_a_sandbox_changed_is_there_again_in_another)
{
	struct sandbox_spec spec;
	struct client_layer l;
	struct st_box a, b;
	char id[ID_SIZE];
	uint64_t pause;
	struct wt w;

	wt_spec(&spec);
	spec.flags = SPEC_SYSTEM_WRITABLE;
	spec.tenant = 7;
	st_fresh();
	CHECK(wt_open(&w, st_args()));
	CHECK(st_create(&w, &spec, &a));
	CHECK_EQ(st_run(&a, 0, make_things), 0);
	CHECK_EQ(st_run(&a, 0, look_at_things), 0);
	CHECK_EQ(st_run(&a, 0, "getcap /root/cap"), 0);
	CHECK(strstr(a.out, "cap_net_bind_service"));
	CHECK(st_seal(&w, &a, id, &l, &pause));
	CHECK(l.depth == 1 && !l.parent[0] && l.tenant == 7 && l.files > 5 && l.entries > l.files && pause > 0);
	/* The source continues, and its later changes are its own. */
	CHECK_EQ(st_run(&a, 0, "echo later > /root/later; rm /root/a"), 0);
	st_stand_on(&spec, id);
	CHECK(st_create(&w, &spec, &b));
	CHECK_EQ(st_run(&b, 0, look_at_things), 0);
	CHECK_EQ(st_run(&b, 0, "getcap /root/cap"), 0);
	CHECK(strstr(b.out, "cap_net_bind_service"));
	CHECK_EQ(st_run(&b, 0, "! test -e /root/later"), 0);
	/* A user sees the same owners and rights as before. */
	CHECK_EQ(st_run(&b, 1000,
			"echo more >> /home/user/f && ! touch /root/x 2>/dev/null && ! touch /etc/x 2>/dev/null"),
		 0);
	CHECK(st_end(&w, &a));
	CHECK_EQ(st_run(&b, 0, look_at_things), 0);
	CHECK(st_end(&w, &b));
	CHECK(st_stop(&w));
}

static bool edit(const char *id, const char *script)
{
	char cmd[400];

	snprintf(cmd, sizeof(cmd), "cd %s/%s && %s", st_store, id, script);
	return st_shell(cmd) == 0;
}

TEST(twenty_from_one_layer_are_independent_and_a_chain_of_three_holds)
{
	struct sandbox_spec spec;
	struct client_layer l;
	static struct st_box box[20];
	struct st_box a;
	char id[3][ID_SIZE], script[200];
	uint64_t pause;
	struct wt w;

	wt_spec(&spec);
	spec.flags = SPEC_SYSTEM_WRITABLE;
	st_fresh();
	CHECK(wt_open(&w, st_args()));
	CHECK(st_create(&w, &spec, &a));
	CHECK_EQ(st_run(&a, 1000, "echo one > /home/user/one; mkdir /home/user/dir; touch /home/user/dir/x"), 0);
	CHECK(st_seal(&w, &a, id[0], &l, &pause));
	/* /usr was not changed, whatever overlay has noted on its folder. */
	CHECK(edit(id[0], "test -d fs/u && test ! -e fs/uu && test ! -e fs/ud"));
	CHECK(st_end(&w, &a));
	st_stand_on(&spec, id[0]);
	for (int i = 0; i < 20; i++)
		CHECK(st_create(&w, &spec, &box[i]));
	for (int i = 0; i < 20; i++) {
		snprintf(script, sizeof(script), "grep -q one /home/user/one && echo %d > /home/user/one", i);
		CHECK_EQ(st_run(&box[i], 1000, script), 0);
	}
	for (int i = 0; i < 20; i++) {
		snprintf(script, sizeof(script), "test $(cat /home/user/one) = %d", i);
		CHECK_EQ(st_run(&box[i], 1000, script), 0);
	}
	CHECK_EQ(st_run(&box[3], 1000, "cd /home/user; rm -r dir; mkdir dir; echo y > dir/y; echo two > two"), 0);
	CHECK(st_seal(&w, &box[3], id[1], &l, &pause));
	CHECK(l.depth == 2 && !strcmp(l.parent, id[0]));
	for (int i = 0; i < 20; i++)
		CHECK(st_end(&w, &box[i]));
	st_stand_on(&spec, id[1]);
	CHECK(st_create(&w, &spec, &a));
	CHECK_EQ(st_run(&a, 1000,
			"cd /home/user; test $(cat one) = 3 && test $(ls dir) = y && rm two && echo three > three"),
		 0);
	CHECK(st_seal(&w, &a, id[2], &l, &pause));
	CHECK_EQ(l.depth, 3);
	CHECK(st_end(&w, &a));
	st_stand_on(&spec, id[2]);
	CHECK(st_create(&w, &spec, &a));
	CHECK_EQ(
		st_run(&a, 1000,
		       "cd /home/user; test $(cat one) = 3 && ! test -e two && test $(cat three) = three && ls dir | grep -qx y"),
		0);
	CHECK(st_end(&w, &a));
	/* A chain with a gap is refused. */
	{
		struct client_sandbox none;
		struct err e = { 0 };

		memcpy(spec.layer[1], id[2], ID_SIZE);
		memset(spec.layer[2], 0, ID_SIZE);
		spec.layers = 2;
		CHECK_EQ(client_create(w.client, &spec, &none, &e), -EINVAL);
	}
	CHECK(st_stop(&w));
}

TEST(an_altered_or_truncated_layer_is_refused_and_the_sandbox_it_is_of_is_not_touched)
{
	static const char *const harm[] = {
		"printf X | dd of=fs/u/home/user/f bs=1 seek=100 conv=notrunc status=none && touch -d @1000000000 fs/u/home/user/f",
		"truncate -s 100 fs/u/home/user/f",
		"rm fs/u/home/user/g",
		"chmod 777 fs/u/home/user/g",
		"chown 5 fs/u/home/user/g",
		"ln -sf /etc/shadow fs/u/home/user/g",
		"echo > fs/u/home/user/more",
		"python3 -c \"import os; os.setxattr('fs/u/home', 'trusted.overlay.opaque', b'y')\"",
		"truncate -s 100 manifest",
		"printf X | dd of=manifest bs=1 seek=330 conv=notrunc status=none",
		"rm manifest",
	};
	struct sandbox_spec spec;
	struct client_layer l;
	struct st_box a, b;
	uint64_t pause;
	struct wt w;

	st_fresh();
	wt_spec(&spec);
	CHECK(wt_open(&w, st_args()));
	CHECK(st_create(&w, &spec, &a));
	CHECK_EQ(
		st_run(&a, 1000,
		       "cd /home/user; touch -d @1000000000 f; head -c 100000 /dev/urandom > f; touch -d @1000000000 f; echo g > g"),
		0);
	for (size_t i = 0; i < ARRAY_LEN(harm); i++) {
		struct client_sandbox none;
		struct err e = { 0 };
		char id[ID_SIZE];
		int r;

		CHECK(st_seal(&w, &a, id, &l, &pause));
		CHECK(edit(id, harm[i]));
		/* A layer that was verified is not verified again, except by the next warden. */
		CHECK_EQ(wt_stop(&w), 0);
		CHECK(wt_open(&w, st_args()));
		spec.layers = 0;
		st_stand_on(&spec, id);
		r = client_create(w.client, &spec, &none, &e);
		if (r != -EBADMSG || e.kind != ERR_REFUSED)
			printf("# '%s': %d %s\n", harm[i], r, e.msg);
		CHECK_EQ(r, -EBADMSG);
		CHECK(client_layers(w.client, "", &l, &e) == 1 && l.bad && !strcmp(l.id, id));
		CHECK_EQ(client_unseal(w.client, id, &e), 0);
	}
	/* A layer without changes is still valid for the next warden. */
	{
		char id[ID_SIZE];
		struct err e = { 0 };

		CHECK(st_seal(&w, &a, id, &l, &pause));
		CHECK_EQ(wt_stop(&w), 0);
		CHECK(wt_open(&w, st_args()));
		spec.layers = 0;
		st_stand_on(&spec, id);
		CHECK(st_create(&w, &spec, &b));
		CHECK_EQ(st_run(&b, 1000, "test $(cat /home/user/g) = g"), 0);
		CHECK_EQ(client_unseal(w.client, id, &e), -EBUSY);
		CHECK_EQ(e.kind, ERR_CONFLICT);
		CHECK(st_end(&w, &b));
	}
	CHECK_EQ(st_run(&a, 1000, "test $(cat /home/user/g) = g"), 0);
	CHECK(st_end(&w, &a));
	CHECK(st_stop(&w));
}

TEST(a_store_in_a_folder_that_gives_rights_on_holds_what_was_sealed_and_no_more)
{
	struct sandbox_spec spec;
	struct client_layer l;
	char id[ID_SIZE], cmd[512];
	struct st_box a;
	uint64_t pause;
	struct wt w;

	st_fresh();
	wt_spec(&spec);
	snprintf(cmd, sizeof(cmd), "mkdir -m 700 %s && cd %s && python3 -c \"" ST_GIVES_RIGHTS(".") "\"", st_store,
		 st_store);
	CHECK_EQ(st_shell(cmd), 0);
	CHECK(wt_open(&w, st_args()));
	for (unsigned n = 0; n < 2; n++) { /* the folder made ahead at the start, and one made later */
		CHECK(st_create(&w, &spec, &a));
		CHECK_EQ(
			st_run(&a, 1000,
			       "cd /home/user; mkdir -p d; echo x > d/f; echo x > f; head -c 300000 /dev/zero | tr '\\0' x > g"),
			0);
		CHECK(st_seal(&w, &a, id, &l, &pause));
		CHECK(st_end(&w, &a));
		CHECK_EQ(wt_stop(&w), 0);
		CHECK(wt_open(&w, st_args()));
		spec.layers = 0;
		st_stand_on(&spec, id);
		CHECK(st_create(&w, &spec, &a));
		CHECK_EQ(st_run(&a, 1000, "cd /home/user; ls -ld f g d d/f / /home | cut -c 11 | sort -u"), 0);
		CHECK_STR(a.out, " \n");
		CHECK(st_end(&w, &a));
		spec.layers = 0;
	}
	CHECK(st_stop(&w));
}

TEST(a_layer_goes_only_when_nothing_stands_on_it)
{
	struct sandbox_spec spec;
	struct client_layer l;
	struct st_box a, b;
	char one[ID_SIZE], two[ID_SIZE];
	struct err e = { 0 };
	uint64_t pause;
	struct wt w;

	st_fresh();
	wt_spec(&spec);
	CHECK(wt_open(&w, st_args()));
	CHECK(st_create(&w, &spec, &a));
	CHECK_EQ(client_layers(w.client, "", &l, &e), 0);
	CHECK(st_seal(&w, &a, one, &l, &pause));
	CHECK_EQ(client_seal(w.client, a.s.handle, one, &l, &pause, &e), -EEXIST);
	st_stand_on(&spec, one);
	CHECK(st_create(&w, &spec, &b));
	CHECK_EQ(client_unseal(w.client, one, &e), -EBUSY);
	CHECK(st_seal(&w, &b, two, &l, &pause));
	/* The next warden finds the damage as well. */
	kt_close(&b.p);
	CHECK_EQ(wt_stop(&w), 0);
	CHECK(wt_open(&w, st_args()));
	CHECK_EQ(client_layers(w.client, "", &l, &e), 1);
	CHECK_EQ(l.users, !strcmp(l.id, one) ? 2 : 0);
	CHECK_EQ(client_layers(w.client, l.id, &l, &e), 1);
	CHECK_EQ(l.users, !strcmp(l.id, one) ? 2 : 0);
	CHECK_EQ(client_layers(w.client, l.id, &l, &e), 0);
	CHECK_EQ(client_unseal(w.client, one, &e), -EBUSY);
	CHECK(st_end(&w, &b));
	CHECK_EQ(client_unseal(w.client, one, &e), -EBUSY);
	CHECK_EQ(client_unseal(w.client, two, &e), 0);
	CHECK_EQ(client_unseal(w.client, one, &e), 0);
	CHECK_EQ(client_unseal(w.client, one, &e), -ESRCH);
	CHECK_EQ(client_layers(w.client, "", &l, &e), 0);
	/* A layer of another tenant, of another image, and an unknown one are refused. */
	CHECK(st_end(&w, &a));
	spec.layers = 0;
	spec.tenant = 5;
	CHECK(st_create(&w, &spec, &a));
	CHECK(st_seal(&w, &a, one, &l, &pause));
	st_stand_on(&spec, one);
	spec.tenant = 6;
	CHECK_EQ(client_create(w.client, &spec, &b.s, &e), -EACCES);
	spec.tenant = 5;
	spec.flags = SPEC_READ_ONLY;
	CHECK_EQ(client_create(w.client, &spec, &b.s, &e), -EINVAL);
	spec.flags = 0;
	spec.layer[0][23] = spec.layer[0][23] == '0' ? '1' : '0';
	CHECK_EQ(client_create(w.client, &spec, &b.s, &e), -ENOENT);
	CHECK(st_end(&w, &a));
	CHECK(st_stop(&w));
}

TEST(a_paused_sandbox_is_sealed_and_stays_paused)
{
	struct sandbox_spec spec;
	struct client_layer l;
	struct st_box a, b;
	struct err e = { 0 };
	char id[ID_SIZE], byte;
	uint64_t pause;
	struct pollfd p;
	struct wt w;
	int fd;

	st_fresh();
	wt_spec(&spec);
	CHECK(wt_open(&w, st_args()));
	CHECK(st_create(&w, &spec, &a));
	fd = st_start(&a, 1000, "while echo tick > /home/user/tick; do echo; sleep 0.01; done");
	CHECK_EQ(read(fd, &byte, 1), 1);
	CHECK_EQ(client_freeze(w.client, a.s.handle, &e), 0);
	CHECK(st_seal(&w, &a, id, &l, &pause));
	CHECK_EQ(pause, 0);
	while ((p = (struct pollfd){ .fd = fd, .events = POLLIN }, poll(&p, 1, 0)) == 1)
		CHECK_EQ(read(fd, &byte, 1), 1);
	CHECK_EQ(poll(&p, 1, 300), 0);
	CHECK_EQ(client_thaw(w.client, a.s.handle, &e), 0);
	CHECK_EQ(poll(&p, 1, 5000), 1);
	st_stand_on(&spec, id);
	CHECK(st_create(&w, &spec, &b));
	CHECK_EQ(st_run(&b, 1000, "test $(cat /home/user/tick) = tick"), 0);
	/* The same with a read-only root, whose writable folders are of another kind. */
	CHECK(st_end(&w, &b));
	spec.layers = 0;
	spec.flags = SPEC_READ_ONLY;
	CHECK(st_create(&w, &spec, &b));
	CHECK_EQ(st_run(&b, 1000, "echo t > /tmp/t; echo w > /home/user/w; ! echo x > /etc/x"), 0);
	CHECK(st_seal(&w, &b, id, &l, &pause));
	CHECK(st_end(&w, &b));
	st_stand_on(&spec, id);
	CHECK(st_create(&w, &spec, &b));
	CHECK_EQ(
		st_run(&b, 1000,
		       "test $(cat /tmp/t) = t; test $(cat /home/user/w) = w && echo z > /home/user/w && ! echo x > /etc/x"),
		0);
	fd_close(fd);
	CHECK(st_end(&w, &b));
	CHECK(st_end(&w, &a));
	CHECK(st_stop(&w));
}

/* The first line of a file inside. */
static bool line_of(struct st_box *b, const char *path, char ret[64])
{
	char script[128];

	snprintf(script, sizeof(script), "cat %s", path);
	if (st_run(b, 1000, script))
		return false;
	snprintf(ret, 64, "%.40s", b->out);
	return strlen(ret) == 33 && strspn(ret, "0123456789abcdef") == 32 && ret[32] == '\n';
}

TEST(what_stands_on_a_layer_has_an_identity_of_its_own)
{
	static const char machine[] = "/etc/machine-id", generation[] = "/run/cloche/generation";
	char id[ID_SIZE], one[2][64], two[2][64];
	struct sandbox_spec spec;
	struct client_layer l;
	struct st_box a, b, c;
	uint64_t pause;
	struct wt w;

	st_fresh();
	wt_spec(&spec);
	CHECK(wt_open(&w, st_args()));
	CHECK(st_create(&w, &spec, &a));
	CHECK_EQ(st_run(&a, 1000, "! test -e /etc/machine-id && ! test -e /run/cloche"), 0);
	/* A sandbox without a machine id does not get one. */
	CHECK(st_seal(&w, &a, id, &l, &pause));
	st_stand_on(&spec, id);
	CHECK(st_create(&w, &spec, &b));
	CHECK_EQ(st_run(&b, 1000, "! test -e /etc/machine-id && ! rm /run/cloche/generation 2> /dev/null"), 0);
	CHECK(st_end(&w, &b));
	CHECK_EQ(
		st_run(&a, 0,
		       "echo 0123456789abcdef0123456789abcdef > /etc/machine-id; mkdir -p /run/cloche; echo 1 > /run/cloche/generation"),
		0);
	CHECK(st_seal(&w, &a, id, &l, &pause));
	spec.layers = 0;
	st_stand_on(&spec, id);
	CHECK(st_create(&w, &spec, &b));
	CHECK(st_create(&w, &spec, &c));
	CHECK(line_of(&b, machine, one[0]) && line_of(&b, generation, one[1]));
	CHECK(line_of(&c, machine, two[0]) && line_of(&c, generation, two[1]));
	CHECK(strcmp(one[0], two[0]) && strcmp(one[1], two[1]) && strcmp(one[0], one[1]));
	CHECK(strncmp(one[0], "0123456789abcdef0123", 20));
	CHECK(st_end(&w, &b));
	CHECK(st_end(&w, &c));
	/* An image with traps: no link is followed, and no open blocks. */
	CHECK_EQ(st_run(&a, 0, "rm -r /etc/machine-id /run/cloche; mkfifo /etc/machine-id; ln -s /tmp /run/cloche"), 0);
	CHECK(st_seal(&w, &a, id, &l, &pause));
	spec.layers = 0;
	st_stand_on(&spec, id);
	CHECK(st_create(&w, &spec, &b));
	CHECK_EQ(st_run(&b, 1000, "test -p /etc/machine-id && test -h /run/cloche && ! test -e /tmp/generation"), 0);
	CHECK(st_end(&w, &b));
	CHECK(st_end(&w, &a));
	CHECK(st_stop(&w));
}
