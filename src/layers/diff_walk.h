/*
 * The parts of a comparison: writing the stream (diff_out.c), and walking two stacks of layers at once (diff_walk.c).
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "layers/diff.h"
#include "proto/change.h"

#define DIFF_LAYERS (SPEC_LAYERS + 2) /* the writable layer, sealed layers, the image */
#define DIFF_BUF (256U << 10)

struct diff_out {
	int fd; /* not blocking */
	const int *stop; /* atomic */
	size_t len;
	uint8_t buf[2 * CHANGE_FRAME_MAX];
};

/* Room for a frame, to be filled in place; NULL with *ret_r set when the reader is gone. */
uint8_t *out_room(struct diff_out *o, int *ret_r);
void out_added(struct diff_out *o, size_t n);
int out_flush(struct diff_out *o);
/* Where a file's data is: the number of extents at @ret (CHANGE_EXTENTS_MAX * 16 bytes), 0 when it has no holes. */
int out_extents(int fd, uint64_t size, uint8_t *ret);
/*
 * Writes the data of @fd up to @size, without its holes. A file that has become shorter meanwhile is reported with its
 * new size.
 */
int out_data(struct diff_out *o, enum change_type type, int fd, uint64_t size);
/* 1: the same content, 0: not. */
int out_same(int a, int b, uint64_t size, const int *stop, char *buf);

struct diff_layer {
	int root; /* -1: this layer has nothing of the tree */
	uint32_t base; /* the first id of its range */
	bool live;
};

struct diff_side {
	unsigned n;
	struct diff_layer layer[DIFF_LAYERS]; /* from the top to the bottom */
};

struct diff_walk {
	struct diff_side side[2]; /* the old and the new state */
	unsigned shared; /* number of layers at the bottom that both sides share */
	const char *prefix; /* where the tree is in the sandbox: "" or "/usr", ... */
	const char *opaque;
	unsigned flags;
	uint32_t max;
	const int *stop;
	struct diff_out *out;
	char *buf; /* 2 * DIFF_BUF */
	struct change_end *sum;
	uint64_t told, text; /* over all trees */
	bool cut; /* something had to be left out */

	struct diff_level *level;
	size_t depth, room, names;
	size_t opened; /* the level whose folders are in ->fd; 0: none */
	int fd[2][DIFF_LAYERS];
	char path[CHANGE_PATH_MAX + 256]; /* the current folder, below ->prefix: "" or "/a/b" */
};

int diff_walk(struct diff_walk *d);
