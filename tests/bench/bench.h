/* What the parts of the benchmark share. main.c tells how they work together. */
#pragma once
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "run/engine.h"

/* ---- stats.c: samples of one kind, in nanoseconds ---- */
struct samples {
	const char *name, *note; /* the note says why there are none */
	uint64_t *ns;
	size_t n, cap;
	bool sorted;
};
void samples_init(struct samples *s, const char *name);
void samples_done(struct samples *s);
void samples_add(struct samples *s, uint64_t ns);
/* @permille 0 is the smallest, 500 the median. 0 when there are none. */
uint64_t samples_at(struct samples *s, unsigned permille);

/* ---- report.c: rows, targets, and the two forms of both ---- */
#define REPORT_ROWS 48
#define REPORT_TARGETS 48
#define REPORT_FACTS 96

enum bound { BOUND_MOST, BOUND_LEAST };

struct target {
	const char *part, *what, *unit; /* unit "" is a ratio */
	double measured, limit;
	enum bound bound;
	const char *why_not; /* not measured, and why; else NULL */
};

struct fact { /* a number that is told and not judged */
	const char *part, *what, *unit;
	double value;
};

struct report {
	struct samples rows[REPORT_ROWS];
	size_t nrows;
	struct target targets[REPORT_TARGETS];
	size_t ntargets;
	struct fact facts[REPORT_FACTS];
	size_t nfacts;
};
void report_done(struct report *r);
/* Never NULL; too many is a bug here. */
struct samples *report_row(struct report *r, const char *name);
void report_target(struct report *r, const struct target *t);
void report_fact(struct report *r, const char *part, const char *what, double value, const char *unit);
bool target_met(const struct target *t);
void report_print(struct report *r);
int report_write(struct report *r, const char *path, bool quick, struct err *e);
/* a / b, with 0 where there is nothing to divide. */
double ratio(double a, double b);

/* ---- spawn.c: a small process that starts others and times them ---- */
struct spawner {
	int pid, sock;
};
enum spawner_view {
	VIEW_HOST,
	VIEW_PEERS, /* a mount namespace where the other runtimes find cgroups they understand */
};
struct spawn_opts {
	unsigned count, workers; /* 0 is 1 */
	unsigned ms; /* instead of ->count: as many as begin within this time */
	const char *errors; /* a file for what it says on stderr; NULL: nowhere */
};
struct spawn_time {
	uint64_t ns, cpu_ns; /* all together; the second is what it and all it waited for used */
	uint64_t p50_ns, p99_ns; /* of one; with ->ms */
	unsigned count;
};
int spawner_start(struct spawner *s, enum spawner_view view, struct err *e);
void spawner_stop(struct spawner *s);
/*
 * Runs @argv (NULL-ended; '@' in an argument becomes the worker's letter) @o->count times, @o->workers at once.
 * One that does not exit with 0 is an error. @ret may be NULL.
 */
int spawner_run(struct spawner *s, const char *const *argv, const struct spawn_opts *o, struct spawn_time *ret,
		struct err *e);

/* ---- peers.c: the other runtimes ---- */
#define PEER_ARGS 40

enum peer_id { PEER_NONE, PEER_BWRAP, PEER_BWRAP_FULL, PEER_CRUN, PEER_PODMAN, PEER_DOCKER, PEER_RUNSC, PEER_COUNT };

struct peer {
	const char *name;
	enum spawner_view view;
	unsigned every; /* measured in each round that this divides */
	const char *argv[PEER_ARGS];
	char why_not[160]; /* empty: usable */
};

struct peers {
	struct spawner host, other;
	char dir[128];
	struct peer list[PEER_COUNT];
	const char *exec[PEER_ARGS]; /* crun exec into a container that runs; none when [0] is NULL */
	char id[32], exec_id[40], text[12][160];
};
int peers_open(struct peers *p, struct err *e);
void peers_close(struct peers *p);
struct spawner *peer_spawner(struct peers *p, const struct peer *peer);

/* ---- box.c: our side ---- */
struct box {
	struct engine_sandbox s;
	bool made;
};
extern const struct sandbox_spec box_spec; /* what `cloche run` asks for by default */
int box_create(struct engine *g, struct box *b, struct err *e);
int box_up(struct box *b, struct err *e);
int box_exec_send(struct box *b, struct err *e);
/* /bin/true, until its end. */
int box_exec(struct box *b, struct err *e);
int box_destroy(struct box *b, struct err *e);
/* Takes in one frame: 1 when the command ended well, 0 when not yet. */
int box_frame(struct box *b, const struct frame *f, struct err *e);
/* create, up, exec, destroy. */
int box_lifecycle(struct engine *g, uint64_t *ret_ns, struct err *e);
/* @count lifecycles with @flight of them under way at any time. */
int box_flight(struct engine *g, unsigned count, unsigned flight, struct err *e);

/* ---- the parts ---- */
struct bench {
	bool quick;
	unsigned seconds; /* for the interleaved loop */
	const char *only;
	bool serve; /* only the parts that are the daemon's */
	bool scale; /* only bench_scale */
	unsigned scale_ms; /* of one cell of it */
	unsigned callers; /* so many only; 0: 1 to 32 */
	const char *json;
	char cloche[512]; /* the program beside this one */
	struct report report;
};
extern volatile sig_atomic_t bench_stop;

int bench_rounds(struct bench *b, struct err *e); /* lifecycle.c: every contender in turn */
int bench_flight(struct bench *b, struct err *e); /* flight.c: eight at once */
int bench_idle(struct bench *b, struct err *e); /* idle.c: thousands that do nothing */
int bench_leak(struct bench *b, struct err *e); /* leak.c: what is left behind */
int bench_http(struct bench *b, struct err *e); /* http_lifecycle.c: the daemon's calls, one by one and 8 at once */
int bench_stream(struct bench *b, struct err *e); /* http_stream.c: long output and large files through the daemon */
int bench_scale(struct bench *b, struct err *e); /* scale.c: 1 to 32 callers */
int bench_crowd(struct bench *b, struct err *e); /* http_idle.c: a daemon with thousands of clients that do nothing */
