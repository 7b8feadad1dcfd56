/* `cloche stats`. */
#include "client/client.h"
#include "base/base.h"
#include "client/show.h"
#include "client/text.h"

static const char help[] = "usage: cloche stats SANDBOX\n"
			   "\n"
			   "Prints what a sandbox uses now, and its peaks.\n"
			   "\n";

static void line(const char *name, const char *value, const char *more)
{
	printf("%-10s  %s%s\n", name, value, more);
}

static void print(const json_t *s, const json_t *box)
{
	char a[32], b[32], more[64];

	snprintf(a, sizeof(a), "%.3f s", (double)show_u64(s, "cpu_ms") / 1000);
	snprintf(more, sizeof(more), ", %.3f s throttled", (double)show_u64(s, "cpu_throttled_ms") / 1000);
	line("cpu", a, more);
	snprintf(more, sizeof(more), " of %s, peak ", text_size(show_u64(box, "memory"), b, sizeof(b)));
	printf("%-10s  %s%s", "memory", text_size(show_u64(s, "memory"), a, sizeof(a)), more);
	puts(text_size(show_u64(s, "memory_peak"), a, sizeof(a)));
	snprintf(a, sizeof(a), "%llu", (unsigned long long)show_u64(s, "oom_kills"));
	line("oom kills", a, " of processes, by the memory limit");
	snprintf(a, sizeof(a), "%llu", (unsigned long long)show_u64(s, "pids"));
	snprintf(more, sizeof(more), " of %llu, peak %llu", (unsigned long long)show_u64(box, "pids"),
		 (unsigned long long)show_u64(s, "pids_peak"));
	line("processes", a, more);
	snprintf(more, sizeof(more), " of %s, %llu files", text_size(show_u64(s, "disk_limit"), b, sizeof(b)),
		 (unsigned long long)show_u64(s, "inodes"));
	line("disk", text_size(show_u64(s, "disk"), a, sizeof(a)), more);
	line("i/o", text_size(show_u64(s, "io_bytes"), a, sizeof(a)), "");
	line("network", text_size(show_u64(s, "net_bytes"), a, sizeof(a)), "");
	snprintf(a, sizeof(a), "%llu", (unsigned long long)show_u64(s, "execs"));
	line("execs", a, "");
}

static int run(struct args *a, struct err *e)
{
	AUTO(buf_done) struct buf path = BUF_INIT(8 * KIB);
	AUTO_JSON json_t *stats = NULL, *box = NULL;
	AUTO(conn_close) struct conn *c = NULL;
	int r = args_only(a, e);

	if (r < 0 || a->help)
		return r;
	r = args_connect(a, 1, 1, "SANDBOX", &c, e);
	if (r == 0)
		r = url_add(&path, "/v1/sandboxes/%s", a->rest[0]);
	if (r == 0 && !a->json)
		r = conn_get(c, buf_str(&path), &box, e);
	if (r == 0)
		r = buf_adds(&path, "/stats");
	if (r == 0)
		r = conn_get(c, buf_str(&path), &stats, e);
	if (r < 0)
		return r;
	if (a->json)
		return show_json(stats, SHOW_LINE, e);
	print(stats, box);
	return 0;
}

const struct command cmd_stats = {
	.name = "stats",
	.text = "print what a sandbox uses",
	.help = help,
	.complete = COMPLETE_NAMES,
	.names = "sandbox",
	.run = run,
};
