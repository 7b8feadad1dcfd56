/*
 * The attack: this process stays outside and starts `cloche run` once per kind of user for the plain probes, and once
 * per bomb and user with small limits. It lays out bait that only the host has (files, a listening port, an abstract
 * socket, a variable) and checks afterwards that the bait is as it was. What comes out of a sandbox is text of an
 * enemy: ids are matched against the probe's own list, everything else is printed only after cleaning.
 *
 * A probe that gave no answer counts as open: silence proves nothing.
 */
#include "cli/attack.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/json.h"
#include "base/sys.h"
#include "engine/program.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROWS_MAX 128
#define PATH_LEN 512

/* Limits of the bombs' sandboxes, and how far the bombs go: well past them. */
#define BOMB_MIB "256"
#define BOMB_PIDS "512"
#define BOMB_OUTPUT (256 * KIB)

enum column { AS_USER, AS_ROOT, COLUMNS };
static const char *const column_users[COLUMNS] = { "user", "root" };

enum mark { MARK_NONE, MARK_CLOSED, MARK_NA, MARK_INFO, MARK_OPEN }; /* the worst last */
static const char *const mark_names[] = { "none", "closed", "na", "info", "open" };

struct cell {
	enum mark mark;
	char detail[240];
};

struct row {
	char id[8], name[80], anchor[120];
	struct cell cell[COLUMNS];
};

struct bait {
	char id[ID_SIZE];
	char file[PATH_LEN], secret_file[PATH_LEN]; /* one for all to read, one for root */
	char socket[64], port[8];
	int listen_tcp, listen_unix;
};

struct attack {
	char probe[PATH_LEN];
	struct stat probe_stat;
	struct bait bait;
	struct row rows[ROWS_MAX];
	size_t nrows, answers;
	bool bombs;
	char failed[300]; /* why a run gave nothing at all */
};

void attack_result_done(struct attack_result *r)
{
	buf_done(&r->out);
	buf_done(&r->err);
}

/*
 * Signals by which a user ends a command. They are blocked while bait files exist; `cloche run` gets its own copy from
 * a terminal.
 */
static void end_signals(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGINT);
	sigaddset(set, SIGTERM);
	sigaddset(set, SIGHUP);
}

static bool asked_to_end(void)
{
	sigset_t want, have;

	end_signals(&want);
	sigpending(&have);
	for (int s = 1; s < 32; s++)
		if (sigismember(&want, s) == 1 && sigismember(&have, s) == 1)
			return true;
	return false;
}

/* Takes what is there; past the maximum it is only counted. False at the end. */
static bool drain(int fd, struct buf *b, uint64_t *total)
{
	char chunk[16384];
	ssize_t n = sys_read(fd, chunk, sizeof(chunk));

	if (n == -EINTR || n == -EAGAIN)
		return true;
	if (n <= 0)
		return false;
	*total += (uint64_t)n;
	(void)buf_add(b, chunk, (size_t)n);
	return true;
}

static void collect(int fds[2], uint64_t deadline, struct attack_result *res)
{
	struct pollfd p[2] = { { .fd = fds[0], .events = POLLIN }, { .fd = fds[1], .events = POLLIN } };

	while (p[0].fd >= 0 || p[1].fd >= 0) {
		uint64_t now = clock_mono_ns();

		if (now >= deadline || asked_to_end() || (poll(p, 2, 100) < 0 && errno != EINTR))
			return;
		if (p[0].revents && !drain(fds[0], &res->out, &res->out_bytes))
			p[0].fd = -1;
		if (p[1].revents && !drain(fds[1], &res->err, &res->err_bytes))
			p[1].fd = -1;
	}
}

static int spawn(const char *const *argv, unsigned seconds, struct attack_result *res, struct err *e)
{
	int out[2] = { -1, -1 }, err[2] = { -1, -1 }, status = 0, r;
	uint64_t start = clock_mono_ns(), deadline = start + seconds * 1000000000ULL;
	pid_t pid;

	r = sys_pipe2(out, O_CLOEXEC);
	if (r == 0)
		r = sys_pipe2(err, O_CLOEXEC);
	pid = r < 0 ? -1 : fork();
	if (pid == 0) {
		int null = sys_openat(AT_FDCWD, "/dev/null", O_RDONLY | O_CLOEXEC, 0);
		sigset_t set;

		end_signals(&set);
		sigprocmask(SIG_UNBLOCK, &set, NULL);
		dup2(null, 0);
		dup2(out[1], 1);
		dup2(err[1], 2);
		/* Bait of its own kind: must not be seen inside. */
		setenv("CLOCHE_ATTACK_SECRET", "seen", 1);
		execv(argv[0], (char *const *)(uintptr_t)argv);
		_exit(127);
	}
	if (pid < 0) {
		r = r < 0 ? r : -errno;
		fd_close_many(out, 2);
		fd_close_many(err, 2);
		return err_sys(e, ERR_INTERNAL, r, "start %s", argv[0]);
	}
	fd_close(out[1]);
	fd_close(err[1]);
	collect((int[2]){ out[0], err[0] }, deadline, res);
	fd_close(out[0]);
	fd_close(err[0]);
	/* It has closed its output, or has had its time. */
	for (int i = 0; waitpid(pid, &status, WNOHANG) == 0; i++) {
		if (clock_mono_ns() > deadline || asked_to_end())
			kill(pid, i < 200 ? SIGTERM : SIGKILL); /* it has a second to clean up */
		poll(NULL, 0, 5);
	}
	res->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	res->ms = (clock_mono_ns() - start) / 1000000;
	return asked_to_end() ? err_set(e, ERR_INTERNAL, -EINTR, "interrupted") : 0;
}

static int self_path(char *ret, size_t size, struct err *e)
{
	ssize_t n = readlink("/proc/self/exe", ret, size - 1);

	if (n < 0)
		return err_sys(e, ERR_INTERNAL, -errno, "find the path of this program");
	ret[n] = '\0';
	return 0;
}

int attack_self(const char *const *args, unsigned seconds, struct attack_result *ret, struct err *e)
{
	const char *argv[48];
	char self[PATH_LEN];
	size_t n = 0;
	int r = self_path(self, sizeof(self), e);

	if (r < 0)
		return r;
	argv[n++] = self;
	while (*args && n < ARRAY_LEN(argv) - 1)
		argv[n++] = *args++;
	argv[n] = NULL;
	return spawn(argv, seconds, ret, e);
}

/* Beside this program in a build folder, else where `make install` puts it. */
static int find_probe(struct attack *a, struct err *e)
{
	int r = program_path("cloche-probe", a->probe, sizeof(a->probe), e);

	if (r < 0)
		return r;
	return stat(a->probe, &a->probe_stat) < 0 ? err_sys(e, ERR_INTERNAL, -errno, "%s", a->probe) : 0;
}

/* Printable ASCII only: the rest could move a terminal's cursor. */
static void copy_clean(char *to, size_t size, const char *from, size_t len)
{
	size_t n = len < size - 1 ? len : size - 1;

	for (size_t i = 0; i < n; i++)
		to[i] = from[i] >= 0x20 && from[i] < 0x7f ? from[i] : '?';
	to[n] = '\0';
}

/* Splits at tabs into at most @max fields; returns how many there are. */
static size_t split(const char *line, size_t len, const char **field, size_t *flen, size_t max)
{
	size_t n = 0;

	while (n < max) {
		const char *tab = n + 1 < max ? memchr(line, '\t', len) : NULL;

		field[n] = line;
		flen[n++] = tab ? (size_t)(tab - line) : len;
		if (!tab)
			break;
		len -= (size_t)(tab - line) + 1;
		line = tab + 1;
	}
	return n;
}

typedef void line_fn(struct attack *a, const char *line, size_t len, enum column c);

static void each_line(struct attack *a, const struct buf *b, enum column c, line_fn *fn)
{
	const char *p = buf_str(b), *end = p + b->len;

	while (p < end) {
		const char *nl = memchr(p, '\n', (size_t)(end - p));

		if (!nl)
			return; /* cut off: not an answer */
		fn(a, p, (size_t)(nl - p), c);
		p = nl + 1;
	}
}

static void add_row(struct attack *a, const char *line, size_t len, enum column c)
{
	const char *field[3];
	size_t flen[3];
	struct row *row = &a->rows[a->nrows];

	(void)c;
	if (a->nrows == ROWS_MAX || split(line, len, field, flen, 3) != 3)
		return;
	copy_clean(row->id, sizeof(row->id), field[0], flen[0]);
	copy_clean(row->name, sizeof(row->name), field[1], flen[1]);
	copy_clean(row->anchor, sizeof(row->anchor), field[2], flen[2]);
	a->nrows++;
}

/* What probes exist is asked outside any sandbox: a missing answer is then seen. */
static int list_probes(struct attack *a, struct err *e)
{
	AUTO(attack_result_done) struct attack_result res = ATTACK_RESULT_INIT;
	int r = spawn((const char *[]){ a->probe, "--list", NULL }, 10, &res, e);

	if (r < 0)
		return r;
	each_line(a, &res.out, AS_USER, add_row);
	if (res.status != 0 || a->nrows == 0)
		return err_set(e, ERR_INTERNAL, -EIO, "%s does not list its probes (status %d)", a->probe, res.status);
	return 0;
}

/* Keeps the worst of several answers. */
static void note(struct cell *cell, enum mark m, const char *detail, size_t len)
{
	if (m < cell->mark)
		return;
	cell->mark = m;
	copy_clean(cell->detail, sizeof(cell->detail), detail, len);
}

static void read_answer(struct attack *a, const char *line, size_t len, enum column c)
{
	const char *field[4];
	size_t flen[4];

	if (split(line, len, field, flen, 4) != 4)
		return;
	for (size_t i = 0; i < a->nrows; i++) {
		struct row *row = &a->rows[i];

		if (strlen(row->id) != flen[0] || memcmp(row->id, field[0], flen[0]) != 0)
			continue;
		for (enum mark m = MARK_CLOSED; m <= MARK_OPEN; m++)
			if (strlen(mark_names[m]) == flen[1] && !memcmp(mark_names[m], field[1], flen[1]))
				note(&row->cell[c], m, field[3], flen[3]);
		a->answers++;
	}
}

static int lay_file(char *path, size_t size, const char *dir, const char *id, mode_t mode, struct err *e)
{
	AUTO_CLOSE int fd = -1;
	int r;

	snprintf(path, size, "%s/.cloche-canary-%s", dir, id);
	fd = sys_openat(AT_FDCWD, path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, mode);
	if (fd < 0) {
		path[0] = '\0';
		return err_sys(e, ERR_INTERNAL, fd, "create bait in %s", dir);
	}
	r = sys_fchmod(fd, mode);
	if (r == 0)
		r = fd_write_all(fd, id, strlen(id));
	return r < 0 ? err_sys(e, ERR_INTERNAL, r, "create bait in %s", dir) : 0;
}

static int lay_listeners(struct bait *b, struct err *e)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	socklen_t len = sizeof(in);

	b->listen_tcp = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (b->listen_tcp < 0 || bind(b->listen_tcp, (struct sockaddr *)&in, sizeof(in)) < 0 ||
	    listen(b->listen_tcp, 8) < 0 || getsockname(b->listen_tcp, (struct sockaddr *)&in, &len) < 0)
		return err_sys(e, ERR_INTERNAL, -errno, "listen on loopback");
	snprintf(b->port, sizeof(b->port), "%u", ntohs(in.sin_port));

	snprintf(b->socket, sizeof(b->socket), "cloche-canary-%s", b->id);
	memcpy(un.sun_path + 1, b->socket, strlen(b->socket));
	len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(b->socket));
	b->listen_unix = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (b->listen_unix < 0 || bind(b->listen_unix, (struct sockaddr *)&un, len) < 0 ||
	    listen(b->listen_unix, 8) < 0)
		return err_sys(e, ERR_INTERNAL, -errno, "listen on an abstract socket");
	return 0;
}

static int lay_bait(struct bait *b, struct err *e)
{
	int r = id_new(b->id, sizeof(b->id));

	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "make a random id");
	r = lay_file(b->file, sizeof(b->file), "/tmp", b->id, 0644, e);
	if (r == 0 && geteuid() == 0)
		r = lay_file(b->secret_file, sizeof(b->secret_file), "/root", b->id, 0600, e);
	return r < 0 ? r : lay_listeners(b, e);
}

static void take_up_bait(struct bait *b)
{
	if (b->file[0])
		unlink(b->file);
	if (b->secret_file[0])
		unlink(b->secret_file);
	fd_close(b->listen_tcp);
	fd_close(b->listen_unix);
}

/* A command line for `cloche run`, put together piece by piece. */
struct command {
	const char *arg[48];
	size_t n;
	char mount[PATH_LEN + 16];
};

static void add(struct command *c, const char *const *args)
{
	for (; *args && c->n < ARRAY_LEN(c->arg) - 1; args++)
		c->arg[c->n++] = *args;
	c->arg[c->n] = NULL;
}
#define ADD(c, ...) add(c, (const char *[]){ __VA_ARGS__, NULL })

static void command_start(const struct attack *a, enum column col, struct command *c)
{
	snprintf(c->mount, sizeof(c->mount), "%s:/probe:ro", a->probe);
	ADD(c, "run", "--timeout", "90s", "--mount", c->mount);
	if (col == AS_ROOT)
		ADD(c, "--user", "root");
}

/* When a whole run gave nothing, what it said is worth more than fifty times "no answer". */
static void note_failure(struct attack *a, const struct attack_result *res, enum column c)
{
	size_t len = res->err.len;

	while (len && buf_str(&res->err)[len - 1] == '\n')
		len--;
	if (!a->failed[0]) {
		int n = snprintf(a->failed, sizeof(a->failed), "as %s, status %d: ", column_users[c], res->status);

		copy_clean(a->failed + n, sizeof(a->failed) - (size_t)n, buf_str(&res->err), len);
	}
}

static int run_plain(struct attack *a, enum column c, const char *canary, const char *only, struct err *e)
{
	AUTO(attack_result_done) struct attack_result res = ATTACK_RESULT_INIT;
	struct command cmd = { .n = 0 };
	int r;

	command_start(a, c, &cmd);
	ADD(&cmd, "--", "/probe", "--canary", canary, a->bait.id, "--ro", "/probe", "--port", a->bait.port,
	    "--abstract", a->bait.socket);
	if (only)
		ADD(&cmd, only);
	r = attack_self(cmd.arg, 120, &res, e);
	if (r < 0)
		return r;
	each_line(a, &res.out, c, read_answer);
	if (res.status != 0 && res.status != 1)
		note_failure(a, &res, c);
	return 0;
}

static int run_bomb(struct attack *a, struct row *row, enum column c, struct err *e)
{
	AUTO(attack_result_done) struct attack_result res = ATTACK_RESULT_INIT;
	struct command cmd = { .n = 0 };
	struct cell *cell = &row->cell[c];
	char text[120];
	bool ran;
	int r;

	command_start(a, c, &cmd);
	ADD(&cmd, "--memory", "64M", "--pids", "64", "--nofile", "256", "--disk", "32M", "--inodes", "8192",
	    "--output-limit", "256K");
	/* Not for the others: being slow must not look like having met the limit in question. */
	if (!strcmp(row->id, "B09"))
		ADD(&cmd, "--cpu-time", "2s");
	ADD(&cmd, "--", "/probe", "--mib", BOMB_MIB, "--pids", BOMB_PIDS, row->id);
	r = attack_self(cmd.arg, 120, &res, e);
	if (r < 0)
		return r;
	each_line(a, &res.out, c, read_answer);
	ran = cell->mark != MARK_NONE || res.status == 137;
	if (!strcmp(row->id, "B10") && ran) {
		/* Head and tail are kept, and a notice: twice the limit is generous. */
		bool kept = res.err_bytes + res.out_bytes > 2 * BOMB_OUTPUT;

		snprintf(text, sizeof(text), "%llu KiB of %s MiB were output",
			 (unsigned long long)(res.err_bytes / KIB), BOMB_MIB);
		cell->mark = MARK_NONE;
		note(cell, kept ? MARK_OPEN : MARK_CLOSED, text, strlen(text));
	} else if (cell->mark == MARK_NONE) {
		/* 137: the whole sandbox was ended by a limit. The command was made so that only limits end it. */
		snprintf(text, sizeof(text),
			 res.status == 137 ? "the sandbox was ended by a limit" : "no answer, status %d", res.status);
		note(cell, res.status == 137 ? MARK_CLOSED : MARK_OPEN, text, strlen(text));
		if (res.status != 137)
			note_failure(a, &res, c);
	}
	return 0;
}

static void check_host(struct attack *a)
{
	const char *files[] = { a->bait.file, a->bait.secret_file };
	char text[ID_SIZE + 8];
	bool bait = true, probe;
	struct stat st;

	for (size_t i = 0; i < ARRAY_LEN(files); i++)
		if (files[i][0])
			bait = bait && fd_get(AT_FDCWD, files[i], text, sizeof(text)) > 0 && !strcmp(text, a->bait.id);
	probe = stat(a->probe, &st) == 0 && st.st_size == a->probe_stat.st_size &&
		st.st_mode == a->probe_stat.st_mode && st.st_ctim.tv_sec == a->probe_stat.st_ctim.tv_sec &&
		st.st_ctim.tv_nsec == a->probe_stat.st_ctim.tv_nsec;

	for (int i = 0; i < 2 && a->nrows < ROWS_MAX; i++) {
		struct row *row = &a->rows[a->nrows++];

		*row = (struct row){ 0 };
		snprintf(row->id, sizeof(row->id), "%s", i ? "H02" : "H01");
		snprintf(row->name, sizeof(row->name),
			 i ? "the mounted program is unchanged" : "the host's files are unchanged");
		snprintf(row->anchor, sizeof(row->anchor), "checked on the host, afterwards");
		for (int c = 0; c < COLUMNS; c++)
			row->cell[c].mark = (i ? probe : bait) ? MARK_CLOSED : MARK_OPEN;
	}
}

static int run_all(struct attack *a, struct err *e)
{
	size_t n = a->nrows;
	int r = 0;

	for (enum column c = 0; c < COLUMNS && r == 0; c++) {
		r = run_plain(a, c, a->bait.file, NULL, e);
		if (a->answers == 0)
			return r; /* no sandbox at all: nothing to try the rest in */
		if (r == 0 && a->bait.secret_file[0])
			r = run_plain(a, c, a->bait.secret_file, "F12", e);
		for (size_t i = 0; i < n && r == 0; i++)
			if (a->rows[i].id[0] == 'B' && a->bombs)
				r = run_bomb(a, &a->rows[i], c, e);
			else if (a->rows[i].id[0] == 'B')
				note(&a->rows[i].cell[c], MARK_NA, "left out", strlen("left out"));
		for (size_t i = 0; i < n; i++)
			if (a->rows[i].cell[c].mark == MARK_NONE)
				note(&a->rows[i].cell[c], MARK_OPEN, "no answer", strlen("no answer"));
	}
	check_host(a);
	return r;
}

static void count(const struct attack *a, unsigned n[MARK_OPEN + 1])
{
	for (size_t i = 0; i < a->nrows; i++)
		for (int c = 0; c < COLUMNS; c++)
			n[a->rows[i].cell[c].mark]++;
}

static int print_json(const struct attack *a, const unsigned n[MARK_OPEN + 1])
{
	AUTO(buf_done) struct buf b = BUF_INIT(1 * MIB);
	struct json j = JSON_INIT(&b);

	jout_object(&j, NULL);
	jout_bool(&j, "ok", n[MARK_OPEN] == 0);
	jout_array(&j, "probes");
	for (size_t i = 0; i < a->nrows; i++) {
		const struct row *row = &a->rows[i];

		jout_object(&j, NULL);
		jout_str(&j, "id", row->id);
		jout_str(&j, "claim", row->name);
		jout_str(&j, "anchor", row->anchor);
		for (int c = 0; c < COLUMNS; c++) {
			jout_object(&j, column_users[c]);
			jout_str(&j, "verdict", mark_names[row->cell[c].mark]);
			jout_str(&j, "detail", row->cell[c].detail);
			jout_end(&j);
		}
		jout_end(&j);
	}
	jout_end(&j);
	jout_object(&j, "summary");
	for (enum mark m = MARK_CLOSED; m <= MARK_OPEN; m++)
		jout_u64(&j, mark_names[m], n[m]);
	jout_end(&j);
	if (a->failed[0])
		jout_str(&j, "failure", a->failed);
	jout_end(&j);
	if (jout_done(&j) < 0 || buf_addc(&b, '\n') < 0)
		return -ENOMEM;
	return fd_write_all(STDOUT_FILENO, b.data, b.len);
}

static void print_table(const struct attack *a, const unsigned n[MARK_OPEN + 1])
{
	const bool color = isatty(STDOUT_FILENO);

	printf("%-4s %-58s %-7s %-7s\n", "ID", "CLAIM", "USER", "ROOT");
	for (size_t i = 0; i < a->nrows; i++) {
		const struct row *row = &a->rows[i];

		printf("%-4s %-58s", row->id, row->name);
		for (int c = 0; c < COLUMNS; c++) {
			enum mark m = row->cell[c].mark;
			const char *on = !color		  ? "" :
					 m == MARK_OPEN	  ? "\033[1;31m" :
					 m == MARK_CLOSED ? "\033[32m" :
							    "";

			printf(" %s%-7s%s", on, mark_names[m], *on ? "\033[0m" : "");
		}
		printf("\n");
		for (int c = 0; c < COLUMNS; c++)
			if (row->cell[c].mark == MARK_OPEN)
				printf("     as %s: %s\n     (%s)\n", column_users[c], row->cell[c].detail,
				       row->anchor);
	}
	if (a->failed[0])
		printf("A sandbox did not finish its probes: %s\n", a->failed);
	printf("%u closed, %u open, %u not applicable, %u informational\n", n[MARK_CLOSED], n[MARK_OPEN], n[MARK_NA],
	       n[MARK_INFO]);
}

static int attack(struct attack *a, bool json, struct err *e)
{
	unsigned n[MARK_OPEN + 1] = { 0 };
	int r = find_probe(a, e);

	if (r == 0)
		r = list_probes(a, e);
	if (r == 0)
		r = lay_bait(&a->bait, e);
	if (r == 0)
		r = run_all(a, e);
	take_up_bait(&a->bait);
	if (r < 0)
		return r;
	if (a->answers == 0)
		return err_set(e, ERR_UNSUPPORTED, -EIO, "no probe could run: %.200s", a->failed);
	count(a, n);
	if (json)
		r = print_json(a, n);
	else
		print_table(a, n);
	return r < 0 ? err_sys(e, ERR_INTERNAL, r, "print") : n[MARK_OPEN] > 0;
}

int attack_run(bool json, bool bombs)
{
	AUTO_FREE struct attack *a = calloc(1, sizeof(*a));
	sigset_t set, before;
	struct err e = { 0 };
	int r;

	if (!a) {
		fprintf(stderr, "cloche: out of memory\n");
		return 125;
	}
	a->bombs = bombs;
	a->bait.listen_tcp = a->bait.listen_unix = -1;
	end_signals(&set);
	sigprocmask(SIG_BLOCK, &set, &before);
	r = attack(a, json, &e);
	sigprocmask(SIG_SETMASK, &before, NULL); /* a signal that came in the meantime ends us here */
	if (r < 0) {
		fprintf(stderr, "cloche: %s%s%s\n", e.msg, e.remedy[0] ? "; " : "", e.remedy);
		return 125;
	}
	return r;
}
