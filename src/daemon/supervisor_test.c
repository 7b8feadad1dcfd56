/*
 * The supervisor with the real warden and, in place of the API process, one that answers every connection with its pid.
 * What the real one does is tested over HTTP: tests/functional/test_serve_start.py.
 */
#include "daemon/supervisor.h"
#include "base/base.h"
#include "base/sys.h"
#include "base/test.h"
#include "daemon/conf.h"
#include "daemon/folder.h"
#include "daemon/identity.h"
#include "warden/client/client.h"
#include "warden/warden_test.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define STUBBORN 4711 /* connections: for tests with an API process that does not end by itself */

static struct {
	char base[64], data[220], warden[512], egress[512];
	struct daemon_config config;
	pid_t pid;
	int out;
	char text[2048], token[160];
	unsigned port;
} d;

static void nap(unsigned ms)
{
	nanosleep(&(struct timespec){ ms / 1000, (long)(ms % 1000) * 1000000 }, NULL);
}

/*
 * ---- in place of the API process ----------------------------------------------------------------------------------
 */

static void answer(const struct daemon_start *s, int listener)
{
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	char text[300];

	if (fd < 0)
		return;
	snprintf(text, sizeof(text), "%d %d %s", getpid(), getuid(), s->token);
	(void)!write(fd, text, strlen(text));
	fd_close(fd);
}

/* As the API's user, by what we were handed: the folder's path may be longer than an address. */
static bool reach_warden(const struct daemon_start *s)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	AUTO_CLOSE int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	snprintf(a.sun_path, sizeof(a.sun_path), "/proc/self/fd/%d", s->warden_place);
	return connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0;
}

static int serve(const struct daemon_start *s)
{
	struct pollfd p[] = { { s->listener[0], POLLIN, 0 }, { s->unix_listener, POLLIN, 0 }, { s->life, POLLIN, 0 } };
	struct identity who;
	struct stat st;
	struct err e;

	if (identity_find(s->config->user, &who, &e) < 0 || identity_become(&who, getppid(), &e) < 0)
		return 1;
	if (fstat(s->warden_place, &st) < 0 || !S_ISSOCK(st.st_mode) || st.st_uid != who.uid)
		return 2;
	if (!reach_warden(s))
		return 6;
	if (s->config->conns_max == STUBBORN)
		signal(SIGTERM, SIG_IGN);
	if (access(s->config->data, R_OK | W_OK | X_OK) < 0)
		return 3;
	if (!strcmp(s->config->noid_isolation, "vm"))
		return 77; /* for tests of a failed start */
	close(open("state.db", O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	if (write(s->ready, "!", 1) != 1)
		return 4;
	if (s->config->audit_output)
		return 0; /* for tests with an API process that always ends */
	while (poll(p, 3, -1) > 0 && !p[2].revents)
		for (int i = 0; i < 2; i++)
			if (p[i].revents)
				answer(s, p[i].fd);
	return 0;
}

static int serve_in_data(const struct daemon_start *s)
{
	return chdir(s->config->data) < 0 ? 5 : serve(s);
}

/*
 * ---- tools --------------------------------------------------------------------------------------------------------
 */

static bool prepare(void)
{
	struct err e;

	memset(&d, 0, sizeof(d));
	snprintf(d.base, sizeof(d.base), "/tmp/cloche-super-XXXXXX");
	if (!mkdtemp(d.base) || chmod(d.base, 0755) < 0)
		return false;
	snprintf(d.data, sizeof(d.data), "%s/data", d.base);
	conf_init(&d.config);
	d.config.pool = 1;
	return wt_program("cloche-warden", d.warden, sizeof(d.warden)) &&
	       wt_program("cloche-egress", d.egress, sizeof(d.egress)) &&
	       conf_set(&d.config, "data", d.data, &e) == 0 && conf_set(&d.config, "user", "61988", &e) == 0 &&
	       conf_set(&d.config, "listen", "127.0.0.1:0", &e) == 0 && conf_finish(&d.config, &e) == 0;
}

/* Starts it; reads what it prints until the last line it may print, or its end. */
static bool start(const char *last)
{
	int p[2];

	if (pipe2(p, O_CLOEXEC) < 0)
		return false;
	d.pid = fork();
	if (d.pid == 0) {
		struct supervisor_opts o = {
			.config = &d.config, .serve = serve_in_data, .warden = d.warden, .egress = d.egress, .out = p[1]
		};
		struct err e = { 0 };
		int r;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		fd_close(p[0]);
		r = supervisor_run(&o, &e);
		if (r < 0)
			dprintf(p[1], "error: %s\n", e.msg);
		_exit(r < 0 ? 125 : 0);
	}
	fd_close(p[1]);
	d.out = p[0];
	memset(d.text, 0, sizeof(d.text));
	for (size_t n = 0; n < sizeof(d.text) - 1;) {
		ssize_t got = read(d.out, d.text + n, sizeof(d.text) - 1 - n);

		if (got <= 0)
			break;
		n += (size_t)got;
		if (strstr(d.text, last) && d.text[n - 1] == '\n')
			break;
	}
	if (sscanf(d.text, "cloche %*s serving on http://127.0.0.1:%u", &d.port) != 1)
		d.port = 0;
	if (strstr(d.text, "token: "))
		sscanf(strstr(d.text, "token: "), "token: %159s", d.token);
	return d.pid > 0;
}

/* Its exit code, or -signal; -1000 when it does not end. */
static int ended(void)
{
	int status;

	for (int i = 0; i < 2000; i++, nap(10))
		if (waitpid(d.pid, &status, WNOHANG) == d.pid)
			return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
	kill(d.pid, SIGKILL);
	waitpid(d.pid, &status, 0);
	return -1000;
}

static int stop(int sig)
{
	kill(d.pid, sig);
	return ended();
}

static void clean(void)
{
	static const char *const names[] = { "lock",	    "state.db",	   "first-start", "cloche.sock",
					     "warden.sock", "egress.sock", "token",	  "layers/lock" };
	char path[300];

	fd_close(d.out);
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		snprintf(path, sizeof(path), "%s/%s", d.data, names[i]);
		unlink(path);
	}
	snprintf(path, sizeof(path), "%s/layers", d.data);
	rmdir(path);
	snprintf(path, sizeof(path), "%s/disks", d.data);
	rmdir(path);
	rmdir(d.data);
	rmdir(d.base);
}

/* What the API's place answers: its pid; 0 when it cannot be reached. */
static pid_t ask(char *rest, size_t size)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_port = htons((uint16_t)d.port),
				 .sin_addr = { htonl(INADDR_LOOPBACK) } };
	AUTO_CLOSE int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char text[300] = "";
	int pid = 0, at = 0;

	if (connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || read(fd, text, sizeof(text) - 1) <= 0 ||
	    sscanf(text, "%d %n", &pid, &at) != 1)
		return 0;
	if (rest)
		snprintf(rest, size, "%s", text + at);
	return pid;
}

static pid_t child_named(const char *name)
{
	char path[64], list[256] = "", comm[32] = "", *p = list, *end;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", d.pid, d.pid);
	fd_get(AT_FDCWD, path, list, sizeof(list));
	for (long pid; (pid = strtol(p, &end, 10)) > 0; p = end) {
		snprintf(path, sizeof(path), "/proc/%ld/comm", pid);
		if (fd_get(AT_FDCWD, path, comm, sizeof(comm)) > 0 && !strncmp(comm, name, strlen(name)))
			return (pid_t)pid;
	}
	return 0;
}

static pid_t warden_child(void)
{
	for (int i = 0; i < 300; i++, nap(10)) {
		pid_t pid = child_named("cloche-warden");

		if (pid)
			return pid;
	}
	return 0;
}

static bool gone(pid_t pid)
{
	for (int i = 0; i < 500; i++, nap(10))
		if (kill(pid, 0) < 0)
			return true;
	return false;
}

static struct client *warden_connect(void)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	struct client *c = NULL;
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	struct err e;

	snprintf(a.sun_path, sizeof(a.sun_path), "%.90s/warden.sock", d.data);
	if (connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0) {
		fd_close(fd);
		return NULL;
	}
	return client_connect(fd, &c, &e) < 0 ? NULL : c;
}

static int readable(int fd, int ms)
{
	struct pollfd p = { fd, POLLIN, 0 };

	return poll(&p, 1, ms);
}

static bool is_there(const char *name)
{
	char path[300];

	snprintf(path, sizeof(path), "%s/%s", d.data, name);
	return access(path, F_OK) == 0;
}

/* Whether a warden's records of this data folder are kept. */
static bool has_state(void)
{
	char path[100], sandboxes[120];
	struct err e;
	bool is;

	if (folder_state(d.data, path, sizeof(path), &e) < 0)
		return false;
	snprintf(sandboxes, sizeof(sandboxes), "%s/boxes", path);
	is = access(sandboxes, F_OK) == 0;
	rmdir(path); /* if it was only made by asking */
	return is;
}

/*
 * ---- tests --------------------------------------------------------------------------------------------------------
 */

TEST(the_first_start_prints_a_token_and_the_second_does_not)
{
	char rest[300], want[300], path[300];
	struct stat st;

	CHECK(prepare());
	CHECK(start("try: "));
	CHECK(d.port > 0);
	CHECK_EQ(strlen(d.token), 50);
	CHECK(ask(rest, sizeof(rest)) > 0);
	snprintf(want, sizeof(want), "61988 %s", d.token);
	CHECK_STR(rest, want);
	CHECK_EQ(stat(d.data, &st), 0);
	CHECK_EQ(st.st_uid, 61988);
	CHECK_EQ(st.st_mode & 07777, 0700);
	snprintf(path, sizeof(path), "%s/warden.sock", d.data);
	CHECK_EQ(stat(path, &st), 0);
	CHECK_EQ(st.st_uid, 61988);
	CHECK_EQ(st.st_mode & 07777, 0600);
	snprintf(path, sizeof(path), "%s/cloche.sock", d.data);
	CHECK_EQ(stat(path, &st), 0);
	CHECK_EQ(st.st_mode & 07777, 0666);
	CHECK(!is_there("first-start"));
	CHECK_EQ(stop(SIGTERM), 0);
	CHECK(!is_there("cloche.sock") && !is_there("warden.sock") && is_there("state.db"));
	fd_close(d.out);
	CHECK(start("serving"));
	CHECK(!strstr(d.text, "token"));
	CHECK_EQ(stop(SIGINT), 0);
	clean();
}

TEST(a_first_start_that_was_cut_short_is_done_again)
{
	CHECK(prepare());
	CHECK_EQ(mkdir(d.data, 0700), 0);
	CHECK_EQ(chown(d.data, 61988, 61988), 0);
	for (int i = 0; i < 2; i++) {
		char path[300];

		snprintf(path, sizeof(path), "%s/%s", d.data, i ? "first-start" : "state.db");
		close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
		CHECK_EQ(chown(path, 61988, 61988), 0);
	}
	CHECK(start("try: "));
	CHECK_EQ(strlen(d.token), 50);
	CHECK_EQ(stop(SIGTERM), 0);
	clean();
}

TEST(an_api_process_that_is_killed_comes_back_on_the_same_port_and_the_warden_stays)
{
	pid_t first, second, warden;
	unsigned port;

	CHECK(prepare());
	CHECK(start("try: "));
	port = d.port;
	warden = warden_child();
	first = ask(NULL, 0);
	CHECK(first > 0 && warden > 0);
	for (int i = 0; i < 3; i++) {
		CHECK_EQ(kill(first, SIGKILL), 0);
		second = ask(NULL, 0); /* waits in the backlog */
		if (!second) /* was taken by the one that died */
			second = ask(NULL, 0);
		CHECK(second > 0 && second != first);
		first = second;
	}
	CHECK_EQ(d.port, port);
	CHECK_EQ(warden_child(), warden);
	CHECK_EQ(stop(SIGTERM), 0);
	CHECK(gone(first) && gone(warden));
	clean();
}

TEST(a_warden_that_is_killed_comes_back_and_finds_its_sandbox)
{
	struct warden_receipt receipt;
	struct client_sandbox sandbox;
	const struct sandbox_spec spec = {
		.image = "host",
		.hostname = "sandbox",
		.workdir = "/home/user",
		.uid = 1000,
		.gid = 1000,
		.limits = { .memory = 64 << 20, .disk = 16 << 20, .pids = 32 },
	};
	struct client *c;
	struct err e = { 0 };
	pid_t api, warden;
	uint64_t handle = 0;

	CHECK(prepare());
	CHECK(start("try: "));
	api = ask(NULL, 0);
	c = warden_connect();
	CHECK(c);

	CHECK_EQ(client_create(c, &spec, &sandbox, &e), 0);
	warden = warden_child();
	CHECK_EQ(kill(warden, SIGKILL), 0);
	client_free(c);
	CHECK(gone(warden));
	c = warden_connect();
	CHECK(c);
	CHECK_EQ(client_next(c, 0, &handle, &receipt, &e), 0);
	CHECK_EQ(handle, sandbox.handle);
	CHECK_EQ(ask(NULL, 0), api);
	client_free(c);
	/* It outlives the daemon, until a daemon is to end all. */
	CHECK_EQ(stop(SIGTERM), 0);
	CHECK_EQ(readable(sandbox.pidfd, 300), 0);
	CHECK(has_state());
	fd_close(d.out);
	d.config.stop_sandboxes = true;
	CHECK(start("serving"));
	CHECK_EQ(stop(SIGTERM), 0);
	CHECK_EQ(readable(sandbox.pidfd, 1000), 1);
	CHECK(!has_state());
	client_sandbox_done(&sandbox);
	clean();
}

static pid_t egress_child(void)
{
	for (int i = 0; i < 300; i++, nap(10)) {
		pid_t pid = child_named("cloche-egress");

		if (pid)
			return pid;
	}
	return 0;
}

/* Connected to as the API process would be. */
static int egress_connect(void)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	snprintf(a.sun_path, sizeof(a.sun_path), "%.90s/egress.sock", d.data);
	if (connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0)
		return fd;
	fd_close(fd);
	return -1;
}

TEST(egress_is_nobody_else_and_comes_back_on_the_same_socket_while_the_others_stay)
{
	pid_t api, warden, egress, next;
	char path[64], text[2048] = "", packet[256];
	int fd;

	CHECK(prepare());
	CHECK(start("try: "));
	api = ask(NULL, 0);
	warden = warden_child();
	egress = egress_child();
	CHECK(api > 0 && warden > 0 && egress > 0);
	fd = egress_connect();
	CHECK(fd >= 0);
	CHECK(recv(fd, packet, sizeof(packet), 0) > 0); /* it has begun for good, and says so */
	snprintf(path, sizeof(path), "/proc/%d/status", egress);
	CHECK(fd_get(AT_FDCWD, path, text, sizeof(text)) > 0);
	CHECK_CONTAINS(text, "Uid:\t61988\t61988\t61988\t61988");
	CHECK_CONTAINS(text, "CapPrm:\t0000000000000000");
	CHECK_CONTAINS(text, "NoNewPrivs:\t1");
	CHECK_EQ(kill(egress, SIGKILL), 0);
	CHECK_EQ(readable(fd, 5000), 1);
	fd_close(fd);
	CHECK(gone(egress));
	fd = egress_connect(); /* waits in the backlog */
	CHECK(fd >= 0);
	CHECK(recv(fd, packet, sizeof(packet), 0) > 0);
	next = egress_child();
	CHECK(next > 0 && next != egress);
	CHECK_EQ(ask(NULL, 0), api);
	CHECK_EQ(warden_child(), warden);
	fd_close(fd);
	CHECK_EQ(stop(SIGTERM), 0);
	CHECK(gone(next) && !is_there("egress.sock"));
	clean();
}

TEST(children_die_with_the_supervisor_and_its_folder_is_free_again)
{
	struct client *c;
	pid_t api, warden;

	CHECK(prepare());
	CHECK(start("try: "));
	api = ask(NULL, 0);
	warden = warden_child();
	CHECK(api > 0 && warden > 0);
	c = warden_connect();
	CHECK(c); /* it has started for good */
	client_free(c);
	nap(200); /* and has made what it keeps ready, which changes its ids */
	CHECK_EQ(stop(SIGKILL), -SIGKILL);
	CHECK(gone(api) && gone(warden));
	fd_close(d.out);
	CHECK(start("serving"));
	CHECK(ask(NULL, 0) > 0);
	CHECK_EQ(stop(SIGTERM), 0);
	clean();
}

TEST(a_second_daemon_on_the_same_folder_is_refused)
{
	char want[100];
	pid_t first;
	int out;

	CHECK(prepare());
	CHECK(start("try: "));
	first = d.pid;
	out = d.out;
	snprintf(want, sizeof(want), "another daemon uses this data folder (pid %d)", first);
	CHECK(start("error"));
	CHECK_CONTAINS(d.text, want);
	CHECK_EQ(ended(), 125);
	fd_close(d.out);
	d.pid = first;
	d.out = out;
	CHECK(is_there("cloche.sock"));
	CHECK_EQ(stop(SIGTERM), 0);
	clean();
}

TEST(a_start_that_fails_is_not_tried_again)
{
	CHECK(prepare());
	snprintf(d.config.noid_isolation, sizeof(d.config.noid_isolation), "vm");
	CHECK(start("error"));
	CHECK_CONTAINS(d.text, "error: the API process ended with exit code 77 before it was ready");
	CHECK_EQ(ended(), 125);
	clean();
}

TEST(one_that_never_stays_is_given_up)
{
	CHECK(prepare());
	d.config.audit_output = true;
	CHECK(start("error"));
	CHECK_CONTAINS(d.text, "10 times within 30 s");
	CHECK_EQ(ended(), 125);
	clean();
}

TEST(a_second_signal_does_not_wait)
{
	CHECK(prepare());
	d.config.conns_max = STUBBORN;
	CHECK(start("try: "));
	CHECK_EQ(kill(d.pid, SIGTERM), 0);
	nap(500);
	CHECK(ask(NULL, 0) > 0);
	CHECK_EQ(stop(SIGTERM), 0);
	CHECK(!is_there("cloche.sock"));
	clean();
}

TEST(a_data_folder_may_have_a_long_path)
{
	struct err e;
	size_t n;

	CHECK(prepare());
	n = strlen(d.base);
	memset(d.data, 'x', sizeof(d.data) - 1);
	memcpy(d.data, d.base, n);
	d.data[n] = '/';
	CHECK_EQ(conf_set(&d.config, "data", d.data, &e), 0);
	CHECK(start("try: "));
	CHECK(ask(NULL, 0) > 0);
	CHECK(is_there("cloche.sock"));
	CHECK_EQ(stop(SIGTERM), 0);
	CHECK(!is_there("cloche.sock"));
	clean();
}

TEST(a_token_file_is_made_and_used_and_not_printed)
{
	char path[300], text[64] = "", rest[300], want[300];
	struct err e;

	CHECK(prepare());
	snprintf(path, sizeof(path), "%s/token", d.base);
	CHECK_EQ(conf_set(&d.config, "token_file", path, &e), 0);
	CHECK(start("try: "));
	CHECK(!strstr(d.text, "cloche_"));
	CHECK_CONTAINS(d.text, "Bearer $(cat /tmp/");
	CHECK_EQ(fd_get(AT_FDCWD, path, text, sizeof(text)), 51);
	text[50] = '\0';
	CHECK(ask(rest, sizeof(rest)) > 0);
	snprintf(want, sizeof(want), "61988 %s", text);
	CHECK_STR(rest, want);
	CHECK_EQ(stop(SIGTERM), 0);
	unlink(path);
	clean();
}

TEST(folders_of_others_and_links_are_refused)
{
	char other[300];

	CHECK(prepare());
	CHECK_EQ(symlink("/tmp", d.data), 0);
	CHECK(start("error"));
	CHECK_CONTAINS(d.text, "must be a folder, not a link");
	CHECK_EQ(ended(), 125);
	fd_close(d.out);
	unlink(d.data);
	CHECK_EQ(mkdir(d.data, 0755), 0);
	CHECK_EQ(chown(d.data, 4321, 4321), 0);
	CHECK(start("error"));
	CHECK_CONTAINS(d.text, "belongs to uid 4321");
	CHECK_EQ(ended(), 125);
	fd_close(d.out);
	/* Root's is taken over only when nothing is in it. */
	CHECK_EQ(chown(d.data, 0, 0), 0);
	snprintf(other, sizeof(other), "%s/lock", d.data);
	close(open(other, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	CHECK(start("error"));
	CHECK_CONTAINS(d.text, "belongs to uid 0");
	CHECK_EQ(ended(), 125);
	fd_close(d.out);
	unlink(other);
	CHECK(start("try: "));
	CHECK_EQ(stop(SIGTERM), 0);
	fd_close(d.out);
	/* A folder above that does not let the API's user through: it has a descriptor. */
	CHECK_EQ(chmod(d.base, 0700), 0);
	CHECK(start("serving on"));
	CHECK_EQ(stop(SIGTERM), 0);
	clean();
}
