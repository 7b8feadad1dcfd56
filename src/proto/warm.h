/*
 * What the agent and a warm process (src/warm) say to each other, over a SOCK_SEQPACKET pair: the warm process has its
 * end as descriptor 3. It says it is ready once, by an answer to tag 0. Each request is answered by the process it
 * started, itself, when it is set up as requested and waits at the pipe: so the agent gets the sender's pid from the
 * kernel (SCM_CREDENTIALS) and does not have to trust a message. After "g" in the pipe it runs; at the pipe's end it
 * exits. When a process cannot be started, the warm process answers for it.
 */
#pragma once
#include <assert.h>
#include <stdint.h>

#define WARM_MAGIC 0x4d524157U
#define WARM_TTY 1U /* stdio is a terminal: make it the controlling one */
#define WARM_GROUP 2U /* the last descriptor: write "0" there, first of all */
/*
 * Nothing to run, no descriptors, no answer: the sandbox is ready and no request waits, so work that makes a request
 * faster can be done now (a child forked ahead touches the memory it will need).
 */
#define WARM_PREPARE 4U
/*
 * Likewise, but a request is likely to follow soon: the process only wakes up for the first time since it was restored (a
 * hundred page faults), and draws its random numbers.
 */
#define WARM_WAKE 8U
/*
 * Of a request: the same agent has sent WAKE since the last one, so the process need not draw random numbers again. In a
 * copy of the sandbox another agent sends the request, without this flag.
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
