/* Open file descriptions: found once, however many descriptors there are of each. */
#pragma once
#include "memory/dump.h"

struct object {
	struct mem_object rec;
	dev_t dev;
	ino_t ino;
	struct proc *p; /* a process that has it, as ->num; NULL: only mapped */
	uint32_t num;
	int fd; /* a copy of our own */
	bool done; /* content was taken */
	bool flying; /* sent over a socket and not received yet: ->fd is our own, ->p has that socket */
	bool own; /* only exists when processes do: each opens it for itself */
	struct socket *socket; /* object_socket.h; NULL: none */
};

/* What is known of a descriptor when its object is made. */
struct opened {
	struct dump *d;
	struct proc *p;
	uint32_t num;
	char link[32]; /* "fd/3" */
	const char *info; /* fdinfo */
	struct found f;
	struct object *o;
	int flying; /* 1: ->num is a descriptor of our own */
};

/* Each fills ->rec or refuses. */
int object_file(struct opened *x, struct err *e);
int object_pipe(struct opened *x, struct err *e);
int object_device(struct opened *x, struct err *e);
int object_anon(struct opened *x, struct err *e); /* eventfd and its kin */
int object_socket(struct opened *x, struct err *e);
/* Locks that fdinfo lists for a descriptor; @first: nothing is known of its object yet. */
int lock_read(struct opened *x, uint32_t object, bool first, struct err *e);
/* One more; NULL when there are too many. Moves the others. */
struct object *object_new(struct dump *d, struct err *e);
/* How many processes have it open. */
uint32_t object_users(const struct dump *d, uint32_t object);
/* Names of what is watched, by all of them. */
int inotify_link(struct dump *d, struct err *e);
/* Once all objects are known: pairs, queues, watches. */
int object_link(struct dump *d, struct err *e);

/* Whether the other end of a TCP connection is inside, and what is under way. */
int object_link_tcp(struct dump *d, uint32_t at, struct err *e);
/* Before they are linked: what waits in sockets, and the descriptors that are on their way there. */
int object_socket_queues(struct dump *d, struct err *e);
/* The object of a descriptor of our own, which was sent to @p and not received yet. */
int object_in_flight(struct dump *d, struct proc *p, int fd, uint32_t *ret, struct err *e);
/* The records of sockets, when all are linked. */
int object_socket_finish(struct dump *d, struct err *e);

const struct external *external_find(const struct dump *d, dev_t dev, ino_t ino);
const struct external *external_tty(const struct dump *d, uint32_t pts);
/* The content of a pipe, which stays there. @fd can read it. */
int pipe_peek(struct dump *d, int fd, struct mem_span *ret, struct err *e);
/* Whether no process has the other end. */
bool pipe_orphan(int fd, bool reads);
/* struct mem_pty of terminal @index, whose master is @fd. */
int pty_read(struct dump *d, int fd, uint32_t index, struct mem_pty *ret, struct err *e);
