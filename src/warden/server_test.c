#include "warden/server.h"
#include "base/base.h"
#include "base/test.h"
#include "warden/msg.h"
#include "warden/privileges.h"
#include "warden/warden_test.h"

#include <sys/stat.h>
#include <sys/un.h>

static char dir[32]; /* folder of the present test: sockets, images */

/* A warden that listens on dir/s, so that several clients can connect. */
static bool listen_open(struct wt *w, const char *const *more)
{
	char program[512], path[64], number[16];
	const char *argv[24] = { program, "--socket-fd", number, "--pool", "2" };
	int n = 5;

	*w = (struct wt){ .sock = -1 };
	snprintf(dir, sizeof(dir), "/var/tmp/cloche-test-XXXXXX");
	if (!wt_program("cloche-warden", program, sizeof(program)) || !mkdtemp(dir) || chmod(dir, 0755) < 0)
		return false;
	snprintf(path, sizeof(path), "%s/s", dir);
	for (; more && *more && n < 23; more++)
		argv[n++] = *more;
	w->pid = fork();
	if (w->pid == 0) {
		snprintf(number, sizeof(number), "%d", wt_listener(path));
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		execv(program, (char *const *)(uintptr_t)argv);
		_exit(127);
	}
	for (int i = 0; i < 500; i++) {
		if (access(path, F_OK) == 0)
			return true;
		wt_sleep_ms(5);
	}
	return false;
}

static int remove_dir(void)
{
	char path[64];

	snprintf(path, sizeof(path), "%s/s", dir);
	unlink(path);
	return rmdir(dir);
}

static int dial(void)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	snprintf(a.sun_path, sizeof(a.sun_path), "%s/s", dir);
	for (int i = 0; fd >= 0 && i < 500; i++) {
		if (connect(fd, (const struct sockaddr *)&a, sizeof(a)) == 0)
			return fd;
		if (errno != ECONNREFUSED && errno != EAGAIN)
			break;
		wt_sleep_ms(5);
	}
	fd_close(fd);
	return -1;
}

static struct client *dial_client(void)
{
	struct client *c = NULL;
	int fd = dial();
	struct err e = { 0 };

	if (fd >= 0 && client_connect(fd, &c, &e) < 0)
		printf("# %s\n", e.msg);
	return c;
}

static unsigned made(struct client *c)
{
	struct warden_counts n = { 0 };
	struct err e;

	return client_counts(c, &n, &e) < 0 ? ~0U : (unsigned)n.made;
}

/* Sends raw bytes. Returns 1 with the answer, 0 when the connection was closed instead. */
static int send_raw(int fd, const void *data, size_t len, const int *fds, size_t nfds, struct warden_rep *ret)
{
	int got[MSG_FDS] = MSG_NO_FDS;
	size_t n = 0;
	ssize_t r;

	if (fd_send(fd, data, len, fds, nfds) < 0)
		return 0;
	r = fd_recv(fd, ret, sizeof(*ret), got, MSG_FDS, &n);
	fd_close_many(got, n);
	return r == (ssize_t)sizeof(*ret);
}

static uint64_t noise = 0x9e3779b97f4a7c15ULL; /* seed of the random numbers, the same in every run */

static uint64_t next_noise(void)
{
	noise ^= noise << 13;
	noise ^= noise >> 7;
	noise ^= noise << 17;
	return noise;
}

TEST(random_bytes_and_wrong_sizes_make_nothing_and_end_the_connection)
{
	static const size_t sizes[] = { 1,
					8,
					24,
					sizeof(struct warden_req) - 1,
					sizeof(struct warden_req) + 1,
					sizeof(struct warden_req) * 2,
					60000 };
	static uint8_t bytes[60000];
	static struct warden_rep p;
	AUTO(client_free) struct client *c = NULL;
	unsigned fds, answered = 0;
	struct wt w;

	CHECK(listen_open(&w, NULL));
	CHECK((c = dial_client()));
	fds = wt_fds(w.pid);
	for (int round = 0; round < 200; round++) {
		size_t size = round % 2 ? sizeof(struct warden_req) : sizes[(size_t)(round / 2) % ARRAY_LEN(sizes)];
		AUTO_CLOSE int fd = dial();
		char byte;

		CHECK(fd >= 0);
		for (size_t i = 0; i < size; i++)
			bytes[i] = (uint8_t)next_noise();
		if (send_raw(fd, bytes, size, NULL, 0, &p)) {
			CHECK(p.result < 0);
			answered++;
		}
		CHECK_EQ(read(fd, &byte, 1), 0); /* without a valid size and version the connection is closed */
	}
	CHECK(answered > 150);
	CHECK(wt_alive(&w));
	CHECK_EQ(made(c), 0);
	for (int i = 0; i < 200 && wt_fds(w.pid) != fds; i++)
		wt_sleep_ms(5);
	/* the pool's two blanks may have been made meanwhile; 200 leaked connections would be more */
	CHECK(wt_fds(w.pid) <= fds + 60);
	CHECK_EQ(wt_stop(&w), 0);
	CHECK_EQ(remove_dir(), 0);
}

TEST(flipped_fields_are_refused_or_mean_what_they_say)
{
	static struct warden_req base, q;
	static struct warden_rep p;
	unsigned refused = 0, accepted = 0;
	struct sandbox_spec spec;
	struct err e = { 0 };
	struct warden_counts n;
	struct wt w;
	AUTO_CLOSE int fd = -1;
	AUTO(client_free) struct client *c = NULL;

	CHECK(listen_open(&w, NULL));
	CHECK((c = dial_client()));
	wt_spec(&spec);
	base.version = MSG_VERSION;
	base.op = WARDEN_CREATE;
	spec_put(&spec, &base.spec);
	for (int i = 0; i < 4000; i++) {
		uint64_t x = next_noise();
		/* Half of the changes are in the header, the others anywhere. */
		size_t at = i % 2 ? 4 + x % 28 : x % sizeof(q);
		bool ok;

		q = base;
		q.seq = (uint64_t)i;
		((uint8_t *)&q)[at] ^= (uint8_t)(1U << (x >> 40) % 8);
		if (i % 5 == 0)
			((uint8_t *)&q)[24 + (x >> 32) % sizeof(q.spec)] ^= (uint8_t)(x >> 48);
		ok = msg_check_req(&q, sizeof(q), &e) == 0;
		if (fd < 0)
			CHECK((fd = dial()) >= 0);
		if (!send_raw(fd, &q, sizeof(q), NULL, 0, &p)) {
			CHECK(!ok);
			fd_close(TAKE_FD(fd));
			continue;
		}
		if (!ok)
			CHECK(p.result < 0);
		refused += p.result < 0;
		if (p.result == 0 && q.op == WARDEN_CREATE) {
			accepted++;
			CHECK_EQ(client_destroy(c, p.handle, &e), 0);
		}
		if (q.version != MSG_VERSION)
			fd_close(TAKE_FD(fd));
	}
	CHECK(refused > 500);
	CHECK(accepted > 10);
	CHECK(wt_alive(&w));
	CHECK_EQ(client_counts(c, &n, &e), 0);
	CHECK_EQ(n.alive, 0);
	CHECK_EQ(n.made, accepted);
	CHECK_EQ(wt_stop(&w), 0);
	CHECK_EQ(remove_dir(), 0);
}

TEST(descriptors_nobody_asked_for_are_closed)
{
	static struct warden_req q = { .version = MSG_VERSION, .op = WARDEN_HELLO };
	static struct warden_rep p;
	AUTO_CLOSE int mine = open("/dev/null", O_RDONLY | O_CLOEXEC);
	int many[FD_MSG_MAX];
	AUTO(client_free) struct client *c = NULL;
	int pair[2];
	struct err e = { 0 };
	struct warden_counts n = { 0 };
	struct wt w;
	char byte;

	CHECK(listen_open(&w, NULL));
	CHECK((c = dial_client()));
	for (size_t i = 0; i < ARRAY_LEN(many); i++)
		many[i] = mine;
	for (int i = 0; i < 50; i++) {
		AUTO_CLOSE int fd = dial();

		CHECK(send_raw(fd, &q, sizeof(q), many, i % 2 ? ARRAY_LEN(many) : 1, &p));
		CHECK(p.result < 0);
	}
	/* The other end of a pipe shows when the last copy is closed. */
	CHECK_EQ(pipe2(pair, O_CLOEXEC | O_NONBLOCK), 0);
	{
		AUTO_CLOSE int fd = dial();

		CHECK(send_raw(fd, &q, sizeof(q), &pair[1], 1, &p));
	}
	fd_close(pair[1]);
	CHECK_EQ(read(pair[0], &byte, 1), 0);
	fd_close(pair[0]);
	CHECK_EQ(client_counts(c, &n, &e), 0);
	CHECK_EQ(n.made, 0);
	CHECK_EQ(wt_stop(&w), 0);
	CHECK_EQ(remove_dir(), 0);
}

TEST(who_does_not_read_its_answers_is_dropped_and_others_are_served)
{
	static struct warden_req q = { .version = MSG_VERSION, .op = WARDEN_COUNTS };
	AUTO_CLOSE int fd = -1;
	AUTO(client_free) struct client *c = NULL;
	struct warden_counts n;
	struct err e = { 0 };
	struct wt w;
	int sent = 0;

	CHECK(listen_open(&w, NULL));
	CHECK((fd = dial()) >= 0);
	CHECK((c = dial_client()));
	while (sent < 100000 && send(fd, &q, sizeof(q), MSG_NOSIGNAL) > 0)
		sent++;
	CHECK(sent < 100000);
	CHECK_EQ(client_counts(c, &n, &e), 0);
	CHECK_EQ(wt_stop(&w), 0);
	CHECK_EQ(remove_dir(), 0);
}

TEST(many_requests_at_once_are_answered_in_order)
{
	static struct warden_req q = { .version = MSG_VERSION };
	static struct warden_rep p;
	struct wt w;
	int fd;

	CHECK(listen_open(&w, NULL));
	CHECK((fd = dial()) >= 0);
	for (unsigned round = 0; round < 20; round++) {
		for (uint64_t i = 1; i <= 20; i++) {
			q.op = i % 2 ? WARDEN_COUNTS : WARDEN_NEXT;
			q.seq = i;
			CHECK_EQ(send(fd, &q, sizeof(q), 0), sizeof(q));
		}
		for (uint64_t i = 1; i <= 20; i++) {
			CHECK_EQ(recv(fd, &p, sizeof(p), 0), sizeof(p));
			CHECK(p.seq == i && p.op == (i % 2 ? WARDEN_COUNTS : WARDEN_NEXT) && p.result == 0);
		}
	}
	fd_close(fd);
	CHECK_EQ(wt_stop(&w), 0);
	CHECK_EQ(remove_dir(), 0);
}

TEST(a_handle_is_good_for_one_life_and_cannot_be_guessed)
{
	struct client_sandbox a, b;
	struct sandbox_spec spec;
	struct warden_stat st;
	struct err e = { 0 };
	struct wt w;

	CHECK(wt_open(&w, NULL));
	wt_spec(&spec);
	CHECK_EQ(client_create(w.client, &spec, &a, &e), 0);
	CHECK_EQ(client_create(w.client, &spec, &b, &e), 0);
	CHECK(a.handle != b.handle);
	for (uint64_t i = 1; i < 100; i++) {
		CHECK_EQ(client_stat(w.client, i, &st, &e), -ESRCH);
		CHECK_EQ(e.kind, ERR_NOT_FOUND);
		CHECK_EQ(client_destroy(w.client, a.handle + i, &e), -ESRCH);
	}
	CHECK_EQ(client_destroy(w.client, a.handle, &e), 0);
	CHECK_EQ(client_destroy(w.client, a.handle, &e), -ESRCH);
	CHECK_EQ(client_freeze(w.client, a.handle, &e), -ESRCH);
	CHECK_EQ(client_attach(w.client, a.handle, &a, &e), -ESRCH);
	CHECK_EQ(client_stat(w.client, b.handle, &st, &e), 0);
	client_sandbox_done(&a);
	client_sandbox_done(&b);
	CHECK_EQ(wt_stop(&w), 0);
}

TEST(a_daemon_that_dies_leaves_its_sandboxes_and_sigterm_ends_them)
{
	AUTO(client_free) struct client *c = NULL;
	struct client_sandbox s, again;
	struct sandbox_spec spec;
	char group[256];
	struct err e = { 0 };
	uint64_t handle;
	struct wt w;
	pid_t pid;

	CHECK(listen_open(&w, NULL));
	CHECK((c = dial_client()));
	wt_spec(&spec);
	CHECK_EQ(client_create(c, &spec, &s, &e), 0);
	CHECK(wt_wait_up(s.sock));
	handle = s.handle;
	pid = wt_pid(s.pidfd);
	CHECK(wt_cgroup(pid, group, sizeof(group)));
	client_sandbox_done(&s);
	client_free(TAKE_PTR(c));
	wt_sleep_ms(100);
	CHECK((c = dial_client()));
	CHECK_EQ(client_attach(c, handle, &again, &e), 0);
	CHECK_EQ(wt_pid(again.pidfd), pid);
	CHECK(!wt_gone(again.pidfd, 0));
	CHECK_EQ(again.receipt.idmapped, true);
	client_free(TAKE_PTR(c));
	CHECK_EQ(wt_stop(&w), 0);
	CHECK(wt_gone(again.pidfd, 0));
	CHECK(access(group, F_OK) < 0);
	client_sandbox_done(&again);
	CHECK_EQ(remove_dir(), 0);
}

TEST(a_closed_socket_pair_leaves_the_warden_waiting_for_sigterm)
{
	struct client_sandbox s;
	struct sandbox_spec spec;
	struct err e = { 0 };
	struct wt w;

	CHECK(wt_open(&w, NULL));
	wt_spec(&spec);
	CHECK_EQ(client_create(w.client, &spec, &s, &e), 0);
	client_free(TAKE_PTR(w.client));
	wt_sleep_ms(100);
	CHECK(wt_alive(&w));
	CHECK(!wt_gone(s.pidfd, 0));
	CHECK_EQ(wt_stop(&w), 0);
	CHECK(wt_gone(s.pidfd, 0));
	client_sandbox_done(&s);
}

static int refused(struct client *c, const char *image, const char *src)
{
	struct client_sandbox s;
	struct sandbox_spec spec;
	struct err e = { 0 };
	int r;

	wt_spec(&spec);
	if (image)
		snprintf(spec.image, sizeof(spec.image), "%s", image);
	if (src) {
		snprintf(spec.mount[0].src, SPEC_PATH, "%s", src);
		snprintf(spec.mount[0].dst, SPEC_PATH, "/m");
		spec.nmounts = 1;
	}
	r = client_create(c, &spec, &s, &e);
	if (r < 0)
		return e.kind == ERR_DENIED ? -EACCES : r;
	r = wt_wait_up(s.sock) ? 0 : -EIO;
	client_destroy(c, s.handle, &e);
	client_sandbox_done(&s);
	return r;
}

static char *in_dir(const char *name)
{
	static char path[4][96];
	static unsigned n;

	n = (n + 1) % 4;
	snprintf(path[n], sizeof(path[n]), "%s/%s", dir, name);
	return path[n];
}

TEST(only_listed_images_and_mounts_are_opened)
{
	char images[40], allowed[40];
	const char *const more[] = { "--images", images, "--allow-mount", allowed, NULL };
	struct wt w, none;
	unsigned before;

	snprintf(dir, sizeof(dir), "/var/tmp/cloche-test-XXXXXX");
	CHECK(mkdtemp(dir));
	snprintf(images, sizeof(images), "%s/i", dir);
	snprintf(allowed, sizeof(allowed), "%s/m", dir);
	CHECK(mkdir(images, 0755) == 0 && mkdir(in_dir("i/one"), 0755) == 0 && mkdir(in_dir("i/one/deep"), 0755) == 0);
	CHECK(mkdir(allowed, 0755) == 0 && mkdir(in_dir("m/sub"), 0755) == 0 && mkdir(in_dir("mm"), 0755) == 0);
	CHECK(symlink("/etc", in_dir("i/link")) == 0 && symlink("/etc", in_dir("m/link")) == 0);
	CHECK(symlink("one", in_dir("i/near")) == 0 && symlink("sub", in_dir("m/near")) == 0);
	CHECK(wt_open(&w, more));
	before = made(w.client);
	CHECK_EQ(refused(w.client, "/", NULL), -EACCES);
	CHECK_EQ(refused(w.client, "/usr", NULL), -EACCES);
	CHECK_EQ(refused(w.client, images, NULL), -EACCES);
	CHECK_EQ(refused(w.client, in_dir("i/"), NULL), -EACCES);
	CHECK_EQ(refused(w.client, in_dir("i/."), NULL), -EACCES);
	CHECK_EQ(refused(w.client, in_dir("i/one/deep"), NULL), -EACCES);
	CHECK_EQ(refused(w.client, in_dir("i/link"), NULL), -EACCES);
	CHECK_EQ(refused(w.client, in_dir("i/near"), NULL), -EACCES);
	CHECK_EQ(refused(w.client, in_dir("i/../m"), NULL), -EINVAL);
	CHECK_EQ(refused(w.client, in_dir("i/none"), NULL), -ENOENT);
	CHECK_EQ(refused(w.client, NULL, "/"), -EACCES);
	CHECK_EQ(refused(w.client, NULL, "/etc/shadow"), -EACCES);
	CHECK_EQ(refused(w.client, NULL, dir), -EACCES);
	CHECK_EQ(refused(w.client, NULL, in_dir("mm")), -EACCES);
	CHECK_EQ(refused(w.client, NULL, in_dir("m/link")), -EACCES);
	CHECK_EQ(refused(w.client, NULL, in_dir("m/link/passwd")), -EACCES);
	CHECK_EQ(refused(w.client, NULL, in_dir("m/near")), -EACCES);
	CHECK_EQ(refused(w.client, NULL, in_dir("m/../mm")), -EINVAL);
	CHECK_EQ(made(w.client), before);
	CHECK_EQ(refused(w.client, in_dir("i/one"), NULL), 0);
	CHECK_EQ(refused(w.client, NULL, allowed), 0);
	CHECK_EQ(refused(w.client, NULL, in_dir("m/sub")), 0);
	CHECK_EQ(refused(w.client, NULL, in_dir("m//sub/")), 0);
	CHECK_EQ(wt_stop(&w), 0);
	/* Without a list of allowed folders no mount is accepted. */
	CHECK(wt_open(&none, NULL));
	CHECK_EQ(refused(none.client, in_dir("i/one"), NULL), -EACCES);
	CHECK_EQ(refused(none.client, NULL, allowed), -EACCES);
	CHECK_EQ(wt_stop(&none), 0);
	CHECK(unlink(in_dir("i/link")) == 0 && unlink(in_dir("i/near")) == 0 && rmdir(in_dir("i/one/deep")) == 0);
	CHECK(unlink(in_dir("m/link")) == 0 && unlink(in_dir("m/near")) == 0 && rmdir(in_dir("i/one")) == 0);
	CHECK(rmdir(in_dir("m/sub")) == 0 && rmdir(in_dir("mm")) == 0 && rmdir(images) == 0 && rmdir(allowed) == 0);
	CHECK_EQ(remove_dir(), 0);
}

/* Connects as @uid: 1 when the warden answered, 0 when it closed the connection, 2 when connecting failed. */
static int ask_as(uid_t uid)
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		static struct warden_req q = { .version = MSG_VERSION, .op = WARDEN_HELLO };
		static struct warden_rep p;
		int fd;

		if (setresgid(uid, uid, uid) < 0 || setresuid(uid, uid, uid) < 0)
			_exit(9);
		fd = dial();
		_exit(fd < 0 ? 2 : send_raw(fd, &q, sizeof(q), NULL, 0, &p));
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(only_root_and_the_given_user_may_speak)
{
	static const char *const more[] = { "--uid", "54321", NULL };
	struct wt w;

	CHECK(listen_open(&w, more));
	CHECK_EQ(ask_as(0), 1); /* it is listening now */
	/* Even if the file's mode allows all users, the warden checks the peer. */
	CHECK_EQ(chmod(in_dir("s"), 0666), 0);
	CHECK_EQ(ask_as(54322), 0);
	CHECK_EQ(ask_as(54321), 1);
	CHECK_EQ(wt_stop(&w), 0);
	CHECK_EQ(remove_dir(), 0);
}

static bool has_line(const char *text, const char *key, uint64_t value, int base)
{
	const char *at = strstr(text, key);

	return at && strtoull(at + strlen(key), NULL, base) == value;
}

TEST(every_thread_has_given_up_what_it_does_not_need)
{
	char path[96], text[8192];
	struct client_sandbox s;
	struct sandbox_spec spec;
	unsigned threads = 0;
	struct err e = { 0 };
	const uint64_t kept =
		PRIVILEGES | (prctl(PR_CAPBSET_READ, CAP_SYS_RESOURCE, 0, 0, 0) == 1 ? PRIVILEGES_IF_ANY : 0);
	struct dirent *d;
	struct wt w;
	DIR *tasks;

	CHECK(wt_open(&w, NULL));
	wt_spec(&spec);
	CHECK_EQ(client_create(w.client, &spec, &s, &e), 0);
	snprintf(path, sizeof(path), "/proc/%d/task", (int)w.pid);
	CHECK((tasks = opendir(path)));
	while ((d = readdir(tasks))) {
		if (d->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "/proc/%d/task/%.16s/status", (int)w.pid, d->d_name);
		CHECK(fd_get(AT_FDCWD, path, text, sizeof(text)) > 0);
		CHECK(has_line(text, "\nCapEff:", kept, 16) && has_line(text, "\nCapPrm:", kept, 16));
		CHECK(has_line(text, "\nCapBnd:", kept, 16) && has_line(text, "\nCapInh:", 0, 16));
		CHECK(has_line(text, "\nCapAmb:", 0, 16) && has_line(text, "\nNoNewPrivs:", 1, 10));
		CHECK(has_line(text, "\nSeccomp:", 2, 10));
		threads++;
	}
	closedir(tasks);
	CHECK_EQ(threads, 4); /* one serves, two make and clean up, one watches kernel memory */
	/* The agent has what it needs, in its own user namespace. */
	CHECK(wt_wait_up(s.sock));
	client_sandbox_done(&s);
	CHECK_EQ(wt_stop(&w), 0);
}

TEST(without_its_capabilities_it_does_not_start)
{
	char program[512], text[512] = "";
	int p[2], status;
	ssize_t n;
	pid_t pid;

	CHECK(wt_program("cloche-warden", program, sizeof(program)));
	CHECK_EQ(pipe2(p, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		int pair[2];

		if (prctl(PR_CAPBSET_DROP, CAP_SYS_ADMIN) < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) < 0 ||
		    dup2(pair[0], 3) < 0 || dup2(p[1], 2) < 0)
			_exit(9);
		execl(program, program, "--socket-fd", "3", (char *)NULL);
		_exit(127);
	}
	fd_close(p[1]);
	for (size_t have = 0; (n = read(p[0], text + have, sizeof(text) - 1 - have)) > 0;)
		have += (size_t)n;
	fd_close(p[0]);
	CHECK_CONTAINS(text, "capabilities 200000 are missing");
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(WEXITSTATUS(status), 1);
}

TEST(a_sandbox_whose_agent_was_killed_can_still_be_asked_about_and_ended)
{
	struct client_sandbox s;
	struct sandbox_spec spec;
	struct warden_stat st;
	struct err e = { 0 };
	struct wt w;

	CHECK(wt_open(&w, NULL));
	wt_spec(&spec);
	CHECK_EQ(client_create(w.client, &spec, &s, &e), 0);
	CHECK(wt_wait_up(s.sock));
	CHECK_EQ(kill(wt_pid(s.pidfd), SIGKILL), 0);
	CHECK(wt_gone(s.pidfd, 2000));
	CHECK_EQ(client_stat(w.client, s.handle, &st, &e), 0);
	CHECK_EQ(client_freeze(w.client, s.handle, &e), 0);
	CHECK_EQ(client_destroy(w.client, s.handle, &e), 0);
	client_sandbox_done(&s);
	CHECK_EQ(wt_stop(&w), 0);
}

static unsigned groups_left(char list[][256], unsigned n)
{
	unsigned left = 0;

	for (unsigned i = 0; i < n; i++)
		left += access(list[i], F_OK) == 0;
	return left;
}

TEST(after_a_warden_was_killed_its_sandboxes_go_on_and_the_next_one_sweeps_up)
{
	static char group[5][256];
	static const char *const more[] = { "--pool", "4", NULL };
	struct client_sandbox s;
	struct sandbox_spec spec;
	struct warden_counts n;
	struct err e = { 0 };
	int status, pidfd[4];
	pid_t child[64];
	struct wt w;

	CHECK(wt_open(&w, more));
	wt_spec(&spec);
	CHECK_EQ(client_create(w.client, &spec, &s, &e), 0);
	CHECK(wt_wait_up(s.sock));
	CHECK(wt_cgroup(wt_pid(s.pidfd), group[4], sizeof(group[4])));
	do {
		wt_sleep_ms(20);
		CHECK_EQ(client_counts(w.client, &n, &e), 0);
	} while (n.ready < 3);
	/* Its children are the blanks, and the test's sandbox. */
	for (unsigned i = 0, found = 0, all = wt_sandboxes(w.pid, child, ARRAY_LEN(child)); found < 3; i++) {
		CHECK(i < all);
		if (child[i] == wt_pid(s.pidfd))
			continue;
		CHECK(wt_cgroup(child[i], group[found], sizeof(group[found])));
		CHECK((pidfd[found] = sys_pidfd_open(child[i], 0)) >= 0);
		found++;
	}
	CHECK_EQ(kill(w.pid, SIGKILL), 0);
	CHECK_EQ(waitpid(w.pid, &status, 0), w.pid);
	w.pid = 0;
	wt_stop(&w);
	/* Unused blanks end by themselves. The test's sandbox lives on, since the test has its socket. */
	for (int i = 0; i < 3; i++) {
		CHECK(wt_gone(pidfd[i], 5000));
		fd_close(pidfd[i]);
	}
	CHECK(!wt_gone(s.pidfd, 0));
	/* The warden of another test may have removed them already. */
	CHECK(wt_open(&w, more));
	for (int i = 0; i < 20 && groups_left(group, 3); i++) {
		CHECK_EQ(wt_stop(&w), 0);
		wt_sleep_ms(50); /* a dead process leaves its group a moment later */
		CHECK(wt_open(&w, more));
	}
	CHECK_EQ(groups_left(group, 3), 0);
	CHECK_EQ(groups_left(group + 4, 1), 1);
	CHECK(!wt_gone(s.pidfd, 0));
	CHECK_EQ(wt_stop(&w), 0);
	fd_close(TAKE_FD(s.sock));
	CHECK(wt_gone(s.pidfd, 5000));
	for (int i = 0; i < 20 && groups_left(group + 4, 1); i++) {
		wt_sleep_ms(50); /* a dead process leaves its group a moment later */
		CHECK(wt_open(&w, more));
		CHECK_EQ(wt_stop(&w), 0);
	}
	CHECK_EQ(groups_left(group + 4, 1), 0);
	client_sandbox_done(&s);
}
