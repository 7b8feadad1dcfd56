/*
 * META: one machine's state but for its memory and disks. A head of fixed size, then what carries its channels
 * (carry.h), then QEMU's device state. PAGES: the memory that differs from what the machine was cloned from.
 */
#pragma once
#include <assert.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "vm/vmm/side.h"

#define META_MAGIC 0x6174656d6d766c63ULL /* "clvmmeta" */
#define META_VERSION 1U
#define META_CARRY_MAX (8U * 1024U * 1024U)
#define META_STATE_MAX (16U * 1024U * 1024U)

struct vm_meta {
	uint64_t magic;
	uint32_t version, size; /* of this head */
	uint8_t sum[32]; /* sha256 of the whole file, computed with zeros in this field */
	char qemu[64]; /* the version of QEMU */
	char machine[128]; /* board, processor, accelerator, devices: what must be as it was */
	/* x86: frequency of the processor's counter; a machine with another frequency is a different one */
	uint32_t tsc_khz;
	uint32_t accel, memory_mib, cpus;
	uint32_t epoch; /* epoch of the port's messages */
	uint32_t way; /* what the guest was last sent about its network: VM_WAY_* */
	uint64_t carry_len, state_len;
	struct vm_what what;
};
static_assert(sizeof(struct vm_meta) == 8 + 8 + 32 + 64 + 128 + 24 + 16 + 160, "no padding");

/* Reads and checks the head alone (not its sum). ERR_INVALID with what is wrong. */
int meta_head(int fd, struct vm_meta *ret, struct err *e);
/* Reads @len bytes at @at. -ENODATA: there are fewer. */
int meta_read(int fd, void *data, size_t len, off_t at);
int meta_damaged(const char *what, struct err *e);
/*
 * Reads and checks all of it, including the sum. *@ret_rest: the carry's part, then the device state; the caller frees
 * it.
 */
int meta_load(int fd, struct vm_meta *ret, uint8_t **ret_rest, struct err *e);
/* Fills magic, version, size and sum of @m; the rest of it and the lengths are the caller's. */
int meta_save(int fd, struct vm_meta *m, const void *carry, const void *state, struct err *e);

#define PAGES_MAGIC 0x7365676170766c63ULL /* "clvpages" */

/*
 * ->runs entries of struct pages_run follow, in ascending order and with gaps between them; then the pages in the same
 * order.
 */
struct pages_head {
	uint64_t magic;
	uint32_t page, zero; /* bytes of a page */
	uint64_t runs, pages;
};

struct pages_run {
	uint64_t start, count; /* first page and number of pages */
};

/* Checks all of the table against @ram_size and the file's size, then writes the pages into @ram (a memfd). */
int pages_apply(int fd, int ram, uint64_t ram_size, struct err *e);
/*
 * Merges several PAGES files, the oldest first, into the empty file @out, with the newest content of each page. They
 * are checked as in pages_apply().
 */
int pages_join(const int *fds, unsigned n, uint64_t ram_size, int out, struct err *e);
