/* Images that are not what they should be, and what a restore must never do with them. */
#include "base/base.h"
#include "base/test.h"
#include "engine/sandbox/restore_test.h"

static struct wt w;
static struct rt_box a, b;
static struct rt_image m = { .out = -1 };
static struct rt_result res;
static struct kt_pipes x;
static struct sandbox_spec spec;
static uint8_t *meta;
static size_t meta_len;
static int pages = -1;

/* With some libraries: the one of many files that differs is to be named. */
static const char program[] = "import threading, time, os, ssl, sqlite3, lzma, bz2, ctypes, readline\n"
			      "t = [threading.Thread(target=time.sleep, args=(1000,), daemon=True) for i in range(3)]\n"
			      "[i.start() for i in t]\n"
			      "r, w = os.pipe(); os.write(w, b'x'); e = os.eventfd(3)\n"
			      "if os.fork() == 0: time.sleep(1000)\n"
			      "print('up')\ninput()\n";

static bool begin(void)
{
	AUTO_CLOSE int fd = -1;
	struct stat st;

	wt_spec(&spec);
	spec.limits.memory = 256 * MIB;
	st_fresh();
	if (!wt_open(&w, st_args()) || !rt_create(&w, &spec, &a) || !rt_python(&a, 7, program, &x) ||
	    !kt_reads(x.out, "up\n") || !rt_dump(&a, &m))
		return false;
	fd = openat(m.out, "meta", O_RDONLY | O_CLOEXEC);
	pages = mount_open_file(m.out, "pages");
	if (fd < 0 || pages < 0 || fstat(fd, &st) < 0)
		return false;
	meta_len = (size_t)st.st_size;
	meta = malloc(meta_len);
	return meta && read(fd, meta, meta_len) == (ssize_t)meta_len;
}

static bool end(void)
{
	free(meta);
	fd_close(TAKE_FD(pages));
	kt_pipes_close(&x);
	rt_forget(&m);
	return rt_destroy(&w, &a) && st_stop(&w);
}

/* What a changed image does in a new sandbox. */
static bool try(const uint8_t *bytes, size_t len)
{
	int fds[2] = { sys_memfd_create("meta", MFD_CLOEXEC), pages };
	bool ok = fds[0] >= 0 && write(fds[0], bytes, len) == (ssize_t)len && rt_send_fds(&b, fds, 1, &res);

	fd_close(fds[0]);
	return ok;
}

static bool agent_lives(void)
{
	struct frame f;
	int fds[8];

	return kt_send(&b.p, FRAME_PING, 77, NULL, 0, NULL, 0) && kt_wait(&b.p, FRAME_PONG, 77, &f, fds);
}

static size_t read_children(pid_t pid, pid_t *ret, size_t max)
{
	char path[64], text[4096], *at = text;
	size_t n = 0;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)pid, (int)pid);
	if (fd_get(AT_FDCWD, path, text, sizeof(text)) <= 0)
		return 0;
	while (n < max) {
		long child = strtol(at, &at, 10);

		if (!child)
			break;
		ret[n++] = (pid_t)child;
	}
	return n;
}

static const char *field(const char *status, const char *key)
{
	const char *at = strstr(status, key);

	return at ? at + strlen(key) : "";
}

/* Every process below @pid: locked in as an exec is, with nothing an exec of its user has not. */
static bool all_confined(pid_t pid)
{
	pid_t kids[64];
	size_t n = read_children(pid, kids, 64);
	char path[64], own[4096], text[4096];
	unsigned filters;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)b.agent);
	if (fd_get(AT_FDCWD, path, own, sizeof(own)) <= 0)
		return false;
	filters = (unsigned)strtoul(field(own, "Seccomp_filters:"), NULL, 10);
	for (size_t i = 0; i < n; i++) {
		uint64_t caps;

		snprintf(path, sizeof(path), "/proc/%d/status", (int)kids[i]);
		if (fd_get(AT_FDCWD, path, text, sizeof(text)) <= 0)
			continue; /* it has ended */
		if (strstr(text, "State:\tZ"))
			continue;
		caps = strtoull(field(text, "CapPrm:"), NULL, 16) | strtoull(field(text, "CapInh:"), NULL, 16);
		if (strtoul(field(text, "NoNewPrivs:"), NULL, 10) != 1 ||
		    strtoul(field(text, "Seccomp:"), NULL, 10) != 2 ||
		    strtoul(field(text, "Seccomp_filters:"), NULL, 10) < filters ||
		    strtoull(field(text, "CapBnd:"), NULL, 16) || caps & ~0x800004fbULL) {
			printf("# %s", text);
			return false;
		}
		if (!all_confined(kids[i]))
			return false;
	}
	return true;
}

/* One file alone is another, of those with an odd number or of the others: it is the one that is named. */
static bool named(const struct mem_head *h, uint64_t odd)
{
	struct mem_file *file = (struct mem_file *)(void *)(meta + h->section[MEM_S_FILE].off);
	const uint8_t *bytes = meta + h->section[MEM_S_BYTES].off;
	uint64_t i = h->section[MEM_S_FILE].n;
	char path[256];
	bool ok;

	while (i-- && (i % 2 != odd || !(file[i].flags & 1) || file[i].path.len >= sizeof(path)))
		;
	snprintf(path, sizeof(path), "'%.*s' is not the same file", (int)file[i].path.len,
		 (const char *)bytes + file[i].path.off);
	file[i].mtime_ns += 1;
	ok = rt_create(&w, &spec, &b) && try(meta, meta_len) && strstr(res.why, path) && agent_lives() &&
	     rt_destroy(&w, &b);
	file[i].mtime_ns -= 1;
	if (!ok)
		printf("# %s: %s\n", path, res.why);
	return ok;
}

TEST(an_image_that_was_changed_is_refused_with_a_reason_and_leaves_nobody)
{
	const struct mem_head *h;
	struct mem_file *file;
	struct mem_exec *exec;
	struct kt_pipes y;
	pid_t kids[4];

	CHECK(begin());
	h = (const struct mem_head *)(const void *)meta;
	file = (struct mem_file *)(void *)(meta + h->section[MEM_S_FILE].off);
	exec = (struct mem_exec *)(void *)(meta + h->section[MEM_S_EXEC].off);
	CHECK(exec->id == 7);
	CHECK(h->section[MEM_S_FILE].n > 16);
	CHECK(named(h, 0));
	CHECK(named(h, 1));

	CHECK(rt_create(&w, &spec, &b));
	for (uint64_t i = 0; i < h->section[MEM_S_FILE].n; i++)
		file[i].mtime_ns += 1;
	CHECK(try(meta, meta_len));
	CHECK_CONTAINS(res.why, "is not the same file");
	for (uint64_t i = 0; i < h->section[MEM_S_FILE].n; i++)
		file[i].mtime_ns -= 1;
	CHECK(agent_lives());
	CHECK_EQ(read_children(b.agent, kids, 4), 0);
	/* It had its one chance. */
	CHECK(try(meta, meta_len));
	CHECK_CONTAINS(res.why, "before anything else");
	CHECK(kt_exec(&b.p, 9, "echo still here", -1, &y));
	CHECK(kt_reads(y.out, "still here"));
	kt_pipes_close(&y);
	CHECK(rt_destroy(&w, &b));

	CHECK(rt_create(&w, &spec, &b));
	meta[offsetof(struct mem_head, host)] ^= 1;
	CHECK(try(meta, meta_len));
	CHECK_CONTAINS(res.why, "another kernel or CPU");
	meta[offsetof(struct mem_head, host)] ^= 1;
	CHECK(agent_lives());
	CHECK(rt_destroy(&w, &b));

	CHECK(rt_create(&w, &spec, &b));
	CHECK(try(meta, meta_len - 8));
	CHECK_CONTAINS(res.why, "memory image");
	CHECK(rt_destroy(&w, &b));

	/* No restore after an exec. */
	CHECK(rt_create(&w, &spec, &b));
	CHECK(kt_exec(&b.p, 9, "echo first", -1, &y));
	CHECK(kt_reads(y.out, "first"));
	kt_pipes_close(&y);
	CHECK(try(meta, meta_len));
	CHECK_CONTAINS(res.why, "before anything else");
	CHECK(rt_destroy(&w, &b));

	/* And the one that is right still is. */
	CHECK(rt_create(&w, &spec, &b));
	CHECK(try(meta, meta_len));
	CHECK_STR(res.why, "");
	CHECK_EQ(res.done.procs, 2);
	CHECK(all_confined(b.agent));
	CHECK_EQ(read_children(b.agent, kids, 4), 1);
	CHECK(rt_destroy(&w, &b));
	CHECK(end());
}

static uint32_t seed = 20;

static uint32_t next_random(void)
{
	seed = seed * 1664525U + 1013904223U;
	return seed >> 8;
}

/* One to three fields of a real image, of any section but the bytes, to something else. */
static void mutate(uint8_t *to)
{
	const struct mem_head *h = (const struct mem_head *)(const void *)meta;

	memcpy(to, meta, meta_len);
	for (unsigned i = 0; i < 1 + next_random() % 3; i++) {
		unsigned s = next_random() % MEM_S_BYTES;
		uint64_t from = h->section[s].off, len = h->section[s + 1].off - from, at;
		static const uint32_t values[] = { 0, 1, 2, 0xffffffff, 0x7fffffff, 4096, 65533, 1000 };

		if (len < 8)
			continue;
		at = from + (next_random() % (len / 4)) * 4;
		if (next_random() % 2)
			memcpy(to + at, &values[next_random() % ARRAY_LEN(values)], 4);
		else
			to[at + next_random() % 4] ^= (uint8_t)(1U << next_random() % 8);
	}
}

TEST(a_real_image_with_changed_fields_is_refused_or_can_be_walked)
{
	struct mem_image got;
	unsigned passed = 0;
	uint8_t *copy;

	CHECK(begin());
	copy = malloc(meta_len);
	for (unsigned i = 0; i < 5000; i++) {
		mutate(copy);
		if (mem_check(copy, meta_len, &got, NULL) < 0)
			continue;
		passed++;
		for (uint32_t p = 0; p < got.n[MEM_S_PROC]; p++)
			for (uint32_t t = 0; t < got.proc[p].thread.n; t++)
				CHECK(got.thread[got.proc[p].thread.first + t].regs.off +
					      got.thread[got.proc[p].thread.first + t].regs.len <=
				      got.n[MEM_S_BYTES]);
	}
	printf("# %u of 5000 pass\n", passed);
	CHECK(passed > 0 && passed < 5000);
	free(copy);
	CHECK(end());
}

TEST(no_changed_field_harms_the_agent_or_gives_a_process_more)
{
	unsigned restored = 0, refused = 0;
	uint8_t *copy;

	CHECK(begin());
	copy = malloc(meta_len);
	for (unsigned i = 0; i < 40; i++) {
		struct mem_image got;

		/* Those the check lets through are the ones of interest. */
		do {
			mutate(copy);
		} while (mem_check(copy, meta_len, &got, NULL) < 0);
		CHECK(rt_create(&w, &spec, &b));
		CHECK(try(copy, meta_len));
		restored += !res.why[0];
		refused += !!res.why[0];
		if (res.why[0])
			printf("# %s\n", res.why);
		CHECK(agent_lives());
		CHECK(all_confined(b.agent));
		CHECK(rt_destroy(&w, &b));
	}
	printf("# %u restored, %u refused\n", restored, refused);
	free(copy);
	CHECK(end());
}
