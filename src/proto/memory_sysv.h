/*
 * System V objects in a memory image: records of MEM_S_OBJECT with the kind MEM_OBJ_SYSV. They belong to the sandbox's IPC
 * namespace and to no process. cloche-dump writes only what mem_sysv_ok() accepts, and the agent makes all of that.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum mem_sysv_kind {
	MEM_SYSV_SHM, /* ->n 0; the object's ->a is its size, ->run its content */
	MEM_SYSV_SEM, /* ->n struct mem_sem, then ->undos struct mem_undo */
	/* ->n messages: struct mem_sysv_message and the bytes, up to a multiple of 8; the first is the oldest */
	MEM_SYSV_MSG,
	MEM_SYSV_KINDS
};

/* What the object's ->data begins with. */
struct mem_sysv {
	uint32_t kind, id, key;
	uint32_t mode; /* 9 bits */
	uint32_t uid, gid, cuid, cgid; /* owner and creator, as inside */
	uint32_t flags; /* MEM_SYSV_* */
	uint32_t n, undos;
	uint32_t zero;
	uint64_t qbytes; /* of a message queue */
};
#define MEM_SYSV_REMOVED 1U /* shared memory: ends with its last attachment (IPC_RMID) */
#define MEM_SYSV_LOCKED 2U /* shared memory: SHM_LOCK */
#define MEM_SYSV_USED 4U /* semaphores: sem_otime is not 0 */

struct mem_sem {
	uint32_t value;
	uint32_t pid; /* the process that changed it last, as inside; 0: none, or none of the image */
};

/* What is added to a semaphore when its process ends (SEM_UNDO). */
struct mem_undo {
	uint32_t pid, num;
	int32_t add;
	uint32_t zero;
};

struct mem_sysv_message {
	int64_t type;
	uint32_t len, zero;
};

#define MEM_SYSV_VALUE_MAX 32767U
#define MEM_SYSV_SEMS_MAX 32000U
#define MEM_SYSV_MESSAGE_MAX (1U << 20)
#define MEM_SYSV_SIZE_MAX ((uint64_t)1 << 46)

/* Whether @len bytes at @data (8-aligned) are one object; @size is of shared memory, else 0. */
bool mem_sysv_ok(const void *data, uint64_t len, uint64_t size);
