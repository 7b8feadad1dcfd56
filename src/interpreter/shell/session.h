/*
 * One shell that keeps the state of a context: bash, else sh. It runs as an interactive shell without a terminal, because
 * that is the one kind that comes back to its next line after an interrupt, a syntax error, or an error of a builtin.
 */
#pragma once
#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"
#include "interpreter/shell/events.h"
#include "interpreter/shell/request.h"

struct session {
	struct events *events;
	const char *shell; /* "/bin/bash", "/bin/sh", or "R" */
	pid_t pid; /* 0: not running */
	/* the shell's input, its output, "STATUS FOLDER" after each cell, the cell's text */
	int input, out[2], status, code;
	char tail[2][4]; /* bytes of an incomplete character */
	size_t tail_len[2];
	unsigned number; /* number of the cell */
	char *folder; /* its working folder, for a new shell */
	char answer[8192]; /* content of the status descriptor, until its NUL */
	size_t answer_len;
};

enum session_end {
	SESSION_DONE,
	SESSION_EXITED, /* the shell has ended, and was replaced by a new one without its variables */
	SESSION_INTERRUPTED,
	SESSION_HUNG_UP, /* the requests have ended meanwhile */
	SESSION_FAILED, /* the error has been sent */
};

int session_init(struct session *s, struct events *ev, struct err *e);
void session_done(struct session *s);
int session_start(struct session *s, struct err *e);
/*
 * For any interpreter: ends the one that runs, and calls @child in a new process, with its input, stdout, stderr, the cell's text and
 * what it reports to. @child first calls session_child().
 */
int session_spawn(struct session *s, void (*child)(const struct session *s, const int fds[5]), struct err *e);
void session_child(const struct session *s);
/*
 * oom_score_adj of the interpreter, "" = unchanged, and in @before what it was, unless NULL. When the memory of the sandbox is full, a
 * context that runs code is ended rather than one that waits; of this one the largest command, as a rule.
 */
void session_score(const struct session *s, const char *value, char before[16]);

/*
 * Runs @q->code, with @q->env for it alone. @signals is a signalfd of SIGINT, @requests is watched for its end.
 * *ret_status is the exit status of the code, or of the shell if that has ended.
 */
int session_run(struct session *s, const struct request *q, int signals, int requests, enum session_end *ret,
		int *ret_status, struct err *e);
/* Forwards what is in the pipes. */
int session_drain(struct session *s);
/* Runs `SHELL -n` on @code: 0 if it is complete, else -EINVAL with the shell's message in @e. */
int session_check(const struct session *s, const char *code, size_t len, struct err *e);
