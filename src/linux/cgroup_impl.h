/* The interface between cgroup.c and the two versions. Only they and tests include it. */
#pragma once
#include "linux/cgroup.h"

#define CGROUP_BASE "cloche"
#define CGROUP_KEY "_key" /* v1: the group that keeps the scheduler's quota code switched on */
#define CGROUP_SELF "cloche-self" /* v2: where members of our own group go, so that it may hand out controllers */
#define CGROUP_PIDS_MOST 4194304U /* the kernel's own maximum; it refuses more */
#define CGROUP_CPU_MILLI_MOST 1000000U /* a thousand cores: no host has more, and the kernel takes it */

struct cgroup_mount;

/* *@c, or when that is parked @tmp, opened; @tmp is to be given to cgroup_done() in any case. */
int cgroup_unpark(const struct cgroup_host *h, const struct cgroup **c, struct cgroup *tmp);
static inline void cgroup_donep(struct cgroup *c)
{
	cgroup_done(c);
}

/* One version's half of cgroup.h. @c is of the same version as @h. */
struct cgroup_ops {
	int (*make)(const struct cgroup_host *h, const char *name, unsigned mask, struct cgroup *c);
	int (*limit_memory)(const struct cgroup_host *h, const struct cgroup *c, uint64_t bytes, struct err *e);
	int (*limit_cpu)(const struct cgroup *c, uint32_t milli, struct err *e);
	int (*limit_io)(const struct cgroup *c, const struct cgroup_limits *l, struct err *e);
	int (*stat)(const struct cgroup *c, struct cgroup_stat *s);
	int (*freeze)(const struct cgroup *c); /* asks again; 1 when frozen by now, 0 when not yet */
	int (*thaw)(const struct cgroup *c);
	int (*kill)(const struct cgroup *c); /* one round: 1 when no process is left, 0 when one may be */
	int (*recycle)(struct cgroup *c);
};
extern const struct cgroup_ops cgroup_v1_ops, cgroup_v2_ops;

/* Input of the discovery: the text of /proc/self/cgroup, and the name of the base folder. */
struct cgroup_seen {
	const char *own;
	const char *base;
};

/* Takes a v1 mount into @h when it has controllers that @h still lacks and that we may write. Failing is no error. */
void cgroup_v1_take(struct cgroup_host *h, const struct cgroup_seen *seen, const struct cgroup_mount *m);
/* After the last mount: what all of the hierarchies together allow. */
void cgroup_v1_finish(struct cgroup_host *h);
/* Makes @h the v2 host at mount @m; ->have stays 0 when we may not write there. */
void cgroup_v2_take(struct cgroup_host *h, const struct cgroup_seen *seen, const struct cgroup_mount *m);

/* Opens the folder @path/@base, making it when missing, if @probe in it can be opened for writing. fd or -errno. */
int cgroup_base_open(const char *path, const char *base, const char *probe);

/*
 * Sets the CPU weight of all sandboxes together to that of one process of ordinary priority on each CPU, unless an
 * administrator has changed it. A new group has the weight of one process on all CPUs together, so that sandboxes would
 * wait for all other processes, even their own warden. @usual: the weight of a new group. Failing is no error.
 */
void cgroup_weigh(int base, const char *file, unsigned usual, unsigned most);

/* Like cgroup_host_open, with another base folder, so that tests stay out of the way of real sandboxes. */
int cgroup_host_open_as(struct cgroup_host *ret, const char *base, struct err *e);
/* Removes the (empty) base folders of @h themselves. */
int cgroup_host_erase(const struct cgroup_host *h, const char *base);

void cgroup_host_init(struct cgroup_host *h);
/* Is @fds[i] the same descriptor as an earlier one (a hierarchy with several controllers)? */
bool cgroup_fd_again(const int *fds, unsigned i);
/* Appends a number and ends the text; no stdio, since this is on the hot path. Returns the new end. */
char *cgroup_text_u64(char *p, uint64_t v);
/* One round of SIGKILL over cgroup.procs of @dir: 1 when it is empty, 0 when it was not, or -errno. */
int cgroup_kill_members(int dir);
/*
 * Every folder in @dir, which may be an O_PATH descriptor. @fn may remove what it is given; not 0 from it ends the
 * walk.
 */
/* Adds the forks that were refused in exec groups. */
int cgroup_children_refused(const struct cgroup_host *h, const struct cgroup *c, uint64_t *ret);
int cgroup_each_folder(int dir, int (*fn)(int dir, const char *name, void *arg), void *arg);
/* Removes @name and what is below; *arg: how deep @dir is already, an unsigned. */
int cgroup_remove_tree(int dir, const char *name, void *arg);
/* Waits a little longer each time, so that what is nearly done costs microseconds and what isn't costs no CPU. */
void cgroup_wait_a_little(unsigned round);
/* The first of two results that is an error. */
static inline int cgroup_first(int a, int b)
{
	return a < 0 ? a : b;
}
