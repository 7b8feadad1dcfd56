/*
 * cloche-bench: what a sandbox costs, beside what others cost, in one run.
 *
 * This process holds the engine. Commands are started and timed by small helper processes forked before the engine
 * exists (a large or threaded process pays more for a fork); one of them lives in a mount namespace where the other
 * runtimes find the cgroups they understand. Idle sandboxes are held by processes of their own. The daemon's parts
 * start a `cloche serve` each and are its client, in this process: one thread, plain sockets, nothing parsed that need
 * not be, since client and daemon share the processors. A bound that is missed is told, but is no failure: a benchmark
 * is not a test.
 */
#include "bench.h"
#include "base/base.h"
#include "base/str.h"
#include "engine/program.h"

#include <getopt.h>
#include <sys/resource.h>
#include <unistd.h>

volatile sig_atomic_t bench_stop;

static const struct part {
	const char *name;
	int (*run)(struct bench *b, struct err *e);
	bool serve; /* about the daemon */
} parts[] = {
	{ "rounds", bench_rounds, .serve = false }, { "flight", bench_flight, .serve = false },
	{ "idle", bench_idle, .serve = false },	    { "leak", bench_leak, .serve = false },
	{ "http", bench_http, .serve = true },	    { "stream", bench_stream, .serve = true },
	{ "crowd", bench_crowd, .serve = true },
};

static void on_signal(int sig)
{
	(void)sig;
	bench_stop = 1;
}

static void help(void)
{
	puts("cloche-bench [--quick] [--serve | --only PART | --scale] [--seconds N] [--json FILE]\n"
	     "  --quick      few samples, about 30 seconds: does the benchmark work?\n"
	     "  --serve      only the daemon's parts\n"
	     "  --scale      1 to 32 callers of the engine, of the daemon, of bwrap and of crun\n"
	     "  --cell MS    with --scale: how long each is measured; 1500\n"
	     "  --callers N  with --scale: so many only; then --only ROW is one row of its table\n"
	     "  --only PART  rounds (each contender in turn), flight (8 at once), idle (2,000 alive), leak;\n"
	     "               of the daemon: http (calls; 8 clients), stream (long output), crowd (5,000 idle clients)\n"
	     "  --seconds N  for the rounds, of either; 60\n"
	     "  --json FILE  the numbers; bench.json beside the program");
}

static int parse(int argc, char **argv, struct bench *b, struct err *e)
{
	static const struct option table[] = {
		{ "quick", no_argument, NULL, 'q' },	     { "only", required_argument, NULL, 'o' },
		{ "serve", no_argument, NULL, 'd' },	     { "scale", no_argument, NULL, 'S' },
		{ "cell", required_argument, NULL, 'c' },    { "callers", required_argument, NULL, 'C' },
		{ "seconds", required_argument, NULL, 's' }, { "json", required_argument, NULL, 'j' },
		{ "help", no_argument, NULL, 'h' },	     { 0 },
	};
	uint64_t seconds;
	int c;

	while ((c = getopt_long(argc, argv, "", table, NULL)) != -1) {
		switch (c) {
		case 'q':
			b->quick = true;
			break;
		case 'o':
			b->only = optarg;
			break;
		case 'd':
			b->serve = true;
			break;
		case 'S':
			b->scale = true;
			break;
		case 'c':
			if (parse_u64(optarg, &seconds, e) < 0)
				return -EINVAL;
			b->scale_ms = seconds < 60000 ? (unsigned)seconds : 60000;
			break;
		case 'C':
			if (parse_u64(optarg, &seconds, e) < 0)
				return -EINVAL;
			b->callers = seconds <= 32 ? (unsigned)seconds : 32;
			break;
		case 's':
			if (parse_u64(optarg, &seconds, e) < 0)
				return -EINVAL;
			b->seconds = seconds < 3600 ? (unsigned)seconds : 3600;
			break;
		case 'j':
			b->json = optarg;
			break;
		case 'h':
			help();
			exit(0);
		default:
			return err_set(e, ERR_INVALID, -EINVAL, "see --help");
		}
	}
	if (optind < argc)
		return err_set(e, ERR_INVALID, -EINVAL, "'%s': see --help", argv[optind]);
	for (size_t i = 0; b->only && i < ARRAY_LEN(parts) && !b->scale; i++)
		if (!strcmp(b->only, parts[i].name))
			return 0;
	return b->only && !b->scale ? err_set(e, ERR_INVALID, -EINVAL, "no part '%s'", b->only) : 0;
}

static int run(struct bench *b, struct err *e)
{
	char json[512];
	int r = program_path("cloche", b->cloche, sizeof(b->cloche), e);

	if (r < 0)
		return r;
	if (b->scale)
		r = bench_scale(b, e);
	if (r < 0)
		return r;
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(parts) && !bench_stop && !b->scale; i++) {
		if (b->only ? strcmp(b->only, parts[i].name) : b->serve && !parts[i].serve)
			continue;
		fprintf(stderr, "%s ...\n", parts[i].name);
		r = parts[i].run(b, e);
		if (r < 0)
			return err_wrap(e, r, "%s", parts[i].name);
	}
	report_print(&b->report);
	snprintf(json, sizeof(json), "%.*s/bench.json", (int)(strrchr(b->cloche, '/') - b->cloche), b->cloche);
	return report_write(&b->report, b->json ? b->json : json, b->quick, e);
}

int main(int argc, char **argv)
{
	static struct bench b = { .seconds = 60, .scale_ms = 1500 };
	struct sigaction sa = { .sa_handler = on_signal };
	struct err e = { 0 };
	struct rlimit files;
	int r;

	setvbuf(stdout, NULL, _IOLBF, 0);
	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	r = parse(argc, argv, &b, &e);
	if (r == 0)
		r = run(&b, &e);
	report_done(&b.report);
	if (r < 0)
		fprintf(stderr, "cloche-bench: %s%s%s\n", e.msg, e.remedy[0] ? "; " : "", e.remedy);
	return r < 0 ? 1 : 0;
}
