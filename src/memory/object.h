/* Open file descriptions: found once, however many descriptors there are of each. */
#pragma once
#include "memory/dump.h"

struct object {
	struct mem_object rec;
	dev_t dev;
	ino_t ino;
	struct proc *p; /* a process that has it, as descriptor ->num; NULL: it is only mapped */
	uint32_t num;
	int fd; /* a copy of our own */
	bool done; /* its content was recorded */
	bool flying; /* it was sent over a socket of ->p, and not received yet; ->fd is our own */
	bool own; /* it exists only together with processes, so each opens it itself */
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

/* Each of these fills in ->rec, or refuses the object. */
int object_file(struct opened *x, struct err *e);
int object_pipe(struct opened *x, struct err *e);
int object_device(struct opened *x, struct err *e);
int object_anon(struct opened *x, struct err *e); /* eventfd and similar objects */
int object_socket(struct opened *x, struct err *e);
/* Locks that fdinfo lists for a descriptor; @first: nothing is known of its object yet. */
int lock_read(struct opened *x, uint32_t object, bool first, struct err *e);
/* Adds an object; NULL: there are too many. Moves the others in memory. */
struct object *object_new(struct dump *d, struct err *e);
/* How many processes have it open. */
uint32_t object_users(const struct dump *d, uint32_t object);
/* Finds the names of all files that are watched by inotify. */
int inotify_link(struct dump *d, struct err *e);
/* Links pairs, queues and watches. Call it when all objects are known. */
int object_link(struct dump *d, struct err *e);

/* Finds the other end of a TCP connection, if that is inside, and the bytes that are in transit. */
int object_link_tcp(struct dump *d, uint32_t at, struct err *e);
/* Reads what waits in sockets, and the descriptors that were sent over them. Call it before sockets are linked. */
int object_socket_queues(struct dump *d, struct err *e);
/* The object of a descriptor of our own, which was sent to @p and not received yet. */
int object_in_flight(struct dump *d, struct proc *p, int fd, uint32_t *ret, struct err *e);
/* Writes the records of sockets. Call it when all are linked. */
int object_socket_finish(struct dump *d, struct err *e);

const struct external *external_find(const struct dump *d, dev_t dev, ino_t ino);
const struct external *external_tty(const struct dump *d, uint32_t pts);
/* Copies the content of a pipe without removing it. @fd: an end that can read. */
int pipe_peek(struct dump *d, int fd, struct mem_span *ret, struct err *e);
/* Whether no process has the other end. */
bool pipe_orphan(int fd, bool reads);
/* struct mem_pty of terminal @index, whose master is @fd. */
int pty_read(struct dump *d, int fd, uint32_t index, struct mem_pty *ret, struct err *e);
