/* Extended attributes of a layer's files: those that are valid in another sandbox. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/sha256.h"

#define XATTR_BUF (192U << 10) /* size of the buffers below */

/*
 * Copies user.*, file capabilities (for the ids above @uid_base), access lists and overlay's marks that hide lower
 * files. -ERANGE: the filesystem of @to does not store that many bytes of attributes for one file.
 */
int xattr_copy(int from, int to, uint32_t uid_base, char *buf);
/* Whether it has none of these. Fast, so a file with a very long list of other attributes counts as having some. */
bool xattr_none(int fd);
/* Removes the access list that a new file or folder has inherited from its folder. */
int xattr_disinherit(int fd);
/* Adds these attributes to @s, in the order of names. */
int xattr_sum(int fd, char *buf, struct sha256 *s);
/*
 * Writes these attributes without overlay's, in the order of names, in the format of proto/change.h; @uid_base 0: ids
 * are not shifted. The number of bytes in @ret, -EMSGSIZE when they are more than @room.
 */
long xattr_pack(int fd, uint32_t uid_base, char *buf, uint8_t *ret, size_t room);
