/*
 * Many lifecycles, then a look at everything one could leave behind. What belongs to this process must be exactly where
 * it was. What is counted for the whole machine moves with what else runs there, so of that less than one in a hundred
 * lifecycles may be left; in a quick run, which has few of them and runs beside other tests, less than three in four.
 */
#include "bench.h"
#include "base/base.h"
#include "base/clock.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#define PART "leak"
#define POOL 64
#define FLIGHT 8
#define SETTLE_MS 30000

enum thing { CHILDREN, FDS, MOUNTS, RSS, GROUPS, NETS, MOUNTS_ALL, THINGS };

static const struct {
	const char *before, *what, *unit;
	unsigned slack; /* so much more is none; not used with ->whole */
	bool whole; /* counted for the whole machine */
} things[THINGS] = {
	[CHILDREN] = { "processes before", "processes more than before", "", 0, false },
	[FDS] = { "descriptors before", "descriptors more than before", "", 0, false },
	[MOUNTS] = { "mounts in our namespace before", "mounts in our namespace more than before", "", 0, false },
	[RSS] = { "our own memory before", "our own memory more than before", "KiB", 512, false },
	[GROUPS] = { "memory cgroups before", "memory cgroups more than before", "", 0, true },
	[NETS] = { "network namespaces before", "network namespaces more than before", "", 0, true },
	[MOUNTS_ALL] = { "mounts of the machine before", "mounts of the machine more than before", "", 0, true },
};

static uint64_t entries(const char *path)
{
	DIR *d = opendir(path);
	uint64_t n = 0;

	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
}

static uint64_t lines(const char *path)
{
	FILE *f = fopen(path, "re");
	uint64_t n = 0;
	int c;

	while (f && (c = getc(f)) != EOF)
		n += c == '\n';
	if (f)
		fclose(f);
	return n;
}

/* The @column-th number in the line that starts with @key. */
static uint64_t column(const char *path, const char *key, unsigned column)
{
	FILE *f = fopen(path, "re");
	uint64_t v = 0;
	char line[512];

	while (f && fgets(line, sizeof(line), f)) {
		char *at = line + strlen(key);

		if (strncmp(line, key, strlen(key)) || (*at != ' ' && *at != '\t'))
			continue;
		for (unsigned i = 0; i < column; i++)
			v = strtoull(at, &at, 10);
	}
	if (f)
		fclose(f);
	return v;
}

/* Sandboxes' first processes are our children, whichever thread made them. */
static uint64_t children(void)
{
	DIR *d = opendir("/proc/self/task");
	struct dirent *x;
	uint64_t n = 0;

	while (d && (x = readdir(d))) {
		char path[300], text[65536];

		snprintf(path, sizeof(path), "/proc/self/task/%s/children", x->d_name);
		if (x->d_name[0] == '.' || fd_get(AT_FDCWD, path, text, sizeof(text)) < 0)
			continue;
		for (const char *at = text; *at; at++)
			n += *at == ' ';
	}
	if (d)
		closedir(d);
	return n;
}

static void look(uint64_t v[THINGS])
{
	v[CHILDREN] = children();
	v[FDS] = entries("/proc/self/fd");
	v[MOUNTS] = lines("/proc/self/mountinfo");
	v[RSS] = column("/proc/self/status", "VmRSS:", 1);
	v[GROUPS] = column("/proc/cgroups", "memory", 2);
	v[NETS] = column("/proc/slabinfo", "net_namespace", 1);
	v[MOUNTS_ALL] = column("/proc/slabinfo", "mnt_cache", 1);
}

static double slack(unsigned thing, unsigned count)
{
	return things[thing].whole ? (count < 6400 ? count * 3 / 4 : count / 100) : things[thing].slack;
}

static bool settled(const uint64_t before[THINGS], const uint64_t after[THINGS], unsigned count)
{
	for (unsigned i = 0; i < THINGS; i++)
		if ((double)after[i] > (double)before[i] + slack(i, count))
			return false;
	return true;
}

/* The kernel takes network namespaces and cgroups apart at its own pace. */
static void look_settled(struct engine *g, const uint64_t *before, uint64_t *v, unsigned count)
{
	uint64_t end = clock_mono_ns() + SETTLE_MS * 1000000ULL;

	do {
		usleep(300000);
		warden_pool_wait(engine_warden(g), POOL);
		warden_pool_trim(engine_warden(g)); /* kept on purpose, how many depends on the moment */
		look(v);
	} while (before && !settled(before, v, count) && clock_mono_ns() < end && !bench_stop);
}

static void judge(struct bench *b, const uint64_t *before, const uint64_t *after, unsigned count)
{
	for (unsigned i = 0; i < THINGS; i++) {
		report_fact(&b->report, PART, things[i].before, (double)before[i], things[i].unit);
		report_target(&b->report, &(struct target){
						  .part = PART,
						  .what = things[i].what,
						  .unit = things[i].unit,
						  .measured = (double)after[i] - (double)before[i],
						  .limit = slack(i, count),
						  .bound = BOUND_MOST,
					  });
	}
}

int bench_leak(struct bench *b, struct err *e)
{
	const unsigned count = b->quick ? 200 : 10000;
	uint64_t before[THINGS], after[THINGS], t;
	AUTO(engine_free) struct engine *g = NULL;
	struct warden_counts c;
	int r;

	r = engine_new(&(struct engine_opts){ .pool = POOL }, &g, e);
	if (r == 0)
		r = box_flight(g, 200, FLIGHT, e); /* what is made once is made now */
	if (r < 0)
		return r;
	look_settled(g, NULL, before, count);
	t = clock_mono_ns();
	r = box_flight(g, count, FLIGHT, e);
	if (r < 0)
		return r;
	report_fact(&b->report, PART, "lifecycles", count, "");
	report_fact(&b->report, PART, "time", (double)(clock_mono_ns() - t) / 1e9, "seconds");
	look_settled(g, before, after, count);
	warden_counts(engine_warden(g), &c);
	report_fact(&b->report, PART, "cleanups that failed", (double)c.cleanup_failures, "");
	judge(b, before, after, count);
	return 0;
}
