/*
 * Files of one folder that are not needed any more, kept empty for the next that are made there: ".spare-0" and so on.
 *
 * Without a journal ext4 gives no inode out again soon after its removal, and looks at every one of those first. Where many small files
 * come and go that is most of the time it takes to make one.
 */
#pragma once
#include <stdint.h>

#define SPARES_MAX 64U
#define SPARES_LEAST 24U /* as many are made ahead */

struct spares {
	int dir; /* not ours */
	uint64_t have; /* a bit each */
};

/* Those that are in the folder already serve again. */
void spares_init(struct spares *s, int dir);
/* Makes a few that are missing. For when there is time. */
void spares_add(struct spares *s);
/* An empty file, open for writing, that becomes @ret_n's; -ENOENT when there is none. Then one of the two that follow. */
int spare_take(struct spares *s, unsigned *ret_n);
/* Its name from now on. In place of what has it already. */
int spare_name(const struct spares *s, unsigned n, const char *name);
void spare_drop(const struct spares *s, unsigned n);
/* Removes a file. */
int spare_put(struct spares *s, const char *name);
