/*
 * The programs are written out as instructions: a dozen each, and no compiler for them is needed where this is built.
 *
 *   namespaces   hash: cookie of a network namespace → struct room
 *   sockets      hash: cookie of a socket that was counted → the entry (room.entry) it was counted in. A connection that was
 *                accepted was never counted, and so its end must not be either. A namespace serves one sandbox after another: a
 *                socket of the one before may end late, and its end must not be counted in the new entry
 *
 *   create       room = namespaces[cookie]; none: allow. room.now++ was not below room.limit: room.now--, refuse. The socket
 *                cannot be noted, because all sandboxes together have too many: room.now--, allow. Its memory is watched
 *   release      the socket was noted: forget it, and where that entry of its namespace is still there, room.now--
 *   setsockopt   a buffer's size, in a namespace that is noted: not more than SOCKET_BPF_BUFFER
 */
#include "linux/socket_bpf.h"
#include "base/base.h"
#include "base/sys.h"
#include "linux/cgroup_parse.h"
#include "linux/mount.h"

#include <linux/bpf.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71
#endif
#define NAMESPACES 32768U
#define SOCKETS 262144U /* of all sandboxes together; the table takes 4 MiB */
#define PAGE 4096 /* of an option: more is not shown to programs */

struct room {
	uint64_t now, limit, entry;
};

enum { PROG_CREATE, PROG_RELEASE, PROG_SETSOCKOPT, PROGS };

struct socket_bpf {
	int namespaces, sockets, link[PROGS];
	uint64_t entries; /* so far */
};

/* Registers: r0 result, r1-r5 arguments, r6-r9 kept over calls, r10 the stack. */
#define INSN(c, d, s, o, i) ((struct bpf_insn){ .code = (c), .dst_reg = (d), .src_reg = (s), .off = (o), .imm = (i) })
#define MOV(d, s) INSN(BPF_ALU64 | BPF_MOV | BPF_X, d, s, 0, 0)
#define SET(d, n) INSN(BPF_ALU64 | BPF_MOV | BPF_K, d, 0, 0, n)
#define PLUS(d, n) INSN(BPF_ALU64 | BPF_ADD | BPF_K, d, 0, 0, n)
#define CALL(f) INSN(BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_##f)
#define LOAD32(d, s, o) INSN(BPF_LDX | BPF_MEM | BPF_W, d, s, o, 0)
#define LOAD64(d, s, o) INSN(BPF_LDX | BPF_MEM | BPF_DW, d, s, o, 0)
#define STORE64(d, o, s) INSN(BPF_STX | BPF_MEM | BPF_DW, d, s, o, 0)
#define STORE32(d, o, s) INSN(BPF_STX | BPF_MEM | BPF_W, d, s, o, 0)
#define MAP(d, fd) INSN(BPF_LD | BPF_DW | BPF_IMM, d, BPF_PSEUDO_MAP_FD, 0, fd), INSN(0, 0, 0, 0, 0)
/* Skips @n instructions when d (and s) are so. */
#define IF_EQ(d, i, n) INSN(BPF_JMP | BPF_JEQ | BPF_K, d, 0, n, i)
#define IF_NE(d, i, n) INSN(BPF_JMP | BPF_JNE | BPF_K, d, 0, n, i)
#define IF_LE(d, i, n) INSN(BPF_JMP | BPF_JLE | BPF_K, d, 0, n, i)
#define IF_NE_REG(d, s, n) INSN(BPF_JMP | BPF_JNE | BPF_X, d, s, n, 0)
#define IF_LT_REG(d, s, n) INSN(BPF_JMP | BPF_JLT | BPF_X, d, s, n, 0)
#define IF_GT_REG(d, s, n) INSN(BPF_JMP | BPF_JGT | BPF_X, d, s, n, 0)
#define ADD_FETCH(d, s) INSN(BPF_STX | BPF_ATOMIC | BPF_DW, d, s, 0, BPF_ADD | BPF_FETCH)
#define ADD_ATOMIC(d, s) INSN(BPF_STX | BPF_ATOMIC | BPF_DW, d, s, 0, BPF_ADD)
#define RETURN(n) SET(0, n), INSN(BPF_JMP | BPF_EXIT, 0, 0, 0, 0)

/* r6: the context. r0: the room of its namespace, or 0. */
#define ROOM(namespaces)                                                                                               \
	MOV(1, 6), CALL(get_netns_cookie), STORE64(10, -8, 0), MOV(2, 10), PLUS(2, -8), MAP(1, namespaces),            \
		CALL(map_lookup_elem)
/* r7: the room; where there is none, the call is allowed. */
#define FIND_ROOM(namespaces) ROOM(namespaces), IF_NE(0, 0, 2), RETURN(1), MOV(7, 0)
/* r1, r2: the table of sockets, and the cookie of this one. */
#define SOCKET_KEY(sockets)                                                                                            \
	MOV(1, 6), CALL(get_socket_cookie), STORE64(10, -8, 0), MOV(2, 10), PLUS(2, -8), MAP(1, sockets)

static int bpf(int command, union bpf_attr *a)
{
	long r = syscall(SYS_bpf, command, a, sizeof(*a));

	return r < 0 ? -errno : (int)r;
}

static int map_new(uint32_t value, uint32_t entries)
{
	union bpf_attr a = { .map_type = BPF_MAP_TYPE_HASH };

	a.key_size = sizeof(uint64_t);
	a.value_size = value;
	a.max_entries = entries;
	a.map_flags = BPF_F_NO_PREALLOC;
	return bpf(BPF_MAP_CREATE, &a);
}

/* Loads and attaches; the link, whose end is the program's. */
static int attach(int group, uint32_t type, uint32_t where, const struct bpf_insn *code, size_t n)
{
	union bpf_attr a = { .prog_type = type };
	AUTO_CLOSE int prog = -1;

	a.insns = (uint64_t)(uintptr_t)code;
	a.insn_cnt = (uint32_t)n;
	a.license = (uint64_t)(uintptr_t) "GPL";
	a.expected_attach_type = where;
	prog = bpf(BPF_PROG_LOAD, &a);
	if (prog < 0)
		return prog;
	a = (union bpf_attr){ 0 };
	a.link_create.prog_fd = (uint32_t)prog;
	a.link_create.target_fd = (uint32_t)group;
	a.link_create.attach_type = where;
	return bpf(BPF_LINK_CREATE, &a);
}

static int attach_create(const struct socket_bpf *b, int group)
{
	const struct bpf_insn code[] = {
		MOV(6, 1),
		FIND_ROOM(b->namespaces),
		SET(8, 1),
		ADD_FETCH(7, 8), /* r8: as many there were */
		LOAD64(1, 7, offsetof(struct room, limit)),
		IF_LT_REG(8, 1, 4),
		SET(8, -1),
		ADD_ATOMIC(7, 8),
		RETURN(0),
		SOCKET_KEY(b->sockets),
		LOAD64(3, 7, offsetof(struct room, entry)),
		STORE64(10, -16, 3),
		MOV(3, 10),
		PLUS(3, -16),
		SET(4, BPF_ANY),
		CALL(map_update_elem),
		IF_EQ(0, 0, 2),
		SET(8, -1),
		ADD_ATOMIC(7, 8),
		RETURN(1),
	};

	return attach(group, BPF_PROG_TYPE_CGROUP_SOCK, BPF_CGROUP_INET_SOCK_CREATE, code, ARRAY_LEN(code));
}

static int attach_release(const struct socket_bpf *b, int group)
{
	const struct bpf_insn code[] = {
		MOV(6, 1),
		SOCKET_KEY(b->sockets),
		CALL(map_lookup_elem),
		IF_NE(0, 0, 2),
		RETURN(1),
		LOAD64(9, 0, 0),
		MOV(2, 10),
		PLUS(2, -8),
		MAP(1, b->sockets),
		CALL(map_delete_elem),
		FIND_ROOM(b->namespaces),
		LOAD64(1, 7, offsetof(struct room, entry)),
		IF_NE_REG(1, 9, 2),
		SET(8, -1),
		ADD_ATOMIC(7, 8),
		RETURN(1),
	};

	return attach(group, BPF_PROG_TYPE_CGROUP_SOCK, BPF_CGROUP_INET_SOCK_RELEASE, code, ARRAY_LEN(code));
}

static int attach_setsockopt(const struct socket_bpf *b, int group)
{
	/* clang-format off */
	const struct bpf_insn code[] = {
		MOV(6, 1),
		LOAD32(8, 6, offsetof(struct bpf_sockopt, optlen)),
		LOAD32(1, 6, offsetof(struct bpf_sockopt, level)),
		IF_NE(1, SOL_SOCKET, 3),
		LOAD32(1, 6, offsetof(struct bpf_sockopt, optname)),
		/* The options with FORCE are refused to every process inside, and cloche-dump makes room by them. */
		IF_EQ(1, SO_SNDBUF, 6),
		IF_EQ(1, SO_RCVBUF, 5),
		/* An option that is too long to be shown must have length 0 to be allowed as it is, or the kernel refuses it. */
		INSN(BPF_JMP32 | BPF_JSLE | BPF_K, 8, 0, 2, PAGE),
		SET(1, 0),
		STORE32(6, offsetof(struct bpf_sockopt, optlen), 1),
		RETURN(1),
		/* Less than four bytes the kernel refuses. Length 0, but much to see: another such program has run before. */
		INSN(BPF_JMP32 | BPF_JSGT | BPF_K, 8, 0, 6, 3),
		IF_NE(8, 0, 25),
		LOAD64(1, 6, offsetof(struct bpf_sockopt, optval)),
		LOAD64(2, 6, offsetof(struct bpf_sockopt, optval_end)),
		MOV(3, 1),
		PLUS(3, PAGE),
		IF_GT_REG(3, 2, 20),
		/* The four bytes that we see are those that the kernel takes, and not the process's once more. */
		SET(1, 4),
		STORE32(6, offsetof(struct bpf_sockopt, optlen), 1),
		ROOM(b->namespaces),
		IF_EQ(0, 0, 9),
		LOAD64(1, 6, offsetof(struct bpf_sockopt, optval)),
		LOAD64(2, 6, offsetof(struct bpf_sockopt, optval_end)),
		MOV(3, 1),
		PLUS(3, 4),
		IF_GT_REG(3, 2, 4),
		LOAD32(4, 1, 0),
		IF_LE(4, (int)SOCKET_BPF_BUFFER, 2), /* negative numbers are large ones */
		SET(4, (int)SOCKET_BPF_BUFFER),
		STORE32(1, 0, 4),
		RETURN(1),
	};
	/* clang-format on */

	return attach(group, BPF_PROG_TYPE_CGROUP_SOCKOPT, BPF_CGROUP_SETSOCKOPT, code, ARRAY_LEN(code));
}

/*
 * The group above all sandboxes: on version 2 the one they are made in. Beside version 1 they stay in our own group of the version
 * 2 tree, which need not be mounted anywhere.
 */
static int open_group(const struct cgroup_host *h)
{
	char text[4096], own[CGROUP_PATH_MAX], path[CGROUP_PATH_MAX + 2];
	AUTO_CLOSE int top = -1;
	ssize_t n;

	if (h->version == 2)
		return h->base[0] < 0 ? -ENOENT : sys_openat(h->base[0], ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	top = mount_new("cgroup2", NULL, 0);
	if (top < 0)
		return top;
	n = fd_get(AT_FDCWD, "/proc/self/cgroup", text, sizeof(text));
	if (n < 0)
		return (int)n;
	if (cgroup_parse_own(text, "", own, sizeof(own)) < 0)
		return -ENOENT;
	snprintf(path, sizeof(path), ".%s", own);
	return sys_openat(top, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
}

int socket_bpf_new(const struct cgroup_host *h, struct socket_bpf **ret, struct err *e)
{
	AUTO(socket_bpf_free) struct socket_bpf *b = malloc(sizeof(*b));
	AUTO_CLOSE int group = -1;
	int r;

	if (!b)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a BPF map");
	*b = (struct socket_bpf){ .namespaces = -1, .sockets = -1, .link = { -1, -1, -1 } };
	r = group = open_group(h);
	if (r >= 0)
		r = b->namespaces = map_new(sizeof(struct room), NAMESPACES);
	if (r >= 0)
		r = b->sockets = map_new(sizeof(uint64_t), SOCKETS);
	if (r >= 0)
		r = b->link[PROG_RELEASE] = attach_release(b, group);
	if (r >= 0)
		r = b->link[PROG_CREATE] = attach_create(b, group);
	if (r >= 0)
		r = b->link[PROG_SETSOCKOPT] = attach_setsockopt(b, group);
	if (r < 0)
		return err_sys(e, ERR_UNSUPPORTED, r, "bound sockets by BPF");
	*ret = TAKE_PTR(b);
	return 0;
}

void socket_bpf_free(struct socket_bpf *b)
{
	if (!b)
		return;
	fd_close_many(b->link, PROGS);
	fd_close(b->sockets);
	fd_close(b->namespaces);
	free(b);
}

int socket_bpf_enter(struct socket_bpf *b, uint64_t sockets, struct socket_bpf_entry *ret)
{
	AUTO_CLOSE int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	const struct room room = { .limit = sockets, .entry = ++b->entries };
	union bpf_attr a = { .map_fd = (uint32_t)b->namespaces };
	uint64_t cookie = 0;
	socklen_t len = sizeof(cookie);
	int r;

	if (fd < 0 || getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &len) < 0)
		return -errno;
	a.key = (uint64_t)(uintptr_t)&cookie;
	a.value = (uint64_t)(uintptr_t)&room;
	r = bpf(BPF_MAP_UPDATE_ELEM, &a);
	if (r == 0)
		*ret = (struct socket_bpf_entry){ cookie, room.entry };
	return r;
}

void socket_bpf_leave(struct socket_bpf *b, const struct socket_bpf_entry *x)
{
	union bpf_attr a = { .map_fd = (uint32_t)b->namespaces };
	struct room room = { 0 };

	a.key = (uint64_t)(uintptr_t)&x->cookie;
	a.value = (uint64_t)(uintptr_t)&room;
	/* The next sandbox may have it already. */
	if (bpf(BPF_MAP_LOOKUP_ELEM, &a) < 0 || room.entry != x->entry)
		return;
	a.value = 0;
	bpf(BPF_MAP_DELETE_ELEM, &a);
}
