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
	int fd; /* -1 without root: one sandbox per process, no ranges */
	pthread_mutex_t lock; /* blanks are made and ended by different threads */
	uint32_t next;
	uint8_t *mine; /* slots of this process: a file lock does not stop its own holder */
};

int slots_open(struct slots *ret, const char *path, struct err *e);
void slots_done(struct slots *s);
int slots_take(struct slots *s, uint32_t *ret, struct err *e);
/* As slots_take, by an open file description of its own, *ret_fd: the slot is taken until its last copy is closed. */
int slots_take_own(struct slots *s, uint32_t *ret, int *ret_fd, struct err *e);
/* Another open file description, which holds nothing: a descriptor, or -errno. */
int slots_again(const struct slots *s);
/* From now on such a one holds the slot as well, whose owner has it by slots_take_own. */
int slots_share(int fd, uint32_t slot);
/* Marks a slot that a sandbox of ours holds already, whichever process has its lock. -EAGAIN when it is marked. */
int slots_adopt(struct slots *s, uint32_t slot);
/* Takes this slot. -EALREADY when we have it, -EAGAIN or -EACCES when another process does. */
int slots_claim(struct slots *s, uint32_t slot);
/* @fd: of slots_take_own, closed; -1 = it has none. */
void slots_give(struct slots *s, uint32_t slot, int fd);
static inline uint32_t slot_uid(uint32_t slot)
{
	return SLOT_UID_BASE + slot * SLOT_UIDS;
}
