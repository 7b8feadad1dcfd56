/* Between the files of service/context/. */
#pragma once
#include "base/buf.h"
#include "base/id.h"
#include "base/mask.h"
#include "service/context/context.h"
#include "service/context/kernel_frame.h"
#include "service/exec/exec.h"
#include "service/sandbox/struct.h"

#define START_MS 60000U /* a kernel is ready within this time: interpreters are slow on a machine that is busy */
#define SYNC_MS 15000U /* one that was found again has answered by then */
#define GRACE_MS 3000U /* between an interrupt and the end of a kernel that ignores it */
#define ASK_MS 10000U /* for questions, which run code of the context as well */
#define HEED_MS 1000U /* after it, a kernel is sent SIGINT that has not said that it heeds it */
#define AGAIN_MS 150U /* between two SIGINTs for what does not end */
#define AGAIN_MAX 10U
#define NODE_MS 50U /* from the beginning of a cell of Node to the first SIGINT */
#define FRAMES_MAX                                                                                                     \
	(512U * 1024U *                                                                                                \
	 1024U) /* of a tenant, with answers that are not complete and calls that are not over: 10 of the largest frames */
#define FRAME_FREE (1024U * 1024U) /* frames of that many bytes never are too much */
#define REST_MS 5000U /* behind an interrupt, if the agent does not say that it was delivered */

enum context_state {
	CONTEXT_NONE, /* it has no kernel: the next call starts one */
	CONTEXT_STARTING, /* its kernel was started, and has not said that it is ready */
	CONTEXT_SETTLING, /* it is ready, and was sent its settings */
	CONTEXT_READY,
	CONTEXT_SYNCING, /* it was found again, and where its next frame begins is not known */
};

struct context {
	struct context *next; /* of its sandbox, oldest first */
	struct sandbox *sandbox; /* referenced */
	char id[ID_SIZE];
	bool standard; /* the default one of its language: ->id is that one's name */
	bool listed, proven; /* it was ready once */
	bool preloads; /* its kernel imports large modules before it is ready */
	bool copied; /* its kernel is of a warm image, and has to draw other random numbers */
	struct context_spec *spec;
	unsigned refs;
	uint64_t made_ns;

	enum context_state state;
	struct exec *exec; /* its kernel, referenced; or NULL */
	uint64_t kernel; /* another number for each */
	struct exec_sink sink;
	struct exec_watch watch;
	struct buf in; /* what came of a frame */
	size_t held; /* its bytes, as they are counted for the tenant */
	struct buf said; /* the end of what the kernel said on its stderr */
	uint64_t start_id; /* of the request with its settings */
	char nonce[ID_SIZE]; /* the id of the request by which its stream is found again, "" = not sent yet */
	uint64_t count; /* executions of this kernel */

	struct context_task *current, *queue;
	unsigned queued;
	uint64_t next_id;
	uv_timer_t *timer;
	uint64_t start_by, kill_by, rest_until, signal_by; /* monotonic; 0 = not */
	uint64_t stopped_ns; /* its clock stands since then: the sandbox is paused */
};

enum task_kind { TASK_OPEN, TASK_EXECUTE, TASK_ASK };

struct context_task {
	struct context *context; /* referenced */
	struct context_task *next;
	enum task_kind kind;
	uint64_t id;
	struct buf frame;
	size_t counted; /* its bytes, as they are counted for the tenant until the call is over */
	uint64_t timeout_ms, deadline_ns, began_ns;
	struct context_reader reader;
	context_ready_fn *ready; /* of TASK_OPEN */
	void *ready_arg;
	struct who who;
	char *code; /* for the audit log: its beginning */
	size_t code_len, code_kept;
	bool held, left, over;
	bool timed_out, interrupted;
	bool judging; /* it has ended with an error: the warden is asked whether that was the memory limit */
	uint64_t oom_base; /* kills of the sandbox before it began */
	bool heeds; /* SIGINT reaches it: before, it would be lost */
	bool signal; /* SIGINT is to be sent then, or again */
	unsigned signals; /* sent */
	uint64_t heeds_ns;
	struct mask *mask; /* of the sandbox's secrets, when it began */
	struct mask_stream stream[2];
	uint64_t output, result_bytes;
	unsigned results;
	struct context_end end;
	struct err fail;
	struct buf reply;
	char error[64]; /* the name of the code's error, "" = none */
	struct turn_wait wait, begun;
};

/* context.c */
struct context *context_new(struct sandbox *b, const char *id, bool standard, struct context_spec *spec, struct err *e);
void context_unlist(struct context *c);
struct context *context_by_id(const struct sandbox *b, const char *id);
void context_note(const struct context *c, const struct who *who, const char *kind); /* audit and event */

/* request.c */
void context_spec_write(const struct context_spec *s, struct json *j); /* inside of an open object */

/* kernel.c */
int kernel_start(struct context *c, struct err *e);
/* Lets go of it without a word; with @kill it is ended, and all that it has started. */
void kernel_leave(struct context *c, bool kill);
void context_found(struct sandbox *b, struct exec *x); /* an exec that may be the kernel of a context */
void kernel_gone(struct context *c); /* its exec is over, or not there any more */
int kernel_send(struct context *c, const struct buf *frame);
/* It sent what is no event, or does not end: it is ended, and the state is lost. @cause as in context_end. */
void kernel_end(struct context *c, const char *cause, const char *detail);
int kernel_frame_make(struct buf *frame, const struct buf *body); /* with its length */

/* task.c */
void tasks_go(struct context *c); /* begins the next, if it can be */
void tasks_fail(struct context *c, int r, const struct err *e); /* all of them */
void task_end(struct context_task *t); /* as ->end says; ->cause is set */
void task_interrupt(struct context_task *t);
void task_heeds(struct context_task *t); /* SIGINT reaches it from here on */
struct context_task *task_open(struct context *c, const struct who *who, context_ready_fn *fn, void *arg, bool first);
void context_arm(struct context *c); /* for what can happen next */
void context_clock(struct context *c, bool stop);

/* event.c */
void context_event(struct context *c, const struct kernel_frame *f);
void task_flush(struct context_task *t); /* output that is held back */
