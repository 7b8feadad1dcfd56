/*
 * Inode numbers of open files, kept from a sandbox to those that are restored from its memory. A file of the writable
 * layer is copied into a layer's folder, where the filesystem gives it another number, and a program that compares the
 * number of its open file with its name's (SQLite does) takes it for another file.
 *
 * Overlay shows an upper file under the number of the file that it was copied up from, which it finds by a file handle
 * (trusted.overlay.origin), on any lower filesystem, whatever its name and content are. So a layer with memory has a
 * file mem/numbers: the image of a read-only filesystem (erofs), with one empty file for each numberthat is needed, and
 * no names. In erofs the number says where the inode lies; the file is sparse and takes a block or two for each. It is
 * the lowest layer of the sandbox's root. In the writable layer there is a folder of empty files, each with the handle
 * of one number, for the agent: it fills the one that it needs, and moves it over the file (agent/restore/number.c).
 *
 * Two open files may have the same number, on different devices: one was restored under it, the other one is new. The
 * second one's is in a second such file, and so on.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "proto/frame.h"
#include "proto/memory.h"

#define NUMBERS_MAX 192U /* of one file */
#define NUMBERS_SETS FRAME_NUMBERS_SETS

struct numbers {
	int mnt; /* detached; -1: there are none */
	unsigned set;
	uint8_t uuid[16]; /* of the erofs filesystem */
	uint32_t n;
	uint64_t number[NUMBERS_MAX];
};

/*
 * Makes "numbers0" and so on in the folder @mem for the files in @meta that need one: @ret is then open for reading,
 * else -1. @joins: lower layers become part of the new one, so that their files get new inode numbers, too.
 */
int numbers_write(int mem, int meta, const struct mem_head *h, bool joins, int ret[static NUMBERS_SETS], struct err *e);
/*
 * Opens set @set of the layer @id in the folder @layers. Without any, or where this kernel cannot mount them, ->mnt is
 * -1.
 */
void numbers_open(int layers, const char *id, unsigned set, struct numbers *ret);
void numbers_done(struct numbers *x);
/*
 * Makes empty files with these numbers, of @owner, in the folder @root, which will be an overlay's upper. Fewer when
 * the disk is full.
 */
void numbers_lay_out(const struct numbers *x, int root, uint32_t owner);
