/* A small image that is right, made by hand, to be made wrong by tests. */
#pragma once
#include <string.h>

#include "proto/memory.h"

#define TEST_PAGE 4096U

struct test_image {
	struct mem_head head;
	struct mem_proc proc[3];
	struct mem_thread thread[2];
	struct mem_vma vma[3];
	struct mem_run run[2];
	struct mem_fd fd[3];
	struct mem_object object[3];
	struct mem_watch watch[1];
	struct mem_action action[64];
	struct mem_timer timer[1];
	struct mem_exec exec[1];
	struct mem_file file[3];
	struct mem_lock lock[1];
	struct mem_node node[1];
	struct mem_cut cut[1];
	uint8_t bytes[8192];
};

#ifdef __aarch64__
#define TEST_ARCH MEM_AARCH64
#define TEST_REGS 272U
#define TEST_FP 528U
#else
#define TEST_ARCH MEM_X86_64
#define TEST_REGS 216U
#define TEST_FP 832U
#endif

static inline void test_image_make(struct test_image *i)
{
	static const struct {
		size_t off, n;
	} at[MEM_SECTIONS] = {
		{ offsetof(struct test_image, proc), 3 },     { offsetof(struct test_image, thread), 2 },
		{ offsetof(struct test_image, vma), 3 },      { offsetof(struct test_image, run), 2 },
		{ offsetof(struct test_image, fd), 3 },	      { offsetof(struct test_image, object), 3 },
		{ offsetof(struct test_image, watch), 1 },    { offsetof(struct test_image, action), 64 },
		{ offsetof(struct test_image, timer), 1 },    { offsetof(struct test_image, exec), 1 },
		{ offsetof(struct test_image, file), 3 },     { offsetof(struct test_image, lock), 1 },
		{ offsetof(struct test_image, node), 1 },     { offsetof(struct test_image, cut), 1 },
		{ offsetof(struct test_image, bytes), 8192 },
	};
	static const char exe[] = "/usr/bin/sleep", cwd[] = "/home/user", shm[] = "/dev/shm/x";

	memset(i, 0, sizeof(*i));
	i->head = (struct mem_head){ .magic = MEM_MAGIC,
				     .version = MEM_VERSION,
				     .arch = TEST_ARCH,
				     .page_size = TEST_PAGE,
				     .page_files = 1,
				     .size = sizeof(*i),
				     .pages = 4 * TEST_PAGE };
	for (unsigned s = 0; s < MEM_SECTIONS; s++) {
		i->head.section[s].off = at[s].off;
		i->head.section[s].n = at[s].n;
	}
	memcpy(i->bytes, exe, sizeof(exe) - 1);
	memcpy(i->bytes + 64, cwd, sizeof(cwd) - 1);
	i->file[0] = (struct mem_file){
		.path = { 0, sizeof(exe) - 1 }, .size = 1, .mode = 0100755, .flags = 1, .node = MEM_NONE
	};
	i->file[1] = (struct mem_file){ .path = { 64, sizeof(cwd) - 1 }, .mode = 040755, .node = MEM_NONE };
	memcpy(i->bytes + 96, shm, sizeof(shm) - 1);
	i->file[2] = (struct mem_file){ .path = { 96, sizeof(shm) - 1 }, .mode = 0100600 };
	i->node[0] = (struct mem_node){ .mode = 0100600, .file = 2, .link = MEM_NONE };
	i->proc[0] = (struct mem_proc){ .state = MEM_ALIVE,
					.parent = MEM_NONE,
					.pid = 2,
					.pgid = 2,
					.sid = 2,
					.tty = MEM_NONE,
					.uid = { 1000, 1000, 1000, 1000 },
					.gid = { 1000, 1000, 1000, 1000 },
					.root = MEM_NONE,
					.cwd = 1,
					.flags = MEM_PROC_DUMPABLE,
					.thread = { 0, 2 },
					.vma = { 0, 3 },
					.fd = { 0, 3 },
					.action = { 0, 64 },
					.timer = { 0, 1 },
					.comm = "sleep" };
	i->proc[1] = (struct mem_proc){
		.state = MEM_ZOMBIE, .parent = 0, .pid = 9, .pgid = 2, .sid = 2, .tty = MEM_NONE, .exec = MEM_NONE
	};
	i->proc[2] = (struct mem_proc){ .state = MEM_PLACEHOLDER,
					.parent = MEM_NONE,
					.pid = 10,
					.pgid = 10,
					.sid = 10,
					.tty = MEM_NONE,
					.exec = MEM_NONE };
	for (uint32_t t = 0; t < 2; t++)
		i->thread[t] = (struct mem_thread){ .tid = 2 + t, .regs = { 128, TEST_REGS }, .fp = { 512, TEST_FP } };
	i->vma[0] = (struct mem_vma){
		.start = 0x400000, .end = 0x402000, .kind = MEM_VMA_FILE, .prot = 5, .object = MEM_NONE, .run = { 0, 1 }
	};
	i->vma[1] = (struct mem_vma){ .start = 0x500000,
				      .end = 0x504000,
				      .kind = MEM_VMA_ANON,
				      .prot = 3,
				      .file = MEM_NONE,
				      .object = MEM_NONE,
				      .run = { 1, 1 } };
	i->vma[2] = (struct mem_vma){ .start = 0x600000,
				      .end = 0x602000,
				      .kind = MEM_VMA_VDSO,
				      .prot = 5,
				      .file = MEM_NONE,
				      .object = MEM_NONE };
	i->run[0] = (struct mem_run){ .start = 0x401000, .len = TEST_PAGE };
	i->run[1] = (struct mem_run){ .start = 0x501000, .len = 3ULL * TEST_PAGE, .off = TEST_PAGE };
	i->fd[0] = (struct mem_fd){ .num = 0 };
	i->fd[1] = (struct mem_fd){ .num = 5, .object = 1 };
	i->fd[2] = (struct mem_fd){ .num = 6, .object = 2 };
	i->object[0] = (struct mem_object){ .kind = MEM_OBJ_EXTERNAL, .file = MEM_NONE, .pair = MEM_NONE, .a = 7 };
	i->object[1] =
		(struct mem_object){ .kind = MEM_OBJ_EPOLL, .file = MEM_NONE, .pair = MEM_NONE, .watch = { 0, 1 } };
	i->object[2] = (struct mem_object){ .kind = MEM_OBJ_FILE, .pair = MEM_NONE };
	i->lock[0] = (struct mem_lock){ .kind = MEM_LOCK_POSIX, .object = 2, .pid = 2 };
	i->cut[0] = (struct mem_cut){ .family = 2, .protocol = 6, .pid = 2, .fd = 5 };
	i->exec[0] = (struct mem_exec){ .id = 7, .pid = 2, .tty = MEM_NONE };
}
