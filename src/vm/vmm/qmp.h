/*
 * QEMU's monitor: commands while it runs, one JSON object per line in each direction. QEMU is as hostile as its
 * guest, so answers are only parsed as far as needed, bounded in length and time; only a version and an error's text
 * are kept.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define QMP_LINE (64U * 1024U)
#define QMP_VERSION 64
#define QMP_WHY 160

struct qmp {
	int fd; /* not owned; a stream socket, does not block */
	char *line; /* QMP_LINE */
	size_t len;
	uint32_t id; /* id of the last command */
	bool stopped; /* the machine is stopped, according to events; without a request for that, it is lost */
	int migration; /* its last state: 0 unknown, 1 complete, -1 failed */
	int job; /* state of the present block job: 0 unknown, 1 complete, -1 failed */
	char job_why[QMP_WHY]; /* why it failed */
};

int qmp_init(struct qmp *q, int fd); /* 0 or -ENOMEM */
void qmp_done(struct qmp *q);
/* Reads the greeting, writes the version in it to @ret, and ends the negotiation. */
int qmp_greet(struct qmp *q, char ret[QMP_VERSION], struct err *e);
/*
 * One command with its arguments ("" or members without braces: our own words and numbers), and its answer waited for. @fd
 * goes with it; -1: none. ERR_LOST when QEMU does not answer.
 */
int qmp_do(struct qmp *q, int fd, const char *command, struct err *e, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));
/* Until an incoming migration is complete. */
int qmp_wait_migration(struct qmp *q, struct err *e);
/* Reads events that have arrived, without waiting. -EPIPE: QEMU has closed the monitor. */
int qmp_drain(struct qmp *q);

/* The value of member @key of the object at @text: its length and place, or 0. Nothing is changed or unescaped. */
size_t qmp_member(const char *text, size_t len, const char *key, const char **ret);
