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
	uint32_t file, object; /* indexes of records in the image */
	struct mem_span name; /* its text in the image */
	bool shared;
	bool in_source; /* a fork does not inherit it unchanged, so it is read from the process itself */
	bool guards; /* some of its pages may kill a process that touches them */
	bool cow; /* some of it is shared with another process until one of them writes */
	bool copied; /* ->run was copied before the other mappings */
	struct mem_range run;
};

struct thread {
	pid_t host;
	uint32_t tid; /* its id as seen inside */
	bool seized, stopped;
	uint64_t regs[DUMP_REGS_MAX]; /* registers that it gets back when it is released */
	size_t regs_len;
	uint64_t mask;
	struct mem_thread rec;
};

struct proc {
	pid_t host;
	uint32_t pid; /* its id as seen inside */
	uint32_t parent; /* index of struct proc */
	uint32_t index; /* index of its record; MEM_NONE: none */
	uint32_t files, folders; /* index of the process whose descriptors, or folders, it shares; 0: none's */
	bool zombie, stopped;
	bool gone; /* it ended and was reaped while the processes were being stopped; also set for zombies */
	int dir, pidfd, mem; /* /proc/PID, itself, its memory; -1 = none */
	char name[16]; /* its name; all characters are printable */
	struct thread *thread;
	size_t n_threads;
	struct vma *vma;
	size_t n_vmas;
	uint64_t vdso, vdso_tail, vdso_end; /* ->vdso_tail to ->vdso_end is unused, and free for injected code */
	uint64_t caught, ignored; /* signals that it handles, and that it ignores */
	uint64_t locked; /* KiB of memory that it has locked */
	bool locks_all; /* new mappings are locked (MCL_FUTURE) */
	bool keyed; /* it has memory protection keys */
	uint64_t dirty; /* an estimate of the bytes to be copied */
	uint64_t asked; /* when it was asked for its timers, by the monotonic clock */
	pid_t copy; /* host id of a stopped fork whose memory is read instead; 0: none */
	char *status;
	struct mem_proc rec;
};

struct idmap {
	struct {
		uint32_t in, out, n;
	} line[DUMP_MAPS_MAX];
	size_t n;
};

/* Pages that are being collected in a buffer, which is passed to ->writer when it is full. */
struct pages {
	int fd;
	struct writer *writer;
	uint8_t *data; /* the buffer, or NULL */
	size_t have; /* bytes in it */
	uint64_t before; /* bytes that were passed to ->writer before */
};

struct image {
	struct buf section[MEM_SECTIONS];
};

/* A pipe end or terminal that the agent holds for the host. */
struct external {
	uint32_t id, role; /* enum mem_role */
	int fd; /* our copy of the agent's descriptor */
	dev_t dev;
	ino_t ino;
	uint32_t pts; /* with MEM_TTY: the index of the terminal */
};

struct dump {
	int agent_pidfd, table_fd, freezer, out, control;
	struct socket_guard guard;
	pid_t agent;
	int root; /* the root folder of the sandbox, which is the agent's */
	uint64_t root_mount;
	dev_t root_dev;
	ino_t root_ino;
	int writable; /* the writable layer, or -errno */
	dev_t writable_dev;
	/*
	 * inodes of folders of the writable layer that are mounted separately and belong to an image: /tmp and the work
	 * folder of a read-only root, /dev/shm. 0: there is no such mount
	 */
	ino_t writable_ino[3];
	dev_t shm_dev; /* device number of memfds and of shared anonymous memory */
	uint64_t filters; /* number of the agent's system call filters */
	bool sysv; /* we are in the sandbox's IPC namespace */
	struct sysv_reader sysv_reader;
	bool thawed; /* the sandbox's freezer is off again, since all threads are held */
	uint64_t vdso_len, vdso_used; /* length of the vdso, and of what belongs to it; the same in all processes */
	struct idmap uids, gids;
	struct {
		char id[32];
		dev_t dev;
		ino_t ino;
		int fd;
	} ancestor[MEM_PAGE_FILES];
	uint32_t ancestors;
	bool flat; /* this image must not refer to pages of ->ancestor, since there are too many of them */
	struct base *base; /* the ancestors' pages, to compare with; NULL: all pages are written */
	bool refuses_network; /* a connection to the outside is a reason to refuse */
	uint64_t room; /* bytes left of the sandbox's memory limit */
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
	} * kept; /* files that the image contains itself, by their inode */
	size_t n_kept;
	struct image image;
	struct pages pages;
	uint64_t realtime, monotonic, boottime;
};

/* ---- image.c: records and the two files ---- */
void image_init(struct image *m);
uint32_t image_count(const struct image *m, enum mem_section s);
void *image_at(struct image *m, enum mem_section s, uint32_t i);
/* Appends a record. -E2BIG if there are too many. @ret_index may be NULL. */
int image_add(struct image *m, enum mem_section s, const void *record, uint32_t *ret_index, struct err *e);
int image_bytes(struct image *m, const void *data, size_t len, struct mem_span *ret, struct err *e);
int image_file(struct image *m, const char *path, const struct stat *st, uint32_t flags, uint32_t *ret, struct err *e);
int image_new_file(struct image *m, const char *path, const struct stat *st, uint32_t flags, uint32_t node,
		   uint32_t *ret, struct err *e);
int image_write(struct dump *d, struct err *e);

/* ---- proc.c: what /proc says ---- */
/* Reads a whole file of unknown size below @dir, at most @max bytes, and terminates it with a NUL. */
int proc_text(int dir, const char *name, size_t max, char **ret, size_t *ret_len);
bool proc_field(const char *status, const char *key, const char **ret);
uint64_t proc_number(const char *status, const char *key, int base, uint64_t none);
/* The last number of the line @key, such as NSpid: the id as seen inside. */
uint32_t proc_inside(const char *status, const char *key);
int proc_map_read(int dir, const char *name, struct idmap *ret, struct err *e);
bool proc_map(const struct idmap *m, uint64_t out, uint32_t *ret);
/* Whether it handles a signal that may come at any time. Valid after proc_read(). */
bool proc_handles_signals(const struct proc *p);
/* Sets "process 17 (python3): " and the reason why it cannot be carried. Returns -EOPNOTSUPP. */
int proc_refuse(const struct proc *p, struct err *e, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* The same for what is usually over in a moment: the caller tries again some times. Returns -EAGAIN. */
int proc_refuse_now(const struct proc *p, struct err *e, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Reads a stopped process: ids, limits, capabilities, names, files. */
int proc_read(struct dump *d, struct proc *p, struct err *e);

/* ---- stop.c: holding them ---- */
/* Seizes and interrupts all threads, until a pass finds no new one. */
int stop_all(struct dump *d, struct err *e);
/* Waits until all seized threads have stopped. */
int stop_wait(struct dump *d, struct err *e);
/* Blocks until @tid stops. *ret_status is that of waitpid(). 0 or -errno; -ESRCH: it is gone. */
int stop_next(pid_t tid, int *ret_status);
void stop_release(struct dump *d);
int stop_memory(struct proc *p, struct err *e); /* opens ->mem */

/* ---- file.c: what a descriptor or a mapping is called inside ---- */
struct found {
	char path[MEM_PATH_MAX];
	struct stat st;
	uint64_t mount; /* id of the mount, if ->named */
	bool named; /* ->path, from the sandbox's root, leads to this file */
	bool carried; /* with ->named: a copy will have the file, since it is in a layer or in the image */
	bool own; /* it is in the sandbox's own writable layer */
	unsigned long fs; /* magic number of its filesystem */
};
int file_root(struct dump *d, struct err *e); /* fills in ->root and what is known of it */
/* Finds the file behind @link, a magic link below @dir: "fd/3", "exe", "map_files/…". */
int file_find(const struct dump *d, int dir, const char *link, struct found *ret, struct err *e);
/* Fills in what @rec says of the inode number of an open file. */
void file_number(const struct dump *d, const struct found *f, struct mem_file *rec);
/*
 * Whether the user of @p may open the file, as a restore will do (@need: 4 to read, 2 to write). Access control lists
 * are not considered.
 */
bool file_may_open(const struct dump *d, const struct proc *p, const struct stat *st, unsigned need);
/* Whether the user of @p can reach @path, and has the rights @need (2: to create files) in the folder that it is in. */
bool file_may_reach(const struct dump *d, const struct proc *p, const char *path, unsigned need);

int mount_of(int dir, const char *name, int flags, uint64_t *ret);
/* ---- node.c: files that the image carries itself ---- */
int node_room(struct dump *d, struct err *e); /* reads what is below /dev/shm */
/*
 * Adds a removed file of the sandbox itself to the image; *ret is the index of its MEM_S_FILE. @link: as for
 * file_find().
 */
int node_removed(struct dump *d, const struct proc *p, int dir, const char *link, const struct found *f, uint32_t *ret,
		 struct err *e);
/* Records mode, owner and times of a memfd; *ret is the index of its MEM_S_NODE. */
int node_memfd(struct dump *d, const struct proc *p, const struct stat *st, uint32_t *ret, struct err *e);

/* ---- vma.c, pages.c ---- */
int vma_read(struct dump *d, struct proc *p, struct err *e);
/* Adds the process's mappings and their pages to ->image and ->pages. */
int vma_dump(struct dump *d, struct proc *p, struct err *e);
/* Finds the guard pages, which kill a process that touches them. Called by vma_read(). */
int vma_guards(struct dump *d, struct proc *p, struct err *e);
/* The same for those mappings alone that its fork does not have; vma_dump() adds the others later. */
int vma_dump_early(struct dump *d, struct proc *p, struct err *e);
/* Passes the buffer to the writer. */
void pages_flush(struct pages *g);
/* After pages_flush(): waits until all pages are in the file. @ret_sum: see writer_end(). */
int pages_finish(struct pages *g, uint8_t ret_sum[SHA256_SIZE], struct err *e);
uint64_t pages_end(const struct pages *g); /* the offset in the file that the next page will have */
/* Returns room for @n pages, at most PAGES_CHUNK. pages_added() then tells how many of them were filled. */
int pages_room(struct pages *g, size_t n, uint8_t **ret, struct err *e);
void pages_added(struct pages *g, size_t n);
#define PAGES_CHUNK 256U
bool pages_zero(const uint8_t *page);
/* Adds @run to @range, whose runs must be the last ones in the image; a run that continues the last one extends it. */
int pages_run(struct dump *d, struct mem_range *range, const struct mem_run *run, struct err *e);
/* Copies the content of @fd, @size bytes; *ret are runs by offset in the file. */
int pages_file(struct dump *d, int fd, uint64_t size, struct mem_range *ret, struct err *e);

/* ---- base.c: the image that the sandbox was restored from ---- */
/* Maps the base image, @meta, and the ancestors' pages. */
int base_open(struct dump *d, int meta, struct err *e);
/* The record of the process in the base image, or of its nearest ancestor that has one. NULL: none. */
const struct mem_proc *base_proc(const struct dump *d, const struct proc *p);
/* Whether @of had the same bytes as @page at the address @at; *ret is then where they are in the pages files. */
bool base_has(struct dump *d, const struct mem_proc *of, uint64_t at, const uint8_t *page, struct mem_run *ret);

/* ---- thread.c, inject.c ---- */
int thread_read(struct dump *d, struct proc *p, struct thread *t, struct err *e);
int thread_pending(struct dump *d, pid_t tid, bool shared, struct mem_span *ret, struct err *e);
/* After thread_pending(): a timer that has fired since it was queried is recorded as its signal, and not as a timer. */
void timer_settle(struct dump *d, struct proc *p);
/* Reads what only the process itself can find out, by system calls that it is made to make. */
int inject_proc(struct dump *d, struct proc *p, struct err *e);
/* Makes ->copy, a stopped fork of the process, which ends when it is released. -EAGAIN: the process may not fork. */
int inject_fork(struct proc *p, struct err *e);
void inject_forget(struct proc *p); /* releases ->copy, which ends */

/* ---- fd.c, object.c: descriptors ---- */
int external_read(struct dump *d, struct err *e);
int fd_read_all(struct dump *d, struct err *e);
/*
 * Closes our copies of the processes' descriptors. Call it before the processes run again, so that their own close() is
 * the last.
 */
void object_close(struct dump *d);
/* Adds an object for the slave of terminal @pts, which no process has open, although a process has its master. */
int object_terminal(struct dump *d, uint32_t pts, struct err *e);
/* Finds or adds the object of a shared mapping, of which no process has a descriptor. */
int object_shmem(struct dump *d, struct proc *p, const char *link, const struct found *f, uint32_t *ret, struct err *e);
/* Finds or adds the object with the content of a privately mapped file that cannot be opened by name again. */
int object_backing(struct dump *d, struct proc *p, const char *link, const struct found *f, uint32_t *ret,
		   struct err *e);

/* ---- share.c: tables that processes share ---- */
int share_read(struct dump *d, struct err *e); /* fills ->files and ->folders */
bool share_has(const struct dump *d, const struct proc *p); /* whether @p shares its descriptors with another process */
/* refuses a process that shares a table, and could not in a copy */
int share_check(const struct dump *d, const struct proc *p, struct err *e);

/* ---- inotify.c ---- */
int inotify_early(struct dump *d, struct err *e); /* refuses unread events; call it before anything is opened */
void inotify_forget(struct dump *d); /* removes the events that we have caused; call it last */

/* ---- queue.c ---- */
int queue_refuse(const struct dump *d, struct err *e); /* refuses a sandbox with POSIX message queues */

/* ---- sysv.c ---- */
int sysv_enter(struct dump *d, struct err *e); /* enters the IPC namespace; call it before privileges are dropped */
/* starts the reader; before privileges are dropped, after socket_guard_start() */
int sysv_start(struct dump *d, struct err *e);
int sysv_read(struct dump *d, struct err *e); /* adds objects for all that the IPC namespace holds */
/* Finds the object of a mapping of System V shared memory. */
int sysv_vma(struct dump *d, struct proc *p, const char *link, const struct found *f, uint32_t *ret, struct err *e);
/* refuses segments of which a part was unmapped */
int sysv_attached(const struct dump *d, const struct proc *p, struct err *e);
int sysv_content(struct dump *d, uint32_t object, struct err *e);

/* ---- sysv_undo.c ---- */
int sysv_undo_check(const struct dump *d, struct err *e);
/* call it when objects have their records; makes the processes call semop() */
int sysv_undo(struct dump *d, struct err *e);

/* ---- tree.c ---- */
int tree_terminals(struct dump *d, struct err *e); /* adds objects for controlling terminals that no process has open */
bool tree_lives(const struct dump *d, uint32_t pid); /* whether @pid is a live child of the agent */
int tree_read(struct dump *d, struct err *e); /* finds placeholders, execs, parents and terminals */
int tree_records(struct dump *d, struct err *e); /* adds the records of processes; call it when all else is known */
