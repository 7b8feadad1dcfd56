/*
 * Slots: each sandbox on this machine has a number of its own, and with it a range of 65,536 user ids and the name of
 * its cgroup. A slot is one byte of a file, locked as long as its owner lives: the kernel frees it when the owner dies,
 * by any cause. A cgroup that is found under a slot that was just locked is therefore an orphan.
 */
#pragma once
#include <pthread.h>
#include <stdint.h>

#include "base/err.h"

#define SLOT_COUNT 32768U
#define SLOT_UID_BASE 100000000U
#define SLOT_UIDS 65536U

struct slots {
	int fd; /* the file; -1 without root: then there is one sandbox per process, and no range of ids */
	pthread_mutex_t lock; /* protects ->next and ->mine: blanks are made and ended by different threads */
	uint32_t next;
	uint8_t *mine; /* marks slots of this process, since a file lock does not exclude its own holder */
};

int slots_open(struct slots *ret, const char *path, struct err *e);
void slots_done(struct slots *s);
int slots_take(struct slots *s, uint32_t *ret, struct err *e);
/*
 * As slots_take(), but the lock belongs to a new open file description, *ret_fd. The slot is taken until the last copy
 * of *ret_fd is closed.
 */
int slots_take_own(struct slots *s, uint32_t *ret, int *ret_fd, struct err *e);
/* Opens the file of slots once more, without any lock, for slots_share(). A descriptor, or -errno. */
int slots_again(const struct slots *s);
/* Makes @fd, of slots_again(), hold the slot as well. Its owner has taken the slot by slots_take_own(). */
int slots_share(int fd, uint32_t slot);
/* Marks as ours a slot that a sandbox of ours holds, whichever process has the lock. -EAGAIN: it is marked already. */
int slots_adopt(struct slots *s, uint32_t slot);
/* Takes @slot. -EALREADY: this process has it; -EAGAIN or -EACCES: another process has it. */
int slots_claim(struct slots *s, uint32_t slot);
/* Frees the slot. @fd: the descriptor of slots_take_own(), which is closed; -1: none. */
void slots_give(struct slots *s, uint32_t slot, int fd);
static inline uint32_t slot_uid(uint32_t slot)
{
	return SLOT_UID_BASE + slot * SLOT_UIDS;
}
