#include "cli/options.h"
#include "base/base.h"
#include "base/test.h"

#include <sys/stat.h>
#include <unistd.h>

static struct options o;
static struct err e;

/* Parses up to 15 arguments. */
static int parse(const char *const *args)
{
	char *argv[17] = { (char *)(uintptr_t) "run" };
	int argc = 1;

	for (; *args && argc < 16; args++)
		argv[argc++] = (char *)(uintptr_t)*args;
	e = (struct err){ 0 };
	return options_parse(argc, argv, &o, &e);
}
#define PARSE(...) parse((const char *const[]){ __VA_ARGS__, NULL })

TEST(the_defaults_are_safe)
{
	CHECK_EQ(PARSE("true"), 0);
	CHECK(o.spec.limits.memory == 512 * MIB && o.spec.limits.disk == GIB && o.spec.limits.pids == 256);
	CHECK_EQ(o.spec.limits.cpu_milli, 1000);
	CHECK(o.nofile == 1024 && o.timeout_ms == 300000 && o.output == MIB && o.cpu_ms == 0);
	CHECK(o.spec.uid == 1000 && o.spec.gid == 1000 && o.spec.flags == 0);
	CHECK_STR(o.spec.image, "host");
	CHECK_STR(o.spec.workdir, "/home/user");
	CHECK_STR(o.user, "user");
	CHECK(o.argc == 1 && !strcmp(o.argv[0], "true"));
	options_done(&o);
}

TEST(options_end_at_the_command)
{
	CHECK_EQ(PARSE("--pids", "9", "ls", "--json", "-t"), 0);
	CHECK(o.argc == 3 && !o.json && o.tty == TTY_AUTO);
	options_done(&o);
	CHECK_EQ(PARSE("--json", "--", "--json"), 0);
	CHECK(o.argc == 1 && o.json);
	CHECK_STR(o.argv[0], "--json");
	options_done(&o);
}

TEST(values_are_read)
{
	CHECK_EQ(PARSE("--memory=1G", "--cpus", "0.5", "--disk", "64M", "--inodes", "100", "--pids", "0", "--timeout",
		       "1m", "x"),
		 0);
	CHECK(o.spec.limits.memory == GIB && o.spec.limits.cpu_milli == 500 && o.spec.limits.disk == 64 * MIB);
	CHECK(o.spec.limits.inodes == 100 && o.spec.limits.pids == 0 && o.timeout_ms == 60000);
	options_done(&o);
	CHECK_EQ(PARSE("--cpu-time", "2s", "--output-limit", "4K", "--storage", "disk", "--io-bps", "1M", "--nofile",
		       "77", "--hostname", "h", "x"),
		 0);
	CHECK(o.cpu_ms == 2000 && o.output == 4096 && o.spec.limits.io_bps == MIB && o.nofile == 77);
	CHECK_STR(o.spec.hostname, "h");
	options_done(&o);
	CHECK_EQ(PARSE("--read-only", "--storage", "disk", "--workdir", "/w", "--no-tty", "x"), 0);
	CHECK_EQ(o.spec.flags, SPEC_READ_ONLY | SPEC_DISK);
	CHECK_STR(o.spec.workdir, "/w");
	CHECK_EQ(o.tty, TTY_NO);
	options_done(&o);
}

TEST(users_are_read)
{
	static const struct {
		const char *text;
		uint32_t uid, gid;
		const char *name;
	} cases[] = {
		{ "root", 0, 0, "root" }, { "0", 0, 0, "root" },       { "user", 1000, 1000, "user" },
		{ "33", 33, 33, "user" }, { "33:44", 33, 44, "user" }, { "65535", 65535, 65535, "user" },
		{ "0:5", 0, 5, "root" },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		if (PARSE("--user", cases[i].text, "x") < 0)
			TEST_FAIL("'%s': %s", cases[i].text, e.msg);
		CHECK(o.spec.uid == cases[i].uid && o.spec.gid == cases[i].gid);
		CHECK_STR(o.user, cases[i].name);
		options_done(&o);
	}
	/* Only root may change the system, and not a read-only one. */
	CHECK_EQ(PARSE("--user", "root", "x"), 0);
	CHECK_EQ(o.spec.flags, SPEC_SYSTEM_WRITABLE);
	CHECK_STR(o.spec.workdir, "/root");
	options_done(&o);
	CHECK_EQ(PARSE("--user", "root", "--read-only", "x"), 0);
	CHECK_EQ(o.spec.flags, SPEC_READ_ONLY);
	options_done(&o);
}

TEST(mounts_are_read)
{
	CHECK_EQ(PARSE("--mount", "/usr:/mnt/a", "--mount", "/usr/../etc:/mnt/b:ro", "--tmpfs", "/s", "--tmpfs",
		       "/t:size=1M", "x"),
		 0);
	CHECK(o.spec.nmounts == 2 && o.spec.ntmpfs == 2);
	CHECK_STR(o.spec.mount[0].src, "/usr");
	CHECK_STR(o.spec.mount[0].dst, "/mnt/a");
	CHECK_EQ(o.spec.mount[0].read_only, 0);
	CHECK_STR(o.spec.mount[1].src, "/etc");
	CHECK_EQ(o.spec.mount[1].read_only, 1);
	CHECK_STR(o.spec.tmpfs[0].path, "/s");
	CHECK(o.spec.tmpfs[0].size == 64 * MIB && o.spec.tmpfs[1].size == MIB);
	options_done(&o);
}

TEST(networks_are_read)
{
	CHECK_EQ(PARSE("--allow", "a.test", "--allow", "10.1.0.0/16:5432,80-90", "--host", "A.test=127.0.0.1", "x"), 0);
	CHECK_EQ(o.network.mode, EGRESS_ALLOW);
	CHECK_EQ(o.spec.flags & SPEC_NET, SPEC_NET);
	CHECK_EQ(o.spec.net.mode, STEER_ALLOW);
	CHECK_EQ(o.spec.net.n, 2); /* names are not for the kernel */
	CHECK(o.spec.net.rule[0].prefix == 16 && o.spec.net.rule[1].prefix == 16);
	CHECK_STR(o.network.host[0], "a.test 127.0.0.1");
	options_done(&o);
	CHECK_EQ(PARSE("--network", "open", "--allow-private", "127.0.0.0/8:*", "x"), 0);
	CHECK_EQ(o.spec.net.mode, STEER_OPEN);
	CHECK_EQ(o.network.privates, 1);
	options_done(&o);
	CHECK_EQ(PARSE("--network", "none", "x"), 0);
	CHECK_EQ(o.spec.flags & SPEC_NET, 0);
	options_done(&o);
	/* An empty list allows nothing, but it is a network. */
	CHECK_EQ(PARSE("--network", "allow", "x"), 0);
	CHECK_EQ(o.spec.net.mode, STEER_ALLOW);
	CHECK_EQ(o.spec.net.n, 0);
	options_done(&o);
}

TEST(mistakes_name_the_option)
{
	static const struct {
		const char *args[5];
		const char *part; /* of the message */
	} cases[] = {
		{ { "--memory", "lots", "x" }, "--memory" },
		{ { "--memory", "-1", "x" }, "--memory" },
		{ { "--memory", "1M", "x" }, "memory" },
		{ { "--memory", "99999999999G", "x" }, "--memory" },
		{ { "--cpus", "abc", "x" }, "--cpus" },
		{ { "--pids", "1", "x" }, "pids" },
		{ { "--pids", "4294967296", "x" }, "--pids" },
		{ { "--timeout", "5 minutes", "x" }, "--timeout" },
		{ { "--user", "nobody 2", "x" }, "--user" },
		{ { "--user", "app", "--mount", "/tmp:/x", "x" }, "--user app" },
		{ { "--user", "65536", "x" }, "--user" },
		{ { "--user", "65533", "x" }, "65533" },
		{ { "--user", "1:", "x" }, "--user" },
		{ { "--user", ":1", "x" }, "--user" },
		{ { "--user", "99999999999999999999", "x" }, "--user" },
		{ { "--mount", "/usr", "x" }, "--mount" },
		{ { "--mount", "/usr:rel", "x" }, "--mount" },
		{ { "--mount", "/usr:/a:rx", "x" }, "--mount" },
		{ { "--mount", "/no/such/folder:/a", "x" }, "--mount" },
		{ { "--mount", "/usr:/proc/x", "x" }, "/proc" },
		{ { "--mount", "/usr:/a/../b", "x" }, ".." },
		{ { "--tmpfs", "rel", "x" }, "absolute" },
		{ { "--tmpfs", "/a:sise=1", "x" }, "--tmpfs" },
		{ { "--tmpfs", "/a:size=0", "x" }, "--tmpfs" },
		{ { "--image", "/no/such/image", "x" }, "--image" },
		{ { "--isolation", "wasm", "x" }, "wasm" },
		{ { "--isolation", "zoo", "x" }, "zoo" },
		{ { "--network", "open", "--allow", "a.test", "x" }, "--allow" },
		{ { "--allow", "not a name", "x" }, "--allow" },
		{ { "--allow", "@packages", "x" }, "--allow" },
		{ { "--allow-private", "a.test", "x" }, "--allow-private" },
		{ { "--allow-private", "10.0.0.1", "x" }, "--allow-private" },
		{ { "--host", "a.test", "x" }, "--host" },
		{ { "--host", "a.test=b.test", "x" }, "--host" },
		{ { "--network", "zoo", "x" }, "--network" },
		{ { "--storage", "tape", "x" }, "--storage" },
		{ { "--env", "=x", "x" }, "--env" },
		{ { "--env", "CLOCHE_NOT_SET_HERE", "x" }, "CLOCHE_NOT_SET_HERE" },
		{ { "--workdir", "rel", "x" }, "workdir" },
		{ { "--hostname", "a\nb", "x" }, "hostname" },
		{ { "--template", "t", "x" }, "--template" },
		{ { "--json", "--tty", "x" }, "--tty" },
		{ { "--no-such-option", "x" }, "--no-such-option" },
		{ { "--memory" }, "--memory" },
		{ { "-z", "x" }, "-z" },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		int r = parse(cases[i].args);

		if (r >= 0)
			TEST_FAIL("%s %s passed", cases[i].args[0], cases[i].args[1] ? cases[i].args[1] : "");
		if (!strstr(e.msg, cases[i].part) || strchr(e.msg, '\n'))
			TEST_FAIL("%s %s: message '%s'", cases[i].args[0], cases[i].args[1] ? cases[i].args[1] : "",
				  e.msg);
	}
}

TEST(too_many_of_one_kind_are_told)
{
	const char *args[17];

	for (unsigned i = 0; i < 16; i += 2) {
		args[i] = "--tmpfs";
		args[i + 1] = "/t";
	}
	args[14] = "x";
	args[15] = NULL;
	CHECK_EQ(parse(args), 0); /* seven */
	CHECK_EQ(o.spec.ntmpfs, 7);
	options_done(&o);
	o.spec.ntmpfs = 0;
}

TEST(a_path_too_long_is_told)
{
	char path[SPEC_PATH + 10];

	memset(path, 'a', sizeof(path));
	path[0] = '/';
	path[SPEC_PATH - 1] = '\0';
	CHECK_EQ(PARSE("--workdir", path, "x"), 0);
	options_done(&o);
	path[SPEC_PATH - 1] = 'a';
	path[SPEC_PATH] = '\0';
	CHECK(PARSE("--workdir", path, "x") < 0);
	CHECK(PARSE("--tmpfs", path, "x") < 0);
	CHECK(PARSE("--hostname", path, "x") < 0);
}

TEST(help_needs_no_command)
{
	CHECK_EQ(PARSE("--help"), 0);
	CHECK(o.help);
	options_done(&o);
}

TEST(the_environment_is_ours_and_what_was_given)
{
	AUTO_FREE const char **env = NULL;
	uint32_t n;

	setenv("CLOCHE_TEST_VALUE", "from here", 1);
	CHECK_EQ(PARSE("-e", "A=1", "--env", "CLOCHE_TEST_VALUE", "-e", "HOME=/else", "x"), 0);
	env = options_env(&o, false, &n);
	CHECK_EQ(n, 6); /* PATH USER LANG, and three given */
	for (uint32_t i = 0; i < n; i++)
		CHECK(strncmp(env[i], "HOME=", 5) || !strcmp(env[i], "HOME=/else"));
	CHECK_STR(env[n - 3], "A=1");
	CHECK_STR(env[n - 2], "CLOCHE_TEST_VALUE=from here");
	free(env);
	env = options_env(&o, true, &n);
	CHECK_EQ(n, 7); /* and TERM */
	free((void *)(uintptr_t)o.env[1]); /* lives as long as the process, else */
	options_done(&o);
}

TEST(a_refused_option_is_named)
{
	CHECK_EQ(PARSE("--json", "-tz", "true"), -EINVAL);
	CHECK_STR(e.msg, "unknown option -z");
	CHECK_EQ(PARSE("--memry", "1G", "true"), -EINVAL);
	CHECK_STR(e.msg, "unknown option --memry");
	CHECK_EQ(PARSE("--json=x", "true"), -EINVAL);
	CHECK_STR(e.msg, "option --json takes no value");
	CHECK_EQ(PARSE("-e"), -EINVAL);
	CHECK_STR(e.msg, "option -e needs a value");
	CHECK_EQ(PARSE("--memory"), -EINVAL);
	CHECK_STR(e.msg, "option --memory needs a value");
	CHECK_EQ(PARSE("--json"), -EINVAL);
	CHECK_STR(e.msg, "no command given");
	CHECK(e.remedy[0]);
}

static bool stored(const char *const *args, int n)
{
	return options_stored_image(n, (char *const *)(uintptr_t)args);
}

static bool language(const char *const *args, int n)
{
	return options_language(n, (char *const *)(uintptr_t)args);
}

TEST(options_of_the_command_are_not_ours)
{
	static const char *const convert[] = { "run", "--json", "convert", "--image", "missing" };
	static const char *const translate[] = { "run", "-t", "translate", "--language", "en" };
	static const char *const image[] = { "run", "-e", "A=b", "--read-only", "--image=missing", "true" };
	static const char *const bare[] = { "run", "--no-secrets", "--image", "missing", "true" };
	static const char *const code[] = { "run", "--package", "numpy", "--language", "python", "-" };

	CHECK(!stored(convert, 5));
	CHECK(!language(translate, 5));
	CHECK(stored(image, 6));
	CHECK(stored(bare, 5));
	CHECK(language(code, 6));
}
