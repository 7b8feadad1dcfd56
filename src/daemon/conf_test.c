#include "daemon/conf.h"
#include "base/base.h"
#include "base/test.h"

#include <sys/stat.h>
#include <unistd.h>

static struct daemon_config c;
static struct err e;

static int parse(const char *text)
{
	conf_init(&c);
	e = (struct err){ 0 };
	return conf_parse(&c, "f", text, strlen(text), &e);
}

TEST(without_a_file_everything_has_a_value)
{
	conf_init(&c);
	CHECK_EQ(conf_finish(&c, &e), 0);
	CHECK_STR(c.data, "/var/lib/cloche");
	CHECK_STR(c.user, "cloche");
	CHECK_EQ(c.nlisten, 1);
	CHECK_STR(c.listen[0].text, "127.0.0.1:7070");
	CHECK(!c.listen[0].tls);
	CHECK_EQ(c.memory, 512 << 20);
	CHECK_EQ(c.cpu_milli, 1000);
	CHECK_EQ(c.exec_timeout_ms, 300000);
	CHECK_STR(c.noid_isolation, "auto");
	CHECK_STR(c.vm_accel, "auto");
	CHECK_EQ(c.vm_ready, 1);
	CHECK_EQ(c.warm_contexts, 1);
}

TEST(every_kind_of_value_is_understood)
{
	CHECK_EQ(parse("# a comment\n\n  data = /srv/x # y \nlisten=127.0.0.1:0\n\tlisten = unix:/run/a.sock\r\n"
		       "allow_mount = /a\nallow_mount = /b\npool = 3\nmemory = 1G\ncpus = 0.5\nexec_timeout = 5m\n"
		       "audit_sync = always\naudit_output = yes\nnoid_isolation = vm\nuser = 12:34\nsandboxes_max = 7"),
		 0);
	CHECK_STR(c.data, "/srv/x # y");
	CHECK_EQ(c.nlisten, 2);
	CHECK_STR(c.listen[1].text, "unix:/run/a.sock");
	CHECK_EQ(c.nallow_mount, 2);
	CHECK_STR(c.allow_mount[1], "/b");
	CHECK_EQ(c.pool, 3);
	CHECK_EQ(c.memory, 1 << 30);
	CHECK_EQ(c.cpu_milli, 500);
	CHECK_EQ(c.exec_timeout_ms, 300000);
	CHECK(c.audit_sync_always && c.audit_output && !c.stop_sandboxes);
	CHECK_STR(c.noid_isolation, "vm");
	CHECK_STR(c.user, "12:34");
	CHECK_EQ(c.sandboxes_max, 7);
	CHECK_EQ(conf_finish(&c, &e), 0);
}

TEST(errors_name_file_and_line)
{
	static const struct {
		const char *text, *says;
	} bad[] = {
		{ "pool = 1\nports = 3\n", "f:2: unknown key 'ports'" },
		{ "pool = 1\n#\npool = 2\n", "f:3: pool is given twice" },
		{ "pool = 0\n", "f:1: pool: '0' must be between 1 and 1024" },
		{ "pool = -1\n", "f:1: pool: invalid number" },
		{ "pool\n", "f:1: 'pool': expected key = value" },
		{ "pool =\n", "f:1: pool: invalid number" },
		{ "data = relative\n", "f:1: data: 'relative': must be an absolute path" },
		{ "data =\n", "f:1: data: '': must have 1 to" },
		{ "data = /a\x01\n", "f:1: data: control bytes" },
		{ "memory = lots\n", "f:1: memory: invalid size" },
		{ "exec_timeout = 5 m\n", "f:1: exec_timeout: invalid duration" },
		{ "cpus = 1e3\n", "f:1: cpus: invalid number of CPUs" },
		{ "audit_output = true\n", "f:1: audit_output: 'true': must be yes or no" },
		{ "audit_sync = yes\n", "f:1: audit_sync: 'yes': must be always or second" },
		{ "vm_accel = hvf\n", "f:1: vm_accel: 'hvf': must be auto" },
		{ "vm_ready = 65\n", "f:1: vm_ready: '65' must be between" },
		{ "noid_isolation = wasm\n", "f:1: noid_isolation: 'wasm': must be auto" },
		{ "listen = 7070\n", "f:1: listen: address '7070'" },
		{ "listen = 127.0.0.1:1\nlisten = 127.0.0.1:1\n", "f:2: listen: '127.0.0.1:1' is given twice" },
		{ "output_limit = 1G\n", "f:1: output_limit: '1G' must be between" },
		{ "= 3\n", "f:1: unknown key ''" },
		{ "network_open = maybe\n", "f:1: network_open: 'maybe': must be yes or no" },
		{ "network_open = no\nnetwork_open = no\n", "f:2: network_open is given twice" },
		{ "network_set = a.example\n", "f:1: network_set: must be NAME: RULE" },
		{ "network_private = a.example\n", "f:1: network_private: 'a.example': must be addresses" },
		{ "network_hosts = a\x01 1.2.3.4\n", "f:1: network_hosts: control bytes" },
		{ "network_ca = ca.pem\n", "f:1: network_ca: 'ca.pem': must be an absolute path" },
	};

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		CHECK(parse(bad[i].text) < 0);
		CHECK_CONTAINS(e.msg, bad[i].says);
	}
}

TEST(a_mistyped_key_is_answered_with_the_one_that_was_meant)
{
	CHECK(parse("memroy = 1G\n") < 0);
	CHECK_CONTAINS(e.remedy, "did you mean memory?");
}

TEST(networks_are_lists_and_a_copy_is_as_good)
{
	const char *list[EGRESS_RULES_MAX];
	struct daemon_config copy;

	CHECK_EQ(
		parse("network_set = p: a.example, b.example:8443\nnetwork_set = p: c.example\nnetwork_set = q: d.example\n"
		      "network_private = 10.0.0.0/8:5432\nnetwork_private = [fd00::1]:*\nnetwork_hosts = a.example 10.0.0.1\n"
		      "network_resolver = 10.0.0.53\nnetwork_open = no\n"),
		0);
	copy = c;
	conf_init(&c);
	CHECK(!c.network.closed && copy.network.closed);
	CHECK_EQ(net_conf_set(&copy.network, "p", list), 3);
	CHECK_STR(list[2], "c.example");
	CHECK_EQ(net_conf_list(&copy.network, NET_CONF_PRIVATE, list), 2);
	CHECK_STR(copy.network.resolver, "10.0.0.53");
}

TEST(a_nul_byte_and_a_long_line_are_errors)
{
	static char line[3 * DAEMON_PATH];

	conf_init(&c);
	CHECK(conf_parse(&c, "f", "pool = 1\0\n", 10, &e) < 0);
	CHECK_CONTAINS(e.msg, "f:1: contains a NUL byte");
	memset(line, 'x', sizeof(line));
	CHECK(conf_parse(&c, "f", line, sizeof(line), &e) < 0);
	CHECK_CONTAINS(e.msg, "f:1: contains a line of 3072 bytes");
}

TEST(a_list_has_an_end)
{
	char text[40];

	conf_init(&c);
	for (unsigned i = 0; i < DAEMON_LISTENERS; i++) {
		snprintf(text, sizeof(text), "127.0.0.1:%u", i + 1);
		CHECK_EQ(conf_set(&c, "listen", text, &e), 0);
	}
	CHECK_EQ(conf_set(&c, "listen", "127.0.0.1:99", &e), -E2BIG);
	for (unsigned i = 0; i < 16; i++)
		CHECK_EQ(conf_set(&c, "allow_mount", "/x", &e), 0);
	CHECK_EQ(conf_set(&c, "allow_mount", "/x", &e), -E2BIG);
	conf_clear(&c, "listen");
	conf_clear(&c, "allow_mount");
	conf_clear(&c, "pool");
	CHECK_EQ(c.nlisten + c.nallow_mount, 0);
	CHECK_EQ(c.pool, 32);
}

TEST(what_does_not_fit_together_is_refused)
{
	static const struct {
		const char *text, *says;
	} bad[] = {
		{ "memory_max = 100M\n", "memory must not be more than memory_max" },
		{ "cpus = 0\ncpus_max = 4\n", "cpus must not be more than cpus_max" },
		{ "exec_timeout = 0\nexec_timeout_max = 1h\n", "exec_timeout must not be more than" },
		{ "tls_cert = /a\n", "tls_cert needs tls_key" },
		{ "tls_key = /a\n", "tls_key needs tls_cert" },
		{ "spool_max = 5G\n", "spool_max must not be more than spool_total" },
	};

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		CHECK_EQ(parse(bad[i].text), 0);
		CHECK(conf_finish(&c, &e) < 0);
		CHECK_CONTAINS(e.msg, bad[i].says);
	}
}

TEST(with_a_certificate_only_tcp_speaks_tls)
{
	CHECK_EQ(parse("tls_cert = /a\ntls_key = /b\nlisten = [::1]:1\nlisten = unix:/x"), 0);
	CHECK_EQ(conf_finish(&c, &e), 0);
	CHECK(c.listen[0].tls && !c.listen[1].tls);
}

TEST(files_and_folders_are_looked_for)
{
	CHECK_EQ(parse("images = /etc/passwd"), 0);
	CHECK(conf_check_files(&c, &e) < 0);
	CHECK_CONTAINS(e.msg, "images '/etc/passwd': not a folder");
	CHECK_EQ(parse("tls_cert = /etc\ntls_key = /etc/passwd"), 0);
	CHECK(conf_check_files(&c, &e) < 0);
	CHECK_CONTAINS(e.msg, "tls_cert '/etc': not a file");
	CHECK_EQ(parse("allow_mount = /nowhere/at/all"), 0);
	CHECK_EQ(conf_check_files(&c, &e), -ENOENT);
	CHECK_EQ(parse("allow_mount = /etc\nimages = /usr"), 0);
	CHECK_EQ(conf_check_files(&c, &e), 0);
}

TEST(a_file_is_read_whole_or_not_at_all)
{
	char path[] = "/tmp/cloche-conf-XXXXXX";
	AUTO_CLOSE int fd = mkstemp(path);

	CHECK(fd >= 0);
	CHECK_EQ(fd_write_all(fd, "pool = 5\n", 9), 0);
	conf_init(&c);
	CHECK_EQ(conf_read(&c, path, &e), 0);
	CHECK_EQ(c.pool, 5);
	CHECK_EQ(ftruncate(fd, CONF_FILE_MAX), 0);
	CHECK_EQ(conf_read(&c, path, &e), -EFBIG);
	CHECK_EQ(unlink(path), 0);
	CHECK_EQ(conf_read(&c, path, &e), -ENOENT);
	CHECK_CONTAINS(e.msg, path);
}

TEST(every_key_can_be_set_and_says_its_name_when_it_can_not)
{
	size_t n = 0;

	conf_init(&c);
	for (; conf_key(n); n++) {
		e = (struct err){ 0 };
		CHECK(conf_set(&c, conf_key(n), "", &e) < 0);
		CHECK_EQ(strncmp(e.msg, conf_key(n), strlen(conf_key(n))), 0);
	}
	CHECK(n >= 30);
}
