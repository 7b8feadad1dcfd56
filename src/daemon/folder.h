/* The data folder, its lock, and the folder of what only root may say. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "daemon/identity.h"

#define FOLDER_RUN "/run/cloche"
#define FOLDER_LOCK_WAIT_MS 5000

/*
 * Opens @path, and makes it when only its last part is missing: mode 0700, owned by @who. A link in the last part, and a
 * folder of another user, are refused; an empty folder of root is given to @who. Stores the real path in @real.
 * *ret_reached: whether @who can open the folder by that path; false below a folder that it may not enter.
 */
int folder_open(const char *path, const struct identity *who, char *real, size_t size, bool *ret_reached,
		struct err *e);

/*
 * Takes the folder's lock; the descriptor holds it, also for children that have it. While another daemon has it, waits
 * up to @wait_ms; then ERR_CONFLICT, with its pid.
 */
int folder_lock(int dirfd, const struct identity *who, unsigned wait_ms, struct err *e);

/*
 * Whether the API never was ready on this folder: no state, or a first start that was cut short. folder_used() ends
 * that.
 */
bool folder_is_new(int dirfd);
int folder_begin(int dirfd, const struct identity *who, struct err *e);
void folder_used(int dirfd, const struct identity *who);

/* /run/cloche itself; made when missing. */
int folder_run(struct err *e);
/* "/run/cloche/w-<16 hex digits of the real path's SHA-256>", made 0700 and root's. */
int folder_state(const char *real, char *path, size_t size, struct err *e);
/* Removes it when no sandbox is recorded there. Only while the data folder is locked and no warden runs. */
void folder_state_done(const char *path);
