/*
 * The user and group of a command, by name: lines of the sandbox's own /etc/passwd and /etc/group. Code in the sandbox
 * may have written them, so nothing in them is trusted: only regular files of a bounded size are read, and only ids that
 * a sandbox may have are accepted.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ACCOUNT_NAME 33 /* of a user or a group, with its end */
#define ACCOUNT_TEXT (2 * ACCOUNT_NAME) /* NAME:GROUP, with its end */
#define ACCOUNT_FILE_MAX (1024U * 1024U)
#define ACCOUNT_HOME 256
#define ACCOUNT_GROUPS 64
#define ACCOUNT_ID_MAX 65535U

struct account {
	uint32_t uid, gid;
	uint32_t groups[ACCOUNT_GROUPS]; /* beside ->gid */
	uint32_t ngroups;
	char name[ACCOUNT_NAME]; /* "" = not in /etc/passwd */
	char home[ACCOUNT_HOME];
};

/* An id that a process of a sandbox can have. */
bool account_id_ok(uint64_t id);
/*
 * NAME, NAME:GROUP or UID:GROUP, where GROUP is a name or a number: 0, or -EINVAL for what is none of these or needs no lookup (a
 * number alone, UID:GID). -ERANGE: a number that no sandbox has.
 */
int account_check(const char *text);
/*
 * Looks @text up, which account_check() accepts, in two files' @passwd and @group, of so many bytes. A name without a group gets the
 * groups that list it as a member, as with Docker. -ENOENT: no such name. -ERANGE: it has ids that no sandbox has. -E2BIG: more than
 * ACCOUNT_GROUPS groups. -ENAMETOOLONG: its home. *ret_group: that is about the group.
 */
struct account_files {
	const char *passwd, *group;
	size_t passwd_len, group_len;
};
int account_find(const struct account_files *in, const char *text, struct account *ret, bool *ret_group);
/*
 * One of these files, all of it, in memory that is to be unmapped: *ret_room bytes, or 0 when there is nothing (*ret is then left alone). What
 * is not there is empty.
 */
int account_read(int root, const char *path, char **ret, size_t *ret_len, size_t *ret_room);
/* Whether a line of such a text has that name, or id. */
bool account_lists(const char *text, size_t len, const char *name);
bool account_lists_id(const char *text, size_t len, uint32_t id);
/*
 * Looks @text up in the files below the folder @root; links are resolved inside of it. -EINVAL: a file is not regular;
 * -EFBIG: a file is larger than ACCOUNT_FILE_MAX; or the error of opening or reading it. Never blocks.
 */
int account_look_up(int root, const char *text, struct account *ret, bool *ret_group);
