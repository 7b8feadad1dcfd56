/*
 * What is copied where: the descriptor TAR_SPEC gives pairs of a key and a value, each with a closing NUL.
 *
 *	under PATH	the folder of the source that all is below; "/" if it is left out
 *	source PATTERN	relative to it (dockerfile/pattern.h); any number
 *	ignore 1	patterns of PATH/.dockerignore are left out
 *	exclude PATTERN	left out, too; any number
 *	dest PATH	absolute
 *	folder 1	the destination is a folder
 *	absent 1	there must be nothing at the destination
 *	parents 1	the folders of a source are kept
 *	unpack 1	files that are archives are unpacked: ADD
 *	owner 1		all becomes root's, unless:
 *	chown TEXT	user, or user:group, by name or number; names are those of the destination
 *	chmod OCTAL	of files and folders
 *	mkdir PATH	nothing is copied: the folder is made if it is not there
 *	symlink 1	a `here` is a symbolic link, and its content the target
 *	here NAME	a file, whose content is the value of the key `content` behind it; any number
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "dockerfile/ignore.h"
#include "dockerfile/words.h"

#define COPY_SPEC_MAX (4U << 20)

struct copy_spec {
	char *under, *dest, *chown, *mkdir;
	struct words sources, here, content;
	struct ignore exclude;
	bool ignore, folder, absent, parents, unpack, owner, has_mode, symlink;
	uint32_t mode;
};

/* It lives as long as the process, whose only work it is: after an error, *ret is what was read until then. */
int copy_spec_read(int fd, struct copy_spec *ret, struct err *e);
