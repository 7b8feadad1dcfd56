/*
 * What the agent and a warm process (src/warm) say to each other, over a SOCK_SEQPACKET pair: the warm process has its
 * end as descriptor 3. It says it is ready once, by an answer to tag 0. Each request is answered by the process it
 * started, itself, when it has become what was asked for and waits at the pipe: so the kernel tells the agent who that is, and
 * nobody has to be believed. "g" in the pipe, and it runs; the pipe's end, and it goes. Who could not be started is
 * answered for by the warm process.
 */
#pragma once
#include <assert.h>
#include <stdint.h>

#define WARM_MAGIC 0x4d524157U
#define WARM_TTY 1U /* stdio is a terminal: make it the controlling one */
#define WARM_GROUP 2U /* the last descriptor: write "0" there, first of all */
/*
 * Nothing to run, no descriptors, no answer: the sandbox stands ready and nobody waits, so what makes a request faster
 * can be done now (a child forked ahead touches the memory it will need).
 */
#define WARM_PREPARE 4U
/*
 * Likewise, but somebody is likely to come in a moment: it only wakes up for the first time since it was restored (a
 * hundred page faults), and draws its random numbers.
 */
#define WARM_WAKE 8U
/*
 * Of a request: the same agent has sent WAKE since the last one, so who has drawn numbers then need not do it again. A copy of
 * it elsewhere has another agent, which does not say so.
 */
#define WARM_SEEDED 16U

/* Descriptors: the words (len bytes: cwd, arguments, variables, each with its NUL), the pipe, stdin, stdout, stderr. */
struct warm_request {
	uint32_t magic, tag, flags, len;
	uint64_t nofile, cpu_seconds; /* as in EXEC */
	uint32_t argc, envc;
};

struct warm_answer {
	uint32_t magic, tag;
	uint32_t stage; /* enum frame_stage it failed at */
	int32_t error; /* errno, 0: it waits */
};
/*
 * The warm process for Python: `python3 -c <this> <warm-up code>`, started with FRAME_EXEC_WARM_HOST. Any image that
 * has python3 (3.8 or later) can run it.
 */
const char *warm_runner_python(void);

static_assert(sizeof(struct warm_request) == 40 && sizeof(struct warm_answer) == 16, "no padding");
