/* `cloche top`. */
#include "client/client.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/str.h"
#include "client/list.h"
#include "client/show.h"
#include "client/table.h"
#include "client/text.h"
#include "client/tty.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define AT_ONCE 32 /* calls under way */
#define SHOWN_MAX 4096

enum { OPT_ONCE = 256, OPT_INTERVAL, OPT_ALL };

static const struct option options[] = {
	{ "once", no_argument, NULL, OPT_ONCE },
	{ "interval", required_argument, NULL, OPT_INTERVAL },
	{ "all", no_argument, NULL, OPT_ALL },
	{ NULL, 0, NULL, 0 },
};

static const char help[] = "usage: cloche top [options]\n"
			   "\n"
			   "Shows what all sandboxes use, live; q quits. Without a terminal, prints one table.\n"
			   "\n"
			   "  --once              print one table\n"
			   "  --interval TIME     time between updates                          1s\n"
			   "  --all               sandboxes of all tenants (admin)\n";

struct row {
	json_t *box, *stats; /* the first borrowed from the list; no stats: it went meanwhile */
	double cpu; /* per cent of one core */
};

struct sample {
	json_t *list;
	struct row *rows;
	size_t n;
	uint64_t at_ns;
};

static void sample_done(struct sample *s)
{
	for (size_t i = 0; i < s->n; i++)
		json_decref(s->rows[i].stats);
	free(s->rows);
	json_decref(s->list);
	*s = (struct sample){ 0 };
}

static int start_stats(struct conn *c, const char *id, struct call **ret, struct err *e)
{
	AUTO(buf_done) struct buf path = BUF_INIT(8 * KIB);
	struct call_spec spec = { .method = "GET" };
	int r = url_add(&path, "/v1/sandboxes/%s/stats", id);

	spec.path = buf_str(&path);
	return r < 0 ? r : call_start(c, &spec, ret, e);
}

static json_t *end_stats(struct call *call)
{
	const struct buf *b;

	/* It may have gone since the list was made. */
	if (call_wait(call, NULL) < 0)
		return NULL;
	b = call_body(call);
	return b->len ? json_loadb(b->data, b->len, 0, NULL) : NULL;
}

static int take_sample(struct conn *c, const char *query, struct sample *ret, struct err *e)
{
	struct sample s = { 0 };
	int r = list_sandboxes(c, query, &s.list, e);

	if (r < 0)
		return r;
	s.n = json_array_size(s.list) < SHOWN_MAX ? json_array_size(s.list) : SHOWN_MAX;
	s.rows = calloc(s.n + 1, sizeof(*s.rows));
	if (!s.rows) {
		s.n = 0;
		sample_done(&s);
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory");
	}
	s.at_ns = clock_mono_ns();
	for (size_t i = 0; i < s.n && r == 0; i += AT_ONCE) {
		struct call *calls[AT_ONCE] = { NULL };

		for (size_t k = 0; k < AT_ONCE && i + k < s.n && r == 0; k++) {
			s.rows[i + k].box = json_array_get(s.list, i + k);
			r = start_stats(c, show_str(s.rows[i + k].box, "id"), &calls[k], e);
		}
		for (size_t k = 0; k < AT_ONCE && calls[k]; k++) {
			if (r == 0)
				s.rows[i + k].stats = end_stats(calls[k]);
			call_free(calls[k]);
		}
	}
	if (r < 0)
		sample_done(&s);
	else
		*ret = s;
	return r;
}

static const struct row *find(const struct sample *s, const char *id)
{
	for (size_t i = 0; i < s->n; i++)
		if (!strcmp(show_str(s->rows[i].box, "id"), id))
			return &s->rows[i];
	return NULL;
}

static int by_cpu(const void *a, const void *b)
{
	const struct row *x = a, *y = b;

	if (x->cpu != y->cpu)
		return x->cpu < y->cpu ? 1 : -1;
	return strcmp(show_str(x->box, "id"), show_str(y->box, "id"));
}

/* CPU shares since the sample before, and the busiest first. */
static void compare(struct sample *now, const struct sample *before)
{
	double ms = (double)(now->at_ns - before->at_ns) / 1e6;

	for (size_t i = 0; i < now->n; i++) {
		const struct row *old = find(before, show_str(now->rows[i].box, "id"));
		uint64_t used = show_u64(now->rows[i].stats, "cpu_ms"),
			 had = old ? show_u64(old->stats, "cpu_ms") : used;

		now->rows[i].cpu = ms > 0 && used > had ? (double)(used - had) * 100 / ms : 0;
	}
	qsort(now->rows, now->n, sizeof(*now->rows), by_cpu);
}

static void fill(struct table *t, const struct sample *s)
{
	static const char *const titles[] = { "SANDBOX", "STATE", "CPU%", "MEMORY", "LIMIT",
					      "PIDS",	 "DISK",  "IO",	  "EXECS",  "AGE" };

	table_init(t, titles, ARRAY_LEN(titles), 0x3fc);
	for (size_t i = 0; i < s->n; i++) {
		const struct row *row = &s->rows[i];
		const char *name = show_str(row->box, "name");
		char tmp[32];

		table_add(t, *name ? name : show_str(row->box, "id"));
		table_add(t, show_str(row->box, "state"));
		table_addf(t, "%.1f", row->cpu);
		table_add(t, text_size(show_u64(row->stats, "memory"), tmp, sizeof(tmp)));
		table_add(t, text_size(show_u64(row->box, "memory"), tmp, sizeof(tmp)));
		table_addf(t, "%llu", (unsigned long long)show_u64(row->stats, "pids"));
		table_add(t, text_size(show_u64(row->stats, "disk"), tmp, sizeof(tmp)));
		table_add(t, text_size(show_u64(row->stats, "io_bytes"), tmp, sizeof(tmp)));
		table_addf(t, "%llu", (unsigned long long)show_u64(row->stats, "execs"));
		table_add(t, show_age(show_str(row->box, "created_at"), tmp, sizeof(tmp)));
	}
}

static int print_json(const struct sample *s, struct err *e)
{
	AUTO_JSON json_t *all = json_array();

	for (size_t i = 0; i < s->n; i++)
		json_array_append_new(all, json_pack("{s:s, s:s, s:s, s:f, s:O?}", "id", show_str(s->rows[i].box, "id"),
						     "name", show_str(s->rows[i].box, "name"), "state",
						     show_str(s->rows[i].box, "state"), "cpu_percent", s->rows[i].cpu,
						     "stats", s->rows[i].stats));
	return show_json(all, SHOW_LINE, e);
}

/* One screen: a line of totals, then as many rows as fit. */
static int draw(const struct sample *s, struct err *e)
{
	AUTO(buf_done) struct buf b = BUF_INIT(8 * MIB);
	AUTO(table_done) struct table t;
	AUTO(buf_done) struct buf body = BUF_INIT(8 * MIB);
	unsigned rows = 24, columns = 80;
	uint64_t memory = 0;
	double cpu = 0;
	char tmp[32], head[128];
	int r;

	for (size_t i = 0; i < s->n; i++) {
		cpu += s->rows[i].cpu;
		memory += show_u64(s->rows[i].stats, "memory");
	}
	tty_size(STDOUT_FILENO, &rows, &columns);
	snprintf(head, sizeof(head), "%zu sandboxes, cpu %.1f%%, memory %s   (q quits)", s->n, cpu,
		 text_size(memory, tmp, sizeof(tmp)));
	head[text_cut(head, columns)] = '\0';
	fill(&t, s);
	r = buf_addf(&b, "\x1b[H%s\x1b[K\r\n", head);
	if (r == 0)
		r = table_write(&t, columns, rows > 3 ? rows - 2 : 1, &body);
	for (size_t i = 0; i < body.len && r == 0; i++)
		r = body.data[i] == '\n' ? buf_adds(&b, "\x1b[K\r\n") : buf_addc(&b, body.data[i]);
	if (r == 0)
		r = buf_adds(&b, "\x1b[J");
	if (r == 0)
		r = fd_write_all(STDOUT_FILENO, b.data, b.len);
	return r < 0 ? err_sys(e, ERR_INTERNAL, r, "draw") : 0;
}

/* True when it is time to leave. */
static bool wait_key(int signals, uint64_t ms)
{
	uint64_t end = clock_mono_ns() + ms * 1000000;

	for (;;) {
		uint64_t now = clock_mono_ns();
		struct pollfd p[] = { { .fd = STDIN_FILENO, .events = POLLIN }, { .fd = signals, .events = POLLIN } };
		struct signalfd_siginfo info;
		char key;

		if (now >= end || poll(p, 2, (int)((end - now) / 1000000) + 1) == 0)
			return false;
		if (p[1].revents && read(signals, &info, sizeof(info)) == sizeof(info))
			return info.ssi_signo != SIGWINCH;
		if (p[0].revents && (read(STDIN_FILENO, &key, 1) != 1 || key == 'q' || key == 'Q' || key == 3))
			return true;
	}
}

static int live(struct conn *c, const char *query, uint64_t interval_ms, struct err *e)
{
	static const char enter[] = "\x1b[?1049h\x1b[?25l", leave[] = "\x1b[?25h\x1b[?1049l";
	AUTO(tty_restore) struct tty tty = TTY_INIT;
	struct sample before = { 0 }, now = { 0 };
	AUTO_CLOSE int signals = -1;
	sigset_t set;
	int r;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGWINCH);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signals = signalfd(-1, &set, SFD_CLOEXEC);
	if (signals < 0)
		return err_sys(e, ERR_INTERNAL, -errno, "signalfd");
	r = take_sample(c, query, &before, e);
	if (r < 0)
		return r;
	tty_quiet(&tty, STDIN_FILENO);
	fd_write_all(STDOUT_FILENO, enter, sizeof(enter) - 1);
	/* The first screen at once; its shares come with the next. */
	for (uint64_t wait = 200; r == 0; wait = interval_ms) {
		r = draw(now.n ? &now : &before, e);
		if (r < 0 || wait_key(signals, wait))
			break;
		if (now.list) {
			sample_done(&before);
			before = now;
			now = (struct sample){ 0 };
		}
		r = take_sample(c, query, &now, e);
		if (r == 0)
			compare(&now, &before);
	}
	fd_write_all(STDOUT_FILENO, leave, sizeof(leave) - 1);
	sample_done(&before);
	sample_done(&now);
	return r;
}

static int once(struct args *a, struct conn *c, const char *query, struct err *e)
{
	struct sample before = { 0 }, now = { 0 };
	int r = take_sample(c, query, &before, e);

	/* A share needs two looks. */
	if (r == 0)
		poll(NULL, 0, 500);
	if (r == 0)
		r = take_sample(c, query, &now, e);
	if (r == 0) {
		AUTO(table_done) struct table t = { 0 };

		compare(&now, &before);
		if (!a->json)
			fill(&t, &now);
		r = a->json ? print_json(&now, e) : table_print(&t, e);
	}
	sample_done(&before);
	sample_done(&now);
	return r;
}

static int run(struct args *a, struct err *e)
{
	AUTO(conn_close) struct conn *c = NULL;
	uint64_t interval_ms = 1000;
	const char *query = "";
	bool one = false;
	int opt, r;

	while ((r = args_next(a, &opt, e)) > 0) {
		if (opt == OPT_ONCE)
			one = true;
		else if (opt == OPT_ALL)
			query = "&tenant=%2A";
		else
			r = parse_duration(optarg, &interval_ms, e);
		if (r < 0)
			return err_wrap(e, r, "--interval");
	}
	if (r == 0 && !a->help)
		r = args_count(a, 0, 0, "options", e);
	if (r < 0 || a->help)
		return r;
	if (interval_ms < 100)
		interval_ms = 100;
	r = conn_open(&a->conn, &c, e);
	if (r < 0)
		return r;
	if (one || a->json || !isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
		return once(a, c, query, e);
	return live(c, query, interval_ms, e);
}

const struct command cmd_top = {
	.name = "top",
	.text = "what all sandboxes use, live",
	.help = help,
	.options = options,
	.run = run,
};
