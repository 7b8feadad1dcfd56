/* `cloche run`: its state, shared by the parts below. */
#pragma once
#include <termios.h>

#include "cli/options.h"
#include "cli/stream.h"
#include "engine/verdict.h"
#include "run/engine.h"

#define RUN_EXEC 1U /* the only exec */

struct run {
	struct options o;
	struct engine *engine;
	struct engine_sandbox sandbox;
	bool made; /* the sandbox exists */
	bool tty;
	int signals; /* signalfd */
	int filter; /* the user's profile, compiled, or -1 */
	struct network network;
	uint64_t waits_ns; /* since when its sandbox is being made, 0: not */
	char waits_line[240]; /* on the terminal, that says so; "": none */
	int ended_by; /* a signal that came meanwhile */
	struct in_stream in;
	struct out_stream out, err;
	struct termios saved; /* of our terminal, while raw */
	bool raw;
	/* How it went. */
	bool exited, failed, lost, timed_out, cpu_out, killed, cut; /* cut: killed, waiting for the end */
	struct frame_exited exit;
	struct frame_failed failure;
	unsigned term_signals;
	uint64_t start_ns, start_real_ns, end_ns, cut_ns, cpu_next_ns;
	uint64_t cpu_base_usec;
	struct warden_stat stat;
	struct verdict verdict;
};

/* Serves everything until the command has ended. 0, or -errno with the engine's failure. */
int relay_run(struct run *r, struct err *e);
/* Reads, compiles and keeps the profile in a descriptor. */
int filter_load(const char *path, int *ret_fd, struct err *e);
/* For engine_opts: a line on the terminal that says what is awaited; signals end it. @arg: the run. */
int wait_tell(void *arg, const char *doing, struct err *e);
/* The whole result as one JSON object. */
int result_print(const struct run *r, struct err *e);
void result_print_error(const struct err *e);
