/*
 * One image while it is made: the processes of a sandbox as they are found, and the records made of them. All files of
 * this folder share it; main.c describes the theory of operation.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"
#include "memory/socket_guard.h"
#include "memory/sysv_reader.h"
#include "memory/writer.h"
#include "proto/memory.h"
#include "proto/table.h"

#define DUMP_REGS_MAX 64 /* words of NT_PRSTATUS, of any architecture */
#define DUMP_MAPS_MAX 32 /* lines of a uid_map that are understood; the kernel allows 340, the warden makes few */
#define DUMP_TEXT_MAX 16384 /* /proc/PID/status and the like */
#define PAGE 4096ULL

struct vma {
	uint64_t start, end, offset;
	uint32_t prot, kind, flags, advice;
	uint32_t file, object; /* of the image */
	struct mem_span name; /* likewise */
	bool shared;
	bool in_source; /* a fork does not have it as it is */
	bool guards; /* some of its pages may kill a process that touches them */
	bool cow; /* some of it is shared with another process until one of them writes */
	bool copied; /* ahead of the others: */
	struct mem_range run;
};

struct thread {
	pid_t host;
	uint32_t tid; /* inside */
	bool seized, stopped;
	uint64_t regs[DUMP_REGS_MAX]; /* as they have to be put back */
	size_t regs_len;
	uint64_t mask;
	struct mem_thread rec;
};

struct proc {
	pid_t host;
	uint32_t pid; /* inside */
	uint32_t parent; /* index of struct proc */
	uint32_t index; /* of its record; MEM_NONE: it has none */
	uint32_t files, folders; /* index of the process whose descriptors, or folders, it shares; 0: none's */
	bool zombie, stopped;
	bool gone; /* and waited for: it was only there while they were being stopped. A zombie, too */
	int dir, pidfd, mem; /* /proc/PID, itself, its memory; -1 = none */
	char name[16]; /* printable */
	struct thread *thread;
	size_t n_threads;
	struct vma *vma;
	size_t n_vmas;
	uint64_t vdso, vdso_tail, vdso_end; /* the tail is behind what belongs to it */
	uint64_t caught, ignored; /* signals */
	uint64_t locked; /* KiB of memory that it has locked */
	bool locks_all; /* what it maps is locked at once */
	bool keyed; /* it has memory protection keys */
	uint64_t dirty; /* about so many bytes have to be copied */
	uint64_t asked; /* when it was asked for its timers, by the monotonic clock */
	pid_t copy; /* host id of a stopped fork that is read instead, 0 = none */
	char *status;
	struct mem_proc rec;
};

struct idmap {
	struct {
		uint32_t in, out, n;
	} line[DUMP_MAPS_MAX];
	size_t n;
};

/* Pages on their way: collected in a buffer, which is handed to ->writer when it is full. */
struct pages {
	int fd;
	struct writer *writer;
	uint8_t *data; /* the buffer, or NULL */
	size_t have; /* bytes in it */
	uint64_t before; /* bytes that were handed on */
};

struct image {
	struct buf section[MEM_SECTIONS];
};

/* An end that the agent holds for the host. */
struct external {
	uint32_t id, role; /* enum mem_role */
	int fd; /* a copy of the agent's */
	dev_t dev;
	ino_t ino;
	uint32_t pts; /* MEM_TTY: index */
};

struct dump {
	int agent_pidfd, table_fd, freezer, out, control;
	struct socket_guard guard;
	pid_t agent;
	int root; /* the sandbox's, as the agent has it */
	uint64_t root_mount;
	dev_t root_dev;
	ino_t root_ino;
	int writable; /* the writable layer, or -errno */
	dev_t writable_dev;
	/* what of it is mounted by itself, and part of an image: /tmp and the work folder of a read-only root, /dev/shm; 0: not there */
	ino_t writable_ino[3];
	dev_t shm_dev; /* of memfds, and memory that is shared and has no file */
	uint64_t filters; /* the agent's */
	bool sysv; /* we are in the sandbox's IPC namespace */
	struct sysv_reader sysv_reader;
	bool thawed; /* the sandbox's freezer is off again, since all threads are held */
	uint64_t vdso_len, vdso_used; /* the same for all processes */
	struct idmap uids, gids;
	struct {
		char id[32];
		dev_t dev;
		ino_t ino;
		int fd;
	} ancestor[MEM_PAGE_FILES];
	uint32_t ancestors;
	bool flat; /* they may be known, but not pointed to */
	struct base *base; /* what they have, or NULL: everything is written */
	bool refuses_network; /* a connection to the outside is a reason to refuse */
	uint64_t room; /* bytes that the sandbox may have besides what it has */
	bool sums; /* compute sums of pages, and report them with `done` */
	bool whole; /* an exec that has ended is a conflict */

	struct proc *proc; /* [0] is the agent, which is held but not part of the image */
	size_t n_procs, n_threads;
	uint32_t placeholders;
	struct table table;
	struct external *external;
	size_t n_external;
	struct object *object;
	size_t n_objects;
	uint32_t *by_file; /* objects that are open files, by device, inode and the order of kcmp */
	size_t n_by_file;
	struct kept {
		dev_t dev;
		ino_t ino;
		uint32_t node;
	} * kept; /* files that are nodes of the image */
	size_t n_kept;
	struct image image;
	struct pages pages;
	uint64_t realtime, monotonic, boottime;
};

/* ---- image.c: records and the two files ---- */
void image_init(struct image *m);
uint32_t image_count(const struct image *m, enum mem_section s);
void *image_at(struct image *m, enum mem_section s, uint32_t i);
/* -E2BIG with a text when there are too many. @ret_index may be NULL. */
int image_add(struct image *m, enum mem_section s, const void *record, uint32_t *ret_index, struct err *e);
int image_bytes(struct image *m, const void *data, size_t len, struct mem_span *ret, struct err *e);
int image_file(struct image *m, const char *path, const struct stat *st, uint32_t flags, uint32_t *ret, struct err *e);
int image_new_file(struct image *m, const char *path, const struct stat *st, uint32_t flags, uint32_t node,
		   uint32_t *ret, struct err *e);
int image_write(struct dump *d, struct err *e);

/* ---- proc.c: what /proc says ---- */
/* The whole of a file of unknown size below @dir, NUL-terminated; at most @max bytes. */
int proc_text(int dir, const char *name, size_t max, char **ret, size_t *ret_len);
bool proc_field(const char *status, const char *key, const char **ret);
uint64_t proc_number(const char *status, const char *key, int base, uint64_t none);
/* The last number of a line as NSpid. */
uint32_t proc_inside(const char *status, const char *key);
int proc_map_read(int dir, const char *name, struct idmap *ret, struct err *e);
bool proc_map(const struct idmap *m, uint64_t out, uint32_t *ret);
/* "process 17 (python3): " and why it cannot be carried. */
/* Whether it handles a signal that may come at any time. Read by proc_read(). */
bool proc_handles_signals(const struct proc *p);
int proc_refuse(const struct proc *p, struct err *e, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Of a process that is stopped: ids, limits, capabilities, names, files. */
int proc_read(struct dump *d, struct proc *p, struct err *e);

/* ---- stop.c: holding them ---- */
/* SEIZE and INTERRUPT, until a pass finds no new thread. */
int stop_all(struct dump *d, struct err *e);
/* Waits until all of them have stopped. */
int stop_wait(struct dump *d, struct err *e);
/* Blocks until @tid stops. The status, or -errno; -ESRCH when it is gone. */
int stop_next(pid_t tid, int *ret_status);
void stop_release(struct dump *d);
int stop_memory(struct proc *p, struct err *e); /* opens ->mem */

/* ---- file.c: what a descriptor or a mapping is called inside ---- */
struct found {
	char path[MEM_PATH_MAX];
	struct stat st;
	uint64_t mount; /* when it is named */
	bool named; /* ->path leads there, from the sandbox's root */
	bool carried; /* and what is there comes with the layer or the image */
	bool own; /* in the sandbox's own writable layer */
	unsigned long fs; /* magic of its filesystem */
};
/* @link is a magic link below @dir: "fd/3", "exe", "map_files/…". */
int file_root(struct dump *d, struct err *e); /* what ->root is */
int file_find(const struct dump *d, int dir, const char *link, struct found *ret, struct err *e);
/* Whether its user could open it (@need: 4 to read, 2 to write), as restoring will. Lists of rights are not looked at. */
/* Notes in @rec what is known of the number of an open file. */
void file_number(const struct dump *d, const struct found *f, struct mem_file *rec);
bool file_may_open(const struct dump *d, const struct proc *p, const struct stat *st, unsigned need);
/* Whether its user could come to @path, and has @need (2: making names in it) in the folder it is in. */
bool file_may_reach(const struct dump *d, const struct proc *p, const char *path, unsigned need);

int mount_of(int dir, const char *name, int flags, uint64_t *ret);
/* ---- node.c: files that the image carries itself ---- */
int node_room(struct dump *d, struct err *e); /* what is below /dev/shm */
/* A file of the sandbox's own that was removed, as a record of MEM_S_FILE. @link as above. */
int node_removed(struct dump *d, const struct proc *p, int dir, const char *link, const struct found *f, uint32_t *ret,
		 struct err *e);
/* Mode, owner and times of a memfd: an index of MEM_S_NODE. */
int node_memfd(struct dump *d, const struct proc *p, const struct stat *st, uint32_t *ret, struct err *e);

/* ---- vma.c, pages.c ---- */
int vma_read(struct dump *d, struct proc *p, struct err *e);
/* Records of the process's mappings and their pages, into ->image and ->pages. */
int vma_dump(struct dump *d, struct proc *p, struct err *e);
/* Finds the guard pages, which kill a process that touches them. Called by vma_read(). */
int vma_guards(struct dump *d, struct proc *p, struct err *e);
/* Only what its fork does not have; vma_dump() comes later. */
int vma_dump_early(struct dump *d, struct proc *p, struct err *e);
/* Hands on what is in the buffer. */
void pages_flush(struct pages *g);
/* When all is handed on: waits until it is in the file. @ret_sum as of writer_end(). */
int pages_finish(struct pages *g, uint8_t ret_sum[SHA256_SIZE], struct err *e);
uint64_t pages_end(const struct pages *g); /* where the next page will be */
/* Room for @n pages, at most PAGES_CHUNK; those that were filled are counted by pages_added(). */
int pages_room(struct pages *g, size_t n, uint8_t **ret, struct err *e);
void pages_added(struct pages *g, size_t n);
#define PAGES_CHUNK 256U
bool pages_zero(const uint8_t *page);
/* Adds to the runs of one record, which must be the last ones, or lengthens the last. */
int pages_run(struct dump *d, struct mem_range *range, const struct mem_run *run, struct err *e);
/* Content of @size bytes of @fd as runs by offset. */
int pages_file(struct dump *d, int fd, uint64_t size, struct mem_range *ret, struct err *e);

/* ---- base.c: the image that the sandbox was restored from ---- */
/* Maps @meta and the ancestors' pages. */
int base_open(struct dump *d, int meta, struct err *e);
/* Of one process there: itself, or the nearest of those it descends from. NULL: none. */
const struct mem_proc *base_proc(const struct dump *d, const struct proc *p);
/* Whether that one had the very bytes of @page at @at: then *ret is where they are. */
bool base_has(struct dump *d, const struct mem_proc *of, uint64_t at, const uint8_t *page, struct mem_run *ret);

/* ---- thread.c, inject.c ---- */
int thread_read(struct dump *d, struct proc *p, struct thread *t, struct err *e);
int thread_pending(struct dump *d, pid_t tid, bool shared, struct mem_span *ret, struct err *e);
/* Behind that: what has fired since it was asked for is a signal, and a timer no more. */
void timer_settle(struct dump *d, struct proc *p);
/* What only the process itself can be asked: the calls are made by it. */
int inject_proc(struct dump *d, struct proc *p, struct err *e);
/* Makes ->copy, a fork that is stopped and ends when it is released. -EAGAIN when the process may not have one. */
int inject_fork(struct proc *p, struct err *e);
void inject_forget(struct proc *p); /* lets it go */

/* ---- fd.c, object.c: descriptors ---- */
int external_read(struct dump *d, struct err *e);
int fd_read_all(struct dump *d, struct err *e);
/* Our copies of what processes have open: before they run again, so that what they close is closed. */
void object_close(struct dump *d);
/* An object for the slave of terminal @pts, which no process has open, while a process inside has its master. */
int object_terminal(struct dump *d, uint32_t pts, struct err *e);
/* The object for a shared mapping that nothing else refers to by descriptor. */
int object_shmem(struct dump *d, struct proc *p, const char *link, const struct found *f, uint32_t *ret, struct err *e);
/* The object that has the content of a file which is mapped privately and cannot be opened by name again. */
int object_backing(struct dump *d, struct proc *p, const char *link, const struct found *f, uint32_t *ret,
		   struct err *e);

/* ---- share.c: tables that processes share ---- */
int share_read(struct dump *d, struct err *e); /* fills ->files and ->folders */
bool share_has(const struct dump *d, const struct proc *p); /* whether it shares its descriptors */
int share_check(const struct dump *d, const struct proc *p, struct err *e); /* whether one that shares another's can */

/* ---- inotify.c ---- */
int inotify_early(struct dump *d, struct err *e); /* refuses news that were not read; before we open anything */
void inotify_forget(struct dump *d); /* the news of what we opened; the last thing */

/* ---- queue.c ---- */
int queue_refuse(const struct dump *d, struct err *e); /* POSIX message queues */

/* ---- sysv.c ---- */
int sysv_enter(struct dump *d, struct err *e); /* before privileges are dropped */
int sysv_start(struct dump *d, struct err *e); /* likewise; behind socket_guard_start() */
int sysv_read(struct dump *d, struct err *e); /* objects of what the IPC namespace holds */
/* The object of a mapping that is System V shared memory. */
int sysv_vma(struct dump *d, struct proc *p, const char *link, const struct found *f, uint32_t *ret, struct err *e);
int sysv_attached(const struct dump *d, const struct proc *p, struct err *e); /* refuses parts */
int sysv_content(struct dump *d, uint32_t object, struct err *e);

/* ---- sysv_undo.c ---- */
int sysv_undo_check(const struct dump *d, struct err *e);
int sysv_undo(struct dump *d, struct err *e); /* when objects have their records; asks processes */

/* ---- tree.c ---- */
int tree_terminals(struct dump *d, struct err *e); /* objects for controlling terminals that no process has open */
bool tree_lives(const struct dump *d, uint32_t pid); /* a child of the agent's */
int tree_read(struct dump *d, struct err *e); /* placeholders, execs, parents, terminals */
int tree_records(struct dump *d, struct err *e); /* when all the rest is known: the records of processes */
