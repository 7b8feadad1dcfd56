/* The process that fills a restored process's memory while the agent waits. */
#include "agent/restore/help.h"
#include "base/fd.h"
#include "base/sys.h"

#include <linux/futex.h>
#include <linux/userfaultfd.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define HELP_LEAST (1U * MIB) /* copying less than that takes less time than waking a helper */

struct helper {
	struct restore *r;
	uint64_t skip; /* bytes that are the process's part */
	int uffd;
	uint8_t *window; /* RESTORE_WINDOW bytes of ->file from ->off on, or NULL */
	uint32_t file;
	uint64_t off;
	int error;
};

static long futex(uint32_t *word, int op, uint32_t value)
{
	return syscall(SYS_futex, word, op, value, NULL, NULL, 0);
}

/* ---- in the process --------------------------------------------------------------------------------------------- */

bool restore_help_ask(const struct build *b)
{
	struct restore *r = b->r;
	bool given;

	if (r->help != b->proc)
		return false;
	given = b->uffd >= 0 && fd_send_now(r->help_sock[1], "u", 1, &b->uffd, 1) == 0;
	if (!given) { /* nothing will come */
		__atomic_store_n(&r->shared->mapped, 1, __ATOMIC_SEQ_CST);
		futex(&r->shared->mapped, FUTEX_WAKE, 1);
	}
	return given;
}

void restore_help_begin(struct build *b)
{
	const uint64_t word = (uint64_t)(uintptr_t)&b->r->shared->mapped;

	/* Writes 1 to the word, and wakes the process that waits on it. */
	add(b, RESTORE_READ, BLOB_OK, SYS_futex, word, FUTEX_WAKE_OP, 1, 0, word,
	    FUTEX_OP(FUTEX_OP_SET, 1, FUTEX_OP_CMP_LT, 0));
}

void restore_help_end(struct build *b)
{
	const uint64_t word = (uint64_t)(uintptr_t)&b->r->shared->helped;

	/* Only the agent wakes it, after it has written 1. */
	add(b, RESTORE_READ, BLOB_ANY, SYS_futex, word, FUTEX_WAIT, 0, 0, 0, 0);
	add(b, RESTORE_READ, BLOB_SAME, 0, word, 1, 0, 0, 0, 0);
}

/* ---- in both ---------------------------------------------------------------------------------------------------- */

static void sum_up(void *arg, const struct mem_run *run)
{
	*(uint64_t *)arg += run->len;
}

uint64_t restore_help_own(const struct build *b)
{
	const uint64_t page = b->r->m.head->page_size;
	uint64_t copied = 0, all = 0, read;

	restore_fill_rest(b, sum_up, &copied);
	for (uint32_t i = 0; i < b->p->vma.n; i++)
		for (uint32_t k = 0; k < b->r->m.vma[b->p->vma.first + i].run.n; k++)
			all += b->r->m.run[b->r->m.vma[b->p->vma.first + i].run.first + k].len;
	/* What is read takes half as long again, and is the process's. */
	read = (all - copied) * 3 / 2;
	return copied > read ? (copied - read) / 2 & -page : 0;
}

/* ---- in the agent ----------------------------------------------------------------------------------------------- */

static bool another_processor(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) > 1;
}

void restore_help_offer(struct restore *r)
{
	uint64_t most = HELP_LEAST - 1;
	int pair[2];

	r->help = MEM_NONE;
	/* A restore that is made ahead of a request needs no help, since no caller waits for it. */
	if (r->held || r->stash || !another_processor())
		return;
	for (uint32_t i = 0; i < r->m.n[MEM_S_PROC]; i++) {
		const uint64_t bytes = restore_fill_copied(r, i);

		if (bytes > most) {
			most = bytes;
			r->help = i;
		}
	}
	if (r->help == MEM_NONE ||
	    sys_socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0) {
		r->help = MEM_NONE;
		return;
	}
	for (unsigned i = 0; i < 2; i++)
		r->help_sock[i] = restore_high(r, pair[i]);
	if (r->help_sock[0] < 0 || r->help_sock[1] < 0)
		r->help = MEM_NONE;
}

static int show(struct helper *h, const struct mem_run *x)
{
	if (h->window && h->file == x->file && x->off >= h->off && x->off - h->off < RESTORE_WINDOW)
		return 0;
	if (h->window)
		munmap(h->window, RESTORE_WINDOW);
	h->window = mmap(NULL, RESTORE_WINDOW, PROT_READ, MAP_SHARED, h->r->pages[x->file], (off_t)x->off);
	if (h->window == MAP_FAILED) {
		h->window = NULL;
		return -errno;
	}
	h->file = x->file;
	h->off = x->off;
	return 0;
}

static void copy_theirs(void *arg, const struct mem_run *run)
{
	struct helper *h = arg;
	struct mem_run x = *run;
	const uint64_t skip = x.len < h->skip ? x.len : h->skip;

	h->skip -= skip;
	x.start += skip;
	x.off += skip;
	x.len -= skip;
	while (x.len && !h->error) {
		struct uffdio_copy c = { .dst = x.start, .mode = UFFDIO_COPY_MODE_DONTWAKE };

		h->error = show(h, &x);
		if (h->error)
			break;
		c.src = (uint64_t)(uintptr_t)h->window + (x.off - h->off);
		c.len = RESTORE_WINDOW - (x.off - h->off);
		if (c.len > x.len)
			c.len = x.len;
		h->error = sys_ioctl(h->uffd, UFFDIO_COPY, &c);
		x.start += c.len;
		x.off += c.len;
		x.len -= c.len;
	}
}

static int fill(struct restore *r, int uffd)
{
	const struct build b = { .r = r, .p = &r->m.proc[r->help], .proc = r->help };
	struct helper h = { .r = r, .uffd = uffd, .skip = restore_help_own(&b) };

	restore_fill_rest(&b, copy_theirs, &h);
	if (h.window)
		munmap(h.window, RESTORE_WINDOW);
	return h.error < 0 ? h.error : 0;
}

int restore_help(struct restore *r)
{
	int uffd = -1, x;
	size_t n = 0;
	char byte;

	if (r->help == MEM_NONE)
		return 0;
	x = restore_wait(r, &r->shared->mapped, 1);
	if (x < 0)
		return x;
	if (fd_recv(r->help_sock[0], &byte, 1, &uffd, 1, &n) == -EAGAIN)
		return 0; /* it fills itself */
	x = n == 1 ? fill(r, uffd) : -EBADMSG;
	fd_close(uffd); /* before the process closes its own: the last one takes back what it did to the memory */
	if (x < 0 && !__atomic_load_n(&r->shared->failed, __ATOMIC_SEQ_CST)) {
		r->shared->what = RESTORE_READ;
		r->shared->proc = r->help;
		r->shared->error = x;
	}
	if (x < 0)
		return -ECANCELED;
	__atomic_store_n(&r->shared->helped, 1, __ATOMIC_SEQ_CST);
	futex(&r->shared->helped, FUTEX_WAKE, 1);
	return 0;
}
