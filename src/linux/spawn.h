/* One of our own programs, started with the descriptors that it is given and no others. */
#pragma once
#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"

#define SPAWN_FIRST 3 /* the first place; what is below stays as it is here */

struct spawn {
	int program; /* the file, open; stays the caller's */
	/* what goes to SPAWN_FIRST, and so on; -1: nothing. The numbers in it are overwritten, nothing in it is closed */
	int *fd;
	unsigned fds;
	char **argv;
	/* Control groups that it joins before it runs; and one that it is started in, of version 2, or 0 */
	const int *join;
	unsigned njoin;
	int group;
	int null; /* what is at the places below SPAWN_FIRST; 0: they stay as they are here */
	int *pidfd; /* where to put one; NULL: none */
	int error; /* not the caller's */
};

/* The process, or -errno. It dies with the calling thread; its signal mask and its environment are empty. */
pid_t spawn_program(struct spawn *s);
/* The same, with the other end of a SOCK_SEQPACKET socket at the first place: *ret_sock. */
pid_t spawn_talking(struct spawn *s, int *ret_sock);
/*
 * The same for a program that answers once and ends: what it sends is *@ret, of @size bytes, within @ms. It is ended in any
 * case.
 */
int spawn_ask(struct spawn *s, void *ret, size_t size, int ms, struct err *e);
/* Whether what it has answered is a result, and, if that is negative, an error: makes the texts of that printable. */
bool spawn_answered(int result, struct err *e);
/* Kills and reaps it: our child, so no other process has its number. 0: does nothing. */
void spawn_end(pid_t pid);
/* A copy of the program @path in memory, called @name, that may be run but not read: a descriptor, or -errno. */
int spawn_unreadable(const char *name, const char *path);
