/* The members of an exec: for the rooms of service/, which share them. Others use the functions of exec.h. */
#pragma once
#include "base/id.h"
#include "base/mask.h"
#include "engine/verdict.h"
#include "proto/frame.h"
#include "service/exec/digest.h"
#include "service/exec/exec.h"
#include "service/exec/spool.h"
#include "service/sandbox/struct.h"

struct stream {
	struct exec *exec;
	enum exec_stream which;
	int fd; /* -1 = closed */
	uv_poll_t *poll;
	bool eof, polling;
	bool drained; /* after the exit: what was there then has been read */
	bool late; /* it exited while something was being written: to be looked at then */
	uint64_t left; /* after the exit: bytes to be read still */
	unsigned full; /* reads that filled the buffer */
	struct digest digest; /* of the output as it is delivered */
	struct mask_stream *mask; /* what is left out of it; NULL: nothing, the sandbox has no secrets */
	bool muted; /* it could not be masked any more, so no output is delivered */
	struct spool spool;
};

struct exec {
	struct exec *next, **prev; /* of the sandbox, newest first */
	struct exec *over_next, **over_prev; /* of the sandbox's that have ended, the first to end first */
	struct exec *kept_next, **kept_prev; /* of those that have ended and whose output is in memory, oldest first */
	size_t kept;
	struct exec *history_next, **history_prev; /* of the tenant's, oldest first: service/exec/kept.c */
	size_t history, pending, stdin_held; /* bytes that count for the tenant */
	struct sandbox *sandbox;
	char id[ID_SIZE];
	uint32_t number;
	struct exec_request *request;
	struct who who;
	enum exec_state state; /* written by exec_set_state() alone */
	bool started; /* it was so at some time */
	bool waits; /* it counts as waiting in its sandbox */
	struct stream stream[2];
	int in; /* host's end of stdin, or a copy of the terminal's master, which is stream[0].fd; -1 = closed */
	uv_poll_t *in_poll;
	struct buf in_queue;
	bool in_closing;
	/* What was asked for before it was started: a signal (0 = none), another size of its terminal. */
	int early_signal;
	enum exec_scope early_scope;
	unsigned interrupts; /* exec_interrupt() that the agent has not answered */
	bool resized;
	uv_timer_t *timer;
	uint64_t deadline_ns, left_ns; /* monotonic; left while paused */
	uint64_t group_no; /* 0 = none */
	uint64_t started_ns, ended_ns, started_mono, ended_mono;
	bool timed_out, cpu_out, killed, lost, failed; /* why it ended; may be several */
	bool revived; /* of a memory image, and not named by its agent so far */
	char was[ID_SIZE]; /* the id it had in the sandbox it was first in, "" = this is it */
	bool sandbox_replaced; /* the sandbox it ran in was replaced: its agent is gone */
	bool warm; /* a warm process that is ready */
	bool adopted; /* it was FOUND, or is */
	bool joined; /* then: a client came back to it, which had read so much of the direct output */
	uint64_t seen[2];
	bool seen_in_sync; /* named by the agent, since it was last asked what it has */
	bool stored; /* has a row */
	bool row_pending; /* gets one soon */
	struct exec *unwatched_next;
	unsigned quiet; /* how often it was looked at for output, and there was none */
	/* Ended, but a process still has its stdout: read and dropped, so that the process is not killed by SIGPIPE. */
	bool draining;
	struct frame_exited exit;
	struct err fail; /* why it did not start */
	struct verdict verdict;
	uint64_t oom_base, kernel_base, pids_base, cpu_base;
	uint64_t net_base; /* what its sandbox had moved over the network when it began */
	uint64_t memory_peak;
	struct exec_sink *sink;
	struct exec_watch *watches;
	bool held; /* the sink is full for now */
	unsigned refs;
	/* The row is stored, then EXEC is sent; its end is stored, then the watchers are called. */
	struct turn_wait wait;
};
