/*
 * What the kernel says about control groups, as text. Pure functions: no file is opened here, so that every one of
 * them can be fed hostile text.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define CGROUP_PATH_MAX 2048 /* longer mount points and group paths count as not there */

struct cgroup_mount {
	int version; /* 1 or 2 */
	unsigned controllers; /* v1: CGROUP_BIT()s of the hierarchy, 0 for one we have no use for */
	char root[CGROUP_PATH_MAX]; /* which group of the hierarchy the mount shows as its top */
	char point[CGROUP_PATH_MAX];
};

/*
 * One line of /proc/self/mountinfo, without its newline. 1 when it is a cgroup mount, 0 when it is another mount,
 * -EINVAL when it is not a line of mountinfo, -ENAMETOOLONG when a path of a cgroup mount does not fit.
 */
int cgroup_parse_mount(const char *line, size_t len, struct cgroup_mount *ret);

/*
 * Our group in the hierarchy that has @controller ("" for version 2), from the text of /proc/self/cgroup.
 * -ENOENT when no line names it; -ENAMETOOLONG; -EINVAL when the path is not absolute.
 */
int cgroup_parse_own(const char *text, const char *controller, char *ret, size_t size);

/*
 * The part of @own below the mount's @root, "" or starting with a slash. NULL when @own is not below it, also when it
 * climbs ("/.."), as the kernel shows groups outside of our cgroup namespace.
 */
const char *cgroup_parse_below(const char *root, const char *own);

/* The number after @key in lines of "key number". -ENOENT without such a line, -EINVAL or -ERANGE for a bad number. */
int cgroup_parse_kv(const char *text, const char *key, uint64_t *ret);
/* Sum of rbytes= and wbytes= over all devices of a version 2 io.stat. Saturates; what is not a number counts 0. */
uint64_t cgroup_parse_io_stat(const char *text);
/* Is @word one of the words between spaces or newlines in @text? */
bool cgroup_parse_has(const char *text, const char *word);
/* Does the text of /proc/swaps name any swap? */
bool cgroup_parse_swaps(const char *text);
/*
 * Process numbers, one a line; a last line without newline may be cut short and is left out. A number that is none
 * is 0 in @ret, as is a process that our pid namespace can't see.
 */
size_t cgroup_parse_pids(const char *text, size_t len, pid_t *ret, size_t max);
