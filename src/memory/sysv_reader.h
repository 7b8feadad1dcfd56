/*
 * A process that reads System V objects. cloche-dump has no right to them; this one has entered the sandbox's user
 * namespace, and there has the one capability that reading them takes. It is started only where there are any.
 */
#pragma once
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

struct sysv_reader {
	int fd; /* -1: none */
	pid_t pid;
};

/* The reader's answer about one object: struct mem_sysv and its data follow. */
struct sysv_told {
	uint64_t len; /* of those, a multiple of 8 */
	uint64_t size, attached; /* shared memory: bytes; how often it is attached */
	uint64_t at, end; /* where the reader has attached it itself, since no process has; else 0 */
};

/* We are in the sandbox's IPC namespace, and the next child is among its processes (socket_guard_start). */
int sysv_reader_start(struct sysv_reader *g, int agent_pidfd, struct err *e);
/* A file of struct sysv_told, one after the other. The reader keeps what it has attached until it is stopped. */
int sysv_reader_ask(struct sysv_reader *g, int *ret_file, struct err *e);
void sysv_reader_stop(struct sysv_reader *g);
