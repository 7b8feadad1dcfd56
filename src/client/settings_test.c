#include "client/settings.h"
#include "base/base.h"
#include "base/test.h"

#include <sys/stat.h>
#include <unistd.h>

/* A home of our own with this configuration. */
static char home[64];

static void set_home(const char *config, mode_t mode)
{
	char path[128];
	FILE *f;

	snprintf(home, sizeof(home), "/tmp/cloche-test-XXXXXX");
	if (!mkdtemp(home))
		return;
	setenv("HOME", home, 1);
	unsetenv("XDG_CONFIG_HOME");
	unsetenv("XDG_DATA_HOME");
	unsetenv("CLOCHE_URL");
	unsetenv("CLOCHE_TOKEN");
	snprintf(path, sizeof(path), "%s/.config", home);
	mkdir(path, 0700);
	snprintf(path, sizeof(path), "%s/.config/cloche", home);
	mkdir(path, 0700);
	snprintf(path, sizeof(path), "%s/.config/cloche/config", home);
	f = config ? fopen(path, "w") : NULL;
	if (f) {
		fputs(config, f);
		fclose(f);
		chmod(path, mode);
	}
}

static void drop_home(void)
{
	static const char *const parts[] = { "/.config/cloche/config", "/.config/cloche", "/.config", "" };
	char path[128];

	for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
		snprintf(path, sizeof(path), "%s%s", home, parts[i]);
		remove(path);
	}
}

TEST(the_file_says_where_and_who)
{
	struct settings s = { 0 };
	struct err e = { 0 };
	int r;

	set_home("# mine\n\nurl = https://example.org/base/\n  token=abc  \n", 0600);
	r = settings_find(&(struct conn_opts){ 0 }, &s, &e);
	drop_home();
	CHECK_EQ(r, 0);
	CHECK_STR(s.url, "https://example.org/base");
	CHECK_STR(s.token, "abc");
	CHECK(!s.socket);
	settings_done(&s);
}

TEST(options_come_before_variables_and_those_before_the_file)
{
	struct settings s = { 0 };
	int r;

	set_home("url = http://file:1\ntoken = file\n", 0600);
	setenv("CLOCHE_URL", "http://env:1", 1);
	setenv("CLOCHE_TOKEN", "env", 1);
	r = settings_find(&(struct conn_opts){ .token = "opt" }, &s, NULL);
	drop_home();
	CHECK_EQ(r, 0);
	CHECK_STR(s.url, "http://env:1");
	CHECK_STR(s.token, "opt");
	settings_done(&s);
}

TEST(the_files_token_goes_to_the_files_url_only)
{
	struct settings s = { 0 };
	int r;

	set_home("url = http://file:1\ntoken = secret\n", 0600);
	r = settings_find(&(struct conn_opts){ .url = "http://elsewhere:1" }, &s, NULL);
	drop_home();
	CHECK_EQ(r, 0);
	CHECK(!s.token);
	settings_done(&s);
}

TEST(a_file_that_others_can_read_is_refused)
{
	struct settings s = { 0 };
	struct err e = { 0 };
	int r;

	set_home("token = secret\n", 0644);
	r = settings_find(&(struct conn_opts){ .url = "http://a:1" }, &s, &e);
	drop_home();
	CHECK_EQ(r, -EPERM);
	CHECK_CONTAINS(e.remedy, "chmod 600");
}

TEST(what_it_does_not_know_is_an_error)
{
	struct settings s = { 0 };
	struct err e = { 0 };
	int r;

	set_home("tokne = x\n", 0600);
	r = settings_find(&(struct conn_opts){ 0 }, &s, &e);
	drop_home();
	CHECK_EQ(r, -EINVAL);
	CHECK_CONTAINS(e.msg, "tokne");
}

TEST(addresses_are_checked)
{
	static const char *const bad[] = { "ftp://x",	  "localhost:7070", "http://user@host",
					   "http://h/?q", "unix:relative",  "http://a b" };
	struct settings s = { 0 };
	struct err e = { 0 };

	set_home(NULL, 0);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		if (settings_find(&(struct conn_opts){ .url = bad[i] }, &s, &e) != -EINVAL)
			TEST_FAIL("%s was taken", bad[i]);
	CHECK_EQ(settings_find(&(struct conn_opts){ .url = "unix:///run/x.sock" }, &s, &e), 0);
	CHECK_STR(s.socket, "/run/x.sock");
	settings_done(&s);
	CHECK_EQ(settings_find(&(struct conn_opts){ .url = "http://a", .token = "x\r\nEvil: 1" }, &s, &e), -EINVAL);
	drop_home();
}
