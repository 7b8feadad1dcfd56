#include "proto/memory.h"
#include "base/base.h"
#include "base/test.h"
#include "proto/frame.h"
#include "proto/memory_test.h"

#include <sys/auxv.h>
#include <sys/socket.h>

static struct test_image im;
static struct mem_image got;
static struct err e;

static int check(void)
{
	memset(&e, 0, sizeof(e));
	return mem_check(&im, sizeof(im), &got, &e);
}

TEST(an_image_that_is_right_passes)
{
	test_image_make(&im);
	if (check() < 0)
		TEST_FAIL("%s", e.msg);
	CHECK_EQ(got.n[MEM_S_PROC], 3);
	CHECK(got.proc == im.proc && got.bytes == im.bytes && got.file == im.file);
}

/* Each line makes one thing wrong. */
#define WRONG(change, word)                                                                                            \
	do {                                                                                                           \
		test_image_make(&im);                                                                                  \
		change;                                                                                                \
		CHECK_EQ(check(), -EBADMSG);                                                                           \
		CHECK_CONTAINS(e.msg, word);                                                                           \
	} while (0)

TEST(a_head_that_is_wrong_is_refused)
{
	WRONG(im.head.magic++, "invalid");
	WRONG(im.head.version++, "version");
	WRONG(im.head.arch = 3, "architecture");
	WRONG(im.head.page_size = 4097, "page size");
	WRONG(im.head.page_files = 0, "pages files");
	WRONG(im.head.page_files = 9, "pages files");
	WRONG(im.head.page_files = 2, "ancestor");
	WRONG(memset(im.head.ancestor[1], 'a', 32), "ancestor");
	WRONG(im.head.size--, "sizes");
	WRONG(im.head.pages++, "sizes");
	WRONG(im.head.section[0].off += 4, "place");
	WRONG(im.head.section[0].off = 0, "place");
	WRONG(im.head.section[3].n = UINT64_MAX, "length");
	WRONG(im.head.section[MEM_S_BYTES].n++, "length");
	WRONG(im.head.section[0].n = 0, "missing");
	test_image_make(&im);
	for (size_t n = 0; n < sizeof(im); n += 8)
		CHECK_EQ(mem_check(&im, n, &got, NULL), -EBADMSG);
}

TEST(a_process_that_is_wrong_is_refused)
{
	WRONG(im.proc[0].state = 3, "state");
	WRONG(im.proc[0].parent = 0, "parent");
	WRONG(im.proc[1].parent = 1, "parent");
	WRONG(im.proc[0].pid = im.proc[0].pgid = im.proc[0].sid = 1, "");
	WRONG(im.proc[1].pid = 3, "id"); /* a thread's */
	WRONG(im.proc[1].pgid = 99, "does not exist");
	WRONG(im.proc[1].sid = 10, "group");
	WRONG(im.proc[0].exec = 1, "exec");
	WRONG(im.proc[0].tty = 1, "terminal");
	WRONG(im.proc[0].uid[3] = AGENT_UID, "user");
	WRONG(im.proc[0].uid[0] = UINT32_MAX, "user");
	WRONG(im.proc[0].gid[1] = AGENT_UID, "user");
	WRONG(im.proc[0].umask = 01000, "settings");
	WRONG(im.proc[0].flags = 1024, "settings");
	WRONG(im.proc[0].exe = 3, "files");
	WRONG(im.proc[0].groups.len = 3, "groups");
	WRONG(im.proc[0].groups = ((struct mem_span){ UINT64_MAX, 8 }), "groups");
	WRONG(im.proc[0].auxv.len = 2048, "auxv");
	WRONG(im.proc[0].mm[4] = 1ULL << 60, "addresses");
	WRONG(im.proc[0].pending.len = 127, "signals");
	WRONG(im.proc[0].action.n = 63, "actions");
	WRONG(im.proc[0].thread.n = 3, "threads");
	WRONG(im.proc[0].thread.first = 1, "threads");
	WRONG(im.proc[0].vma.n = UINT32_MAX, "mappings");
	WRONG(im.proc[0].fd.first = 1, "descriptors");
	WRONG(im.proc[0].timer.first = UINT32_MAX, "timers");
	WRONG(im.proc[1].vma = ((struct mem_range){ 0, 1 }), "parts");
	WRONG(memset(im.proc[0].comm, 'x', 16), "name");
}

TEST(a_thread_that_is_wrong_is_refused)
{
	WRONG(im.thread[0].tid = 4, "leader");
	WRONG(im.thread[1].tid = 2, "id");
	WRONG(im.thread[1].tid = 4194304, "id");
	WRONG(im.thread[0].regs.len--, "registers");
	WRONG(im.thread[0].regs.off = 8192, "registers");
	WRONG(im.thread[0].fp.len = 8, "vector");
	WRONG(im.thread[0].tid_address = 1ULL << 63, "address");
	WRONG(im.thread[0].nice = 20, "scheduling");
	WRONG(im.thread[0].pending.len = 128ULL * 4096, "spans");
}

TEST(memory_that_is_wrong_is_refused)
{
	WRONG(im.vma[0].start++, "place");
	WRONG(im.vma[0].end = im.vma[0].start, "place");
	WRONG(im.vma[1].start = 0x401000, "place");
	WRONG(im.vma[2].end = 1ULL << 62, "place");
	WRONG(im.vma[0].start = 0, "place");
	WRONG(im.vma[0].prot = 8, "flags");
	WRONG(im.vma[0].kind = MEM_VMA_SYSV + 1, "kind");
	WRONG((im.vma[1].kind = MEM_VMA_SYSV, im.vma[1].object = 0), "object");
	WRONG(im.vma[0].file = 3, "file");
	WRONG(im.vma[1].file = 0, "file");
	WRONG(im.vma[0].object = 0, "object");
	WRONG(im.vma[1].offset = 7, "offset");
	WRONG(im.vma[0].flags = MEM_VMA_GROWSDOWN, "grows");
	WRONG(im.vma[2].run.n = 1, "runs");
	WRONG(im.vma[1].run.n = 2, "runs");
	WRONG(im.run[0].start = 0x400001, "aligned");
	WRONG(im.run[0].start = 0x402000, "place");
	WRONG(im.run[1].len += TEST_PAGE, "place");
	WRONG(im.run[1].len = (uint64_t)0 - TEST_PAGE, "place");
	WRONG(im.run[1].off += TEST_PAGE, "outside");
	WRONG(im.run[1].off = (uint64_t)0 - TEST_PAGE, "outside");
	WRONG(im.run[0].file = 1, "file");
}

TEST(cpus_beyond_the_first_64_are_chosen_again)
{
	const uint64_t all[MEM_CPU_WORDS] = { ~0ULL, ~0ULL }, high[MEM_CPU_WORDS] = { 0, 4 },
		       both[MEM_CPU_WORDS] = { 1, 8 };
	const uint64_t low[MEM_CPU_WORDS] = { ~0ULL }, gone[MEM_CPU_WORDS] = { 0, 0, 1 };
	uint64_t want[MEM_CPU_WORDS];

	CHECK(mem_cpus_chosen(high, NULL, all, want) && !memcmp(want, high, sizeof(want)));
	CHECK(mem_cpus_chosen(both, all, all, want) && !memcmp(want, both, sizeof(want)));
	CHECK(mem_cpus_chosen(both, low, all, want) && want[0] == 1 && !want[1]);
	CHECK(mem_cpus_chosen(low, NULL, all, want) && want[0] == ~0ULL && !want[1]);
	CHECK(!mem_cpus_chosen(all, NULL, all, want)); /* it had chosen nothing */
	CHECK(!mem_cpus_chosen(gone, all, all, want)); /* nothing of it exists */
}

TEST(descriptors_and_objects_that_are_wrong_are_refused)
{
	WRONG(im.fd[1].num = 0, "number");
	WRONG(im.fd[1].num = UINT32_MAX, "number");
	WRONG(im.fd[0].object = 3, "object");
	WRONG(im.object[0].kind = 17, "kind");
	WRONG(im.object[0].a = 8, "kind");
	WRONG(im.object[0].b = 5, "kind");
	WRONG(im.object[0].watch.n = 1, "watches");
	WRONG(im.object[1].watch.n = 2, "watches");
	WRONG(im.object[1].run.n = 1, "runs");
	WRONG(im.watch[0].object = 3, "watch");
	WRONG(im.object[0].data.off = UINT64_MAX, "numbers");
	WRONG(im.object[0] = ((struct mem_object){ .kind = MEM_OBJ_FILE, .file = 3 }), "kind");
	WRONG(im.object[0] = ((struct mem_object){ .kind = MEM_OBJ_TIMERFD, .data.len = 39 }), "kind");
	WRONG(im.object[0] = ((struct mem_object){ .kind = MEM_OBJ_INOTIFY, .data.len = 13 }), "kind");
	WRONG(im.object[0] = ((struct mem_object){ .kind = MEM_OBJ_SOCKET, .data.len = 327 }), "kind");
	WRONG(im.object[0] = ((struct mem_object){ .kind = MEM_OBJ_PTMX, .a = 4096, .data.len = 64 }), "kind");
}

TEST(protection_keys_are_those_of_the_process)
{
	WRONG(im.proc[0].pkeys = 1, "keys");
	WRONG(im.proc[0].pkeys = 1U << MEM_PKEYS, "keys");
	WRONG(im.vma[1].flags = 1U << MEM_VMA_KEY_SHIFT, "key");
}

TEST(connections_that_were_cut_are_told_as_such)
{
	WRONG(im.cut[0].family = 1, "connection");
	WRONG(im.cut[0].protocol = 1, "connection");
	WRONG(im.cut[0].pid = 4194304, "connection");
	WRONG(memset(im.cut[0].comm, 'x', sizeof(im.cut[0].comm)), "connection");
}

/* Object 0 and 1 become unix datagram sockets that were made together; 0 has a message. */
static struct mem_socket *two_sockets(struct mem_message **ret)
{
	static struct {
		struct mem_socket k[2];
		struct mem_message m;
		uint8_t rest[256];
	} s;

	memset(&s, 0, sizeof(s));
	test_image_make(&im);
	for (uint32_t i = 0; i < 2; i++) {
		s.k[i] = (struct mem_socket){ .family = AF_UNIX,
					      .type = SOCK_DGRAM,
					      .flags = MEM_SOCK_PEER | MEM_SOCK_TWO,
					      .addr_len = 2,
					      .peer_len = 2 };
		im.object[i] = (struct mem_object){ .kind = MEM_OBJ_SOCKET,
						    .file = MEM_NONE,
						    .pair = 1 - i,
						    .data = { i ? 4096 : 5120, sizeof(struct mem_socket) } };
	}
	im.object[0].data.len += sizeof(s.m) + 110;
	s.m.addr_len = 110;
	*ret = &s.m;
	return s.k;
}

/* Changes one thing of them: what the agent would follow without a look is refused. */
#define SOCKETS(change, want)                                                                                          \
	do {                                                                                                           \
		struct mem_message *m;                                                                                 \
		struct mem_socket *k = two_sockets(&m);                                                                \
		change;                                                                                                \
		memcpy(im.bytes + 5120, &k[0], sizeof(k[0]));                                                          \
		memcpy(im.bytes + 4096, &k[1], sizeof(k[1]));                                                          \
		memcpy(im.bytes + 5120 + sizeof(k[0]), m, sizeof(*m) + 256);                                           \
		if (check() != (want))                                                                                 \
			TEST_FAIL("%s: %s", #change, e.msg);                                                           \
	} while (0)

TEST(sockets_that_are_wrong_are_refused)
{
	SOCKETS((void)0, 0);
	SOCKETS(im.object[0].pair = 3, -EBADMSG);
	SOCKETS(im.object[0].pair = MEM_NONE, -EBADMSG);
	SOCKETS(im.object[0].pair = 2, -EBADMSG); /* no socket */
	SOCKETS(im.object[1].pair = 1, -EBADMSG); /* not made together with this one */
	SOCKETS((k[0].flags = MEM_SOCK_TWO, im.object[0].pair = 1U << 20), -EBADMSG);
	SOCKETS(k[1].flags = MEM_SOCK_PEER, -EBADMSG);
	SOCKETS(k[1].type = SOCK_STREAM, -EBADMSG);
	SOCKETS((k[1].family = AF_INET, k[1].addr_len = k[1].peer_len = 16), -EBADMSG);
	SOCKETS(k[0].state = MEM_SOCK_PENDING, -EBADMSG);
	SOCKETS((k[0].flags = 0, k[0].type = SOCK_STREAM, k[0].state = MEM_SOCK_PENDING, k[1].flags = 0,
		 k[1].type = SOCK_STREAM, k[1].state = MEM_SOCK_LISTEN),
		0);
	SOCKETS((k[0].flags = 0, k[0].type = SOCK_STREAM, k[0].state = MEM_SOCK_PENDING, k[1].flags = 0,
		 k[1].type = SOCK_STREAM, k[1].state = MEM_SOCK_LISTEN, k[0].order = 1U << 31),
		-EBADMSG);
	SOCKETS(k[0].addr_len = 111, -EBADMSG);
	SOCKETS(k[0].peer_len = 111, -EBADMSG);
	SOCKETS((m->addr_len = 111, im.object[0].data.len++), -EBADMSG);
	SOCKETS((k[0].filter = 4097 * 8, im.object[0].data.len += 4097 * 8), -EBADMSG);
	/* with a long address */
	SOCKETS((k[0].flags = k[1].flags = 0, k[0].family = AF_INET, k[0].addr_len = k[0].peer_len = 16), -EBADMSG);
	SOCKETS((k[0].flags = k[1].flags = 0, k[0].family = AF_INET, k[0].addr_len = k[0].peer_len = 16,
		 m->addr_len = 16, m->len = 94),
		0);
	SOCKETS((k[0].flags = k[1].flags = 0, k[0].family = AF_INET, k[0].addr_len = 15, m->addr_len = 16, m->len = 94),
		-EBADMSG);
}

TEST(tables_and_guards_that_are_wrong_are_refused)
{
	WRONG(im.proc[0].files = 2, "shared descriptors");
	WRONG(im.proc[0].files = 77, "shared descriptors");
	WRONG(im.proc[1].files = 2, "shared descriptors");
	WRONG(im.proc[0].folders = 2, "shared folders");
	WRONG(im.proc[1].folders = 2, "shared folders");
	WRONG((im.proc[0].guards.off = 128, im.proc[0].guards.len = 8), "guards");
	WRONG((im.proc[0].guards.off = 128, im.proc[0].guards.len = 16), "guards");
	WRONG((im.object[2].kind = MEM_OBJ_PIDFD, im.object[2].a = 0), "kind");
}

TEST(locks_that_are_wrong_are_refused)
{
	WRONG(im.lock[0].kind = 5, "kind");
	WRONG((im.lock[0].kind = MEM_LOCK_BREAKING, im.lock[0].start = 1), "kind");
	WRONG(im.lock[0].type = 2, "kind");
	WRONG(im.lock[0].object = 3, "object");
	WRONG(im.lock[0].object = 1, "object");
	WRONG(im.lock[0].pid = 9, "process");
	WRONG(im.lock[0].start = 1ULL << 63, "range");
	WRONG((im.lock[0].start = 1, im.lock[0].len = INT64_MAX), "range");
}

TEST(nodes_that_are_wrong_are_refused)
{
	WRONG(im.node[0].mode = 0060600, "kind");
	WRONG(im.node[0].flags = 4, "kind");
	WRONG(im.node[0].file = 1, "n");
	WRONG(im.file[2].node = MEM_NONE, "name");
	WRONG(im.file[1].node = 0, "node");
	WRONG(im.bytes[96 + 5] = 'x', "place");
	WRONG(im.node[0].uid = AGENT_UID, "owner");
	WRONG(im.node[0].link = 0, "link");
	WRONG(im.node[0].target.len = 1, "target");
	WRONG(im.node[0].xattrs.len = 9, "attributes");
	WRONG(im.node[0].size = UINT64_MAX, "content");
	WRONG(im.node[0].run.n = 1, "run");
}

TEST(files_execs_and_timers_that_are_wrong_are_refused)
{
	WRONG(im.bytes[0] = 'x', "path");
	WRONG(im.bytes[3] = 0, "path");
	WRONG(im.file[1].path.len = 4096, "path");
	WRONG(im.file[0].path.off = 8190, "path");
	WRONG(im.exec[0].pid = 9, "process");
	WRONG(im.exec[0].flags = 8, "numbers");
	WRONG(im.exec[0].tty = 0, "terminal");
	WRONG(im.exec[0].queued[2].len = 9000, "queued");
	WRONG(im.timer[0].signo = 65, "numbers");
	WRONG(im.timer[0].value_ns = 1000000000, "time");
}

/* Whatever a byte is changed to: it is refused, or what it says can be walked without leaving the image. */
TEST(no_changed_byte_leads_out_of_the_image)
{
	uint32_t seed = 1, passed = 0;

	for (unsigned round = 0; round < 20000; round++) {
		test_image_make(&im);
		for (unsigned i = 0; i < 1 + round % 3; i++) {
			seed = seed * 1664525U + 1013904223U;
			((uint8_t *)&im)[(seed >> 4) % offsetof(struct test_image, bytes)] = (uint8_t)(seed >> 24);
		}
		if (check() < 0)
			continue;
		passed++;
		for (uint32_t i = 0; i < got.n[MEM_S_VMA]; i++)
			for (uint32_t r = 0; r < got.vma[i].run.n; r++)
				CHECK(got.run[got.vma[i].run.first + r].start >= got.vma[i].start &&
				      got.run[got.vma[i].run.first + r].start < got.vma[i].end);
		for (uint32_t i = 0; i < got.n[MEM_S_FILE]; i++)
			CHECK(got.file[i].path.off + got.file[i].path.len <= got.n[MEM_S_BYTES]);
	}
	CHECK(passed > 0);
}

TEST(a_machine_is_the_same_as_itself)
{
	uint8_t a[32], b[32] = { 0 };

	/* An emulator may give programs none, and has no processes worth an image. */
	if (!getauxval(AT_SYSINFO_EHDR)) {
		CHECK_EQ(mem_host(a, &e), -EOPNOTSUPP);
		return;
	}
	CHECK_EQ(mem_host(a, &e), 0);
	CHECK(memcmp(a, b, sizeof(a)) != 0);
	CHECK_EQ(mem_host(b, &e), 0);
	CHECK(!memcmp(a, b, sizeof(a)));
}
