/* One of our own programs, started with the descriptors that it is given and no others. */
#pragma once
#include <sys/types.h>

#define SPAWN_FIRST 3 /* the first place; what is below stays as it is here */

struct spawn {
	int program; /* the file, open; stays the caller's */
	/* what goes to SPAWN_FIRST, and so on; -1: nothing. The numbers in it are overwritten, nothing in it is closed */
	int *fd;
	unsigned fds;
	char **argv;
	int error; /* not the caller's */
};

/* The process, or -errno. It dies with the calling thread; its signal mask and its environment are empty. */
pid_t spawn_program(struct spawn *s);
/* The same, with the other end of a SOCK_SEQPACKET socket at the first place: *ret_sock. */
pid_t spawn_talking(struct spawn *s, int *ret_sock);
/* Kills and reaps it: our child, so no other process has its number. 0: does nothing. */
void spawn_end(pid_t pid);
