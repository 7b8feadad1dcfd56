/* Exec groups of a sandbox: child groups, so that all that one exec started can be ended. */
#pragma once
#include <stdint.h>

#include "base/err.h"
#include "linux/cgroup.h"

#define GROUPS_MAX 1024U /* at once; twice as many as an agent has execs */
#define GROUPS_FREE 8U

struct groups {
	uint32_t last; /* the largest number given so far */
	uint32_t count; /* folders there are */
	uint32_t free[GROUPS_FREE]; /* ended and empty: the next ones to be given */
	unsigned nfree;
	uint32_t *late; /* ended, but not empty then */
	unsigned nlate;
};

/* Of a sandbox that another warden made: those there are count as given. */
int groups_init(struct groups *g, const struct cgroup_host *h, const struct cgroup *c);
void groups_done(struct groups *g);
/* A descriptor to join group *ret by, for processes of user @by (cgroup_child_make). */
int groups_new(struct groups *g, const struct cgroup_host *h, const struct cgroup *c, uid_t by, uint32_t *ret,
	       struct err *e);
int groups_kill(const struct groups *g, const struct cgroup_host *h, const struct cgroup *c, uint32_t n, struct err *e);
/* It goes now when it is empty, else later. One that was ended already is no error. */
int groups_end(struct groups *g, const struct cgroup_host *h, const struct cgroup *c, uint32_t n, struct err *e);
