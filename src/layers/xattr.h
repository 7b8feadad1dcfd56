/* Extended attributes of a layer's files: those that still mean the same in another sandbox. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/sha256.h"

#define XATTR_BUF (192U << 10) /* what each needs to work with */

/*
 * user.*, file capabilities (for the ids above @uid_base), access lists and overlay's marks of what hides what.
 * -ERANGE: the file system of @to does not store that many bytes of them for one file.
 */
int xattr_copy(int from, int to, uint32_t uid_base, char *buf);
/* If it has none of these: cheaply, so one with very long lists of others counts as having some. */
bool xattr_none(int fd);
/* Takes away the rights a new file or folder has from the folder it was made in. */
int xattr_disinherit(int fd);
/* Adds the same ones to @s, by name. */
int xattr_sum(int fd, char *buf, struct sha256 *s);
/*
 * The same ones without overlay's, by name, as proto/change.h has them; @uid_base 0: ids are right already. How many bytes
 * of @ret, -EMSGSIZE when they are more than @room.
 */
long xattr_pack(int fd, uint32_t uid_base, char *buf, uint8_t *ret, size_t room);
