#include "audit/audit.h"
#include "base/base.h"
#include "audit/line.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/sys.h"
#include "base/test.h"

#include <fcntl.h>
#include <openssl/sha.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char folder[64], path[96];

static void fresh(void)
{
	log_set_level(LOG_LEVEL_ERROR); /* it warns of what is cut */
	snprintf(folder, sizeof(folder), "/tmp/cloche-audit-XXXXXX");
	if (!mkdtemp(folder))
		abort();
	snprintf(path, sizeof(path), "%s/audit.log", folder);
}

static void gone(void)
{
	unlink(path);
	rmdir(folder);
}

static struct audit *opened(void)
{
	struct audit *a = NULL;
	struct err e;

	if (audit_open(path, &a, &e) < 0) {
		printf("# %s\n", e.msg);
		abort();
	}
	return a;
}

static void add(struct audit *a, const char *kind, const char *sandbox, uint64_t n)
{
	struct json *j = audit_begin(a, &(struct audit_rec){ .kind = kind, .tenant = "default", .sandbox = sandbox });

	jout_u64(j, "n", n);
	audit_end(a, NULL);
}

/* A log of @n records; its bytes, to be freed. */
static char *made(uint64_t n, size_t *ret_len)
{
	AUTO_CLOSE int fd = -1;
	struct stat st;
	char *p;

	{
		AUTO(audit_close) struct audit *a = opened();

		for (uint64_t i = 1; i <= n; i++)
			add(a, i % 2 ? "exec.start" : "exec.end", i % 3 ? "s1" : "s\"2", i);
	}
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0 || !(p = malloc((size_t)st.st_size + 1)) ||
	    read(fd, p, (size_t)st.st_size) != st.st_size)
		abort();
	p[st.st_size] = '\0';
	*ret_len = (size_t)st.st_size;
	return p;
}

static void put(const char *data, size_t len)
{
	AUTO_CLOSE int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (fd < 0 || write(fd, data, len) != (ssize_t)len)
		abort();
}

static bool same(const char *data, size_t len)
{
	AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
	AUTO_FREE char *got = malloc(len + 1);

	return read(fd, got, len + 1) == (ssize_t)len && !memcmp(got, data, len);
}

/* Where record @n (from 1) begins. */
static size_t start_of(const char *log, unsigned n)
{
	const char *p = log;

	while (--n)
		p = strchr(p, '\n') + 1;
	return (size_t)(p - log);
}

TEST(a_record_is_json_with_its_fields_and_the_hash_that_the_contract_names)
{
	AUTO_FREE char *text = NULL;
	struct audit_head head;
	unsigned char raw[32];
	char hex[65], end[128], *mark;
	struct stat st;

	fresh();
	{
		AUTO(audit_close) struct audit *a = opened();
		struct json *j = audit_begin(a, &(struct audit_rec){ .kind = "sandbox.create",
								     .tenant = "t",
								     .token = "k",
								     .request_id = "r\n\"",
								     .sandbox = "s",
								     .exec = "x" });

		jout_array(j, "cmd");
		jout_str(j, NULL, "\xff\x1b");
		jout_end(j);
		audit_end(a, &head);
		CHECK_EQ(head.seq, 1);
		CHECK_EQ(audit_head(a)->seq, 1);
		CHECK_STR(audit_head(a)->hash, head.hash);
	}
	CHECK_EQ(stat(path, &st), 0);
	CHECK_EQ(st.st_mode & 0777, 0600);
	{
		AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);

		text = calloc(1, (size_t)st.st_size + 1);
		CHECK_EQ(read(fd, text, (size_t)st.st_size), st.st_size);
	}
	CHECK_EQ(text[st.st_size - 1], '\n');
	/* Field by field, in this order; strict readers are asked by the API's tests. */
	CHECK_EQ(strncmp(text, "{\"seq\":1,\"time\":\"2", 18), 0);
	CHECK_CONTAINS(text, "Z\",\"mono_ns\":");
	CHECK_CONTAINS(text,
		       ",\"kind\":\"sandbox.create\",\"tenant\":\"t\",\"token\":\"k\",\"request_id\":\"r\\n\\\"\","
		       "\"sandbox\":\"s\",\"exec\":\"x\",\"cmd\":[\"\xef\xbf\xbd\\u001b\"],\"prev\":\"00000000");
	snprintf(end, sizeof(end), "00000000\",\"hash\":\"%s\"}\n", head.hash);
	CHECK_STR(text + st.st_size - strlen(end), end);
	mark = strstr(text, ",\"hash\":\"");
	CHECK(mark);
	SHA256((unsigned char *)text, (size_t)(mark - text), raw);
	for (unsigned i = 0; i < 32; i++)
		snprintf(hex + 2 * i, 3, "%02x", raw[i]);
	CHECK_STR(hex, head.hash);
	gone();
}

TEST(records_are_written_by_flush_and_go_on_after_opening_again)
{
	struct audit_verdict v;
	struct stat st;
	struct err e;

	fresh();
	{
		AUTO(audit_close) struct audit *a = opened();

		add(a, "a", NULL, 1);
		CHECK_EQ(stat(path, &st), 0);
		CHECK_EQ(st.st_size, 0);
		CHECK_EQ(audit_flush(a, &e), 0);
		CHECK_EQ(stat(path, &st), 0);
		CHECK(st.st_size > 0);
		CHECK_EQ(audit_verify(path, &v, &e), 0); /* while it is open */
	}
	{
		AUTO(audit_close) struct audit *a = opened();

		CHECK_EQ(audit_head(a)->seq, 1);
		add(a, "b", NULL, 2);
	}
	CHECK_EQ(audit_verify(path, &v, &e), 0);
	CHECK_EQ(v.records, 2);
	CHECK_EQ(v.head.seq, 2);
	CHECK_EQ(v.torn, 0);
	gone();
}

TEST(a_record_that_does_not_fit_is_cut_and_says_so)
{
	AUTO_FREE char *big = malloc(70000), *log = NULL;
	struct audit_verdict v;
	struct json *j;
	struct err e;
	size_t len;

	memset(big, 'x', 69999);
	big[69999] = '\0';
	fresh();
	{
		AUTO(audit_close) struct audit *a = opened();

		j = audit_begin(a, &(struct audit_rec){ .kind = "k", .sandbox = "s1" });
		jout_object(j, "deep");
		jout_str(j, "field", big);
		jout_end(j);
		jout_str(j, "after", "y");
		audit_end(a, NULL);
		/* Common fields of any size. */
		j = audit_begin(a, &(struct audit_rec){ .kind = "k", .tenant = big, .token = big, .request_id = big });
		jout_str(j, "own", "z");
		audit_end(a, NULL);
		/* Just what fits. */
		big[65000] = '\0';
		j = audit_begin(a, &(struct audit_rec){ .kind = "k" });
		jout_str(j, "field", big);
		audit_end(a, NULL);
		big[65000] = 'x';
		CHECK_EQ(audit_flush(a, &e), 0);
	}
	CHECK_EQ(audit_verify(path, &v, &e), 0);
	CHECK_EQ(v.records, 3);
	log = made(0, &len);
	CHECK_CONTAINS(log, "\"sandbox\":\"s1\",\"cut\":true,\"prev\"");
	CHECK_CONTAINS(log, "\"own\":\"z\"");
	CHECK(len > 65000 && len < 70000);
	gone();
}

TEST(many_records_without_a_flush_do_not_fill_memory)
{
	struct audit_verdict v;
	struct stat st;
	struct err e;

	fresh();
	{
		AUTO(audit_close) struct audit *a = opened();

		for (unsigned i = 0; i < 20000; i++)
			add(a, "k", NULL, i);
		CHECK_EQ(stat(path, &st), 0);
		CHECK(st.st_size > (off_t)(3 * MIB));
	}
	CHECK_EQ(audit_verify(path, &v, &e), 0);
	CHECK_EQ(v.records, 20000);
	gone();
}

static unsigned cuts(const char *log)
{
	unsigned n = 0;

	for (const char *p = log; (p = strstr(p, "\"kind\":\"audit.cut\"")); p++)
		n++;
	return n;
}

/* Opens a log of @n good records and a bad end: what is left has those and one that notes the cut. */
static void check_torn(const char *data, size_t len, uint64_t n, size_t torn)
{
	AUTO_FREE char *log = NULL;
	struct audit_verdict v;
	char want[64];
	struct err e;
	size_t got;

	put(data, len);
	CHECK_EQ(audit_verify(path, &v, &e), -EBADMSG);
	CHECK_EQ(v.records, n);
	CHECK_EQ(v.torn, torn);
	log = made(0, &got);
	CHECK_EQ(cuts(log), 1);
	snprintf(want, sizeof(want), "\"kind\":\"audit.cut\",\"bytes\":%zu,", torn);
	CHECK_CONTAINS(log, want);
	CHECK_EQ(audit_verify(path, &v, &e), 0);
	CHECK_EQ(v.records, n + 1);
}

TEST(a_torn_end_is_cut_at_every_length_and_noted)
{
	AUTO_FREE char *log = NULL;
	size_t len, third;

	fresh();
	log = made(3, &len);
	third = start_of(log, 3);
	for (size_t n = third + 1; n < len; n++)
		check_torn(log, n, 2, n - third);
	gone();
}

/* A full disk, from this process's point of view. */
TEST(a_torn_end_that_can_not_be_noted_stays_and_nothing_else_is_touched)
{
	AUTO_FREE char *log = NULL, *after = NULL;
	struct rlimit was, less;
	struct audit *a = NULL;
	struct audit_verdict v;
	struct err e = { 0 };
	size_t len, got;

	fresh();
	signal(SIGXFSZ, SIG_IGN);
	log = made(3, &len);
	log[len] = '{'; /* of a fourth */
	put(log, len + 1);
	CHECK_EQ(getrlimit(RLIMIT_FSIZE, &was), 0);
	less = (struct rlimit){ len + 20, was.rlim_max };
	CHECK_EQ(setrlimit(RLIMIT_FSIZE, &less), 0);
	CHECK_EQ(audit_open(path, &a, &e), -ENOSPC); /* 20 bytes of it are written */
	CHECK_EQ(setrlimit(RLIMIT_FSIZE, &was), 0);
	after = made(0, &got);
	CHECK(!memcmp(after, log, len));
	CHECK_EQ(cuts(after), 1);
	CHECK_EQ(audit_verify(path, &v, &e), 0);
	CHECK_EQ(v.records, 4);
	gone();
}

TEST(a_bad_last_line_and_nuls_count_as_torn)
{
	AUTO_FREE char *log = NULL, *more = NULL;
	size_t len, third;

	fresh();
	log = made(3, &len);
	third = start_of(log, 3);
	more = calloc(1, len + 3 * MIB);
	memcpy(more, log, len);
	check_torn(more, len + 5000, 3, 5000);
	check_torn(more, len + 3 * MIB, 3, 3 * MIB); /* more than is read at once */
	/* The last whole line is wrong, with and without NULs behind it. */
	more[third + 20] ^= 1;
	check_torn(more, len, 2, len - third);
	check_torn(more, len + 100, 2, len - third + 100);
	/* One line longer than any record. */
	memset(more + third, 'x', 2 * MIB);
	check_torn(more, third + 2 * MIB, 2, 2 * MIB);
	more[third + 2 * MIB - 1] = '\n';
	check_torn(more, third + 2 * MIB, 2, 2 * MIB);
	/* Nothing but a torn record. */
	check_torn(log, 10, 0, 10);
	check_torn("\n", 1, 0, 1);
	gone();
}

/* @data is refused, the message names record @n, and the file is as it was. */
static void check_refused(const char *data, size_t len, unsigned n)
{
	struct audit_verdict v;
	struct audit *a = NULL;
	struct err e;
	char want[32];

	put(data, len);
	snprintf(want, sizeof(want), "record %u ", n);
	CHECK_EQ(audit_open(path, &a, &e), -EBADMSG);
	CHECK_CONTAINS(e.msg, want);
	CHECK(e.remedy[0]);
	CHECK(same(data, len));
	CHECK_EQ(audit_verify(path, &v, &e), -EBADMSG);
	CHECK_CONTAINS(e.msg, want);
	CHECK_EQ(v.records, n - 1);
	CHECK_EQ(v.torn, 0);
}

TEST(a_flipped_bit_anywhere_before_the_last_record_is_refused)
{
	AUTO_FREE char *log = NULL;
	size_t len, second, third;

	fresh();
	log = made(4, &len);
	second = start_of(log, 2);
	third = start_of(log, 3);
	for (size_t at = 0; at < third - 1; at++) {
		for (unsigned bit = 0; bit < 8; bit += 3) {
			char was = log[at];

			log[at] = (char)(was ^ (1 << bit));
			/* A newline lost takes the next record with it; one gained does too. */
			check_refused(log, len, at < second ? 1 : 2);
			log[at] = was;
		}
	}
	gone();
}

TEST(a_record_taken_out_put_in_or_moved_is_refused)
{
	AUTO_FREE char *log = NULL, *other = NULL;
	size_t len, b, c, n;

	fresh();
	log = made(4, &len);
	b = start_of(log, 2);
	c = start_of(log, 3);
	other = malloc(2 * len);
	memcpy(other, log, b);
	memcpy(other + b, log + c, len - c);
	check_refused(other, len - (c - b), 2); /* the second is missing */
	memcpy(other, log + b, len - b);
	check_refused(other, len - b, 1); /* the first is missing */
	memcpy(other, log, c);
	memcpy(other + c, log + b, len - b);
	check_refused(other, len + c - b, 3); /* the second record is there twice */
	n = len - c;
	memcpy(other, log, c);
	other[c] = '\n';
	memcpy(other + c + 1, log + c, n);
	check_refused(other, len + 1, 3); /* an empty line */
	gone();
}

TEST(nuls_that_records_follow_are_refused)
{
	AUTO_FREE char *log = NULL, *other = NULL;
	size_t len, c;

	fresh();
	log = made(5, &len);
	c = start_of(log, 3);
	other = calloc(1, len + 4096);
	memcpy(other, log, c);
	memcpy(other + c + 4096, log + c, len - c);
	check_refused(other, len + 4096, 3);
	gone();
}

TEST(a_second_writer_is_refused)
{
	struct audit *b = NULL;
	struct err e;

	fresh();
	{
		AUTO(audit_close) struct audit *a = opened();

		add(a, "k", NULL, 1);
		CHECK_EQ(audit_open(path, &b, &e), -EBUSY);
		CHECK(e.remedy[0]);
	}
	audit_close(opened());
	gone();
}

TEST(what_is_no_file_is_refused)
{
	struct audit_verdict v;
	struct audit *a = NULL;
	struct err e;

	fresh();
	CHECK_EQ(audit_verify(path, &v, &e), -ENOENT);
	CHECK_EQ(mkfifo(path, 0600), 0);
	CHECK_EQ(audit_open(path, &a, &e), -EINVAL);
	CHECK_EQ(audit_verify(path, &v, &e), -EINVAL);
	unlink(path);
	CHECK_EQ(symlink("/etc/passwd", path), 0);
	CHECK_EQ(audit_open(path, &a, &e), -ELOOP);
	gone();
}

TEST(on_a_full_disk_records_wait_and_the_chain_has_no_hole)
{
	struct audit_verdict v;
	struct err e;

	fresh();
	{
		AUTO(audit_close) struct audit *a = opened();

		add(a, "k", NULL, 1);
		CHECK_EQ(audit_flush(a, &e), 0);
		add(a, "k", NULL, 2);
		sys_test_fail(SYSID_write, ENOSPC, 1);
		CHECK_EQ(audit_flush(a, &e), -ENOSPC);
		CHECK_EQ(e.kind, ERR_EXHAUSTED);
		add(a, "k", NULL, 3);
		CHECK_EQ(audit_verify(path, &v, &e), 0);
		CHECK_EQ(v.records, 1);
		CHECK_EQ(audit_flush(a, &e), 0);
		CHECK_EQ(audit_verify(path, &v, &e), 0);
		CHECK_EQ(v.records, 3);
	}
	gone();
}

/* The first write of a turn fits in part: nothing of it is in the file until all of it fits. */
TEST(a_part_that_fits_is_taken_back)
{
	struct rlimit was, less;
	struct audit_verdict v;
	struct stat st;
	struct err e;

	fresh();
	signal(SIGXFSZ, SIG_IGN);
	CHECK_EQ(getrlimit(RLIMIT_FSIZE, &was), 0);
	{
		AUTO(audit_close) struct audit *a = opened();

		add(a, "k", NULL, 1);
		CHECK_EQ(audit_flush(a, &e), 0);
		CHECK(audit_room(a) > MIB / 4);
		CHECK_EQ(stat(path, &st), 0);
		less = (struct rlimit){ (rlim_t)st.st_size + 20, was.rlim_max };
		CHECK_EQ(setrlimit(RLIMIT_FSIZE, &less), 0);
		sys_test_fail(SYSID_write, ENOSPC, 2); /* the first has written those 20 bytes */
		add(a, "k", NULL, 2);
		CHECK_EQ(audit_flush(a, &e), -ENOSPC);
		CHECK_EQ(setrlimit(RLIMIT_FSIZE, &was), 0);
		CHECK_EQ(audit_verify(path, &v, &e), 0);
		CHECK_EQ(v.records, 1);
		CHECK_EQ(audit_flush(a, &e), 0);
	}
	CHECK_EQ(audit_verify(path, &v, &e), 0);
	CHECK_EQ(v.records, 2);
	gone();
}

TEST(another_failed_write_sticks)
{
	struct audit_verdict v;
	struct err e;

	fresh();
	{
		AUTO(audit_close) struct audit *a = opened();

		add(a, "k", NULL, 1);
		CHECK_EQ(audit_flush(a, &e), 0);
		add(a, "k", NULL, 2);
		sys_test_fail(SYSID_write, EIO, 1);
		CHECK_EQ(audit_flush(a, &e), -EIO);
		CHECK_EQ(e.kind, ERR_INTERNAL);
		add(a, "k", NULL, 3);
		CHECK_EQ(audit_flush(a, &e), -EIO); /* though it would work again: the chain must not have a hole */
		CHECK_EQ(audit_read(a, 0, 10, NULL, NULL, NULL, NULL, &e), -EIO);
	}
	CHECK_EQ(audit_verify(path, &v, &e), 0);
	CHECK_EQ(v.records, 1);
	gone();
}

struct seen {
	uint64_t n, first, last, stop_at;
	struct audit_line l;
};

static int see(void *arg, uint64_t seq, const char *line, size_t len)
{
	struct seen *s = arg;

	if (line[len - 1] != '}' || audit_line_parse(line, len, &s->l) < 0 || s->l.seq != seq ||
	    (s->n && seq <= s->last))
		return -EBADMSG;
	if (!s->n++)
		s->first = seq;
	s->last = seq;
	return seq == s->stop_at ? 42 : 0;
}

TEST(records_are_read_from_anywhere)
{
	uint64_t last;
	struct seen s;
	struct err e;

	fresh();
	{
		AUTO(audit_close) struct audit *a = opened();

		CHECK_EQ(audit_read(a, 0, 10, NULL, see, &s, &last, &e), 0);
		CHECK_EQ(last, 0);
		for (unsigned i = 1; i <= 1500; i++)
			add(a, "k", NULL, i);
		for (uint64_t after = 0; after <= 1500; after += 37) {
			s = (struct seen){ 0 };
			CHECK_EQ(audit_read(a, after, 20, NULL, see, &s, &last, &e), 0);
			CHECK_EQ(s.first, after + 1);
			CHECK_EQ(s.n, after + 20 <= 1500 ? 20 : 1500 - after);
			CHECK_EQ(s.last, last);
		}
		add(a, "k", NULL, 1501); /* not written yet: it is read all the same */
		s = (struct seen){ 0 };
		CHECK_EQ(audit_read(a, 1500, 20, NULL, see, &s, NULL, &e), 0);
		CHECK_EQ(s.last, 1501);
		s = (struct seen){ 0 };
		CHECK_EQ(audit_read(a, 1501, 20, NULL, see, &s, &last, &e), 0);
		CHECK_EQ(audit_read(a, UINT64_MAX, 20, NULL, see, &s, &last, &e), 0);
		CHECK_EQ(audit_read(a, 0, 0, NULL, see, &s, &last, &e), 0);
		CHECK_EQ(s.n, 0);
		s = (struct seen){ .stop_at = 300 };
		CHECK_EQ(audit_read(a, 10, UINT64_MAX, NULL, see, &s, &last, &e), 42);
		CHECK_EQ(s.n, 290);
	}
	/* The index is built by opening, too. */
	{
		AUTO(audit_close) struct audit *a = opened();

		s = (struct seen){ 0 };
		CHECK_EQ(audit_read(a, 1027, 3, NULL, see, &s, &last, &e), 0);
		CHECK_EQ(s.first, 1028);
		CHECK_EQ(s.n, 3);
	}
	gone();
}

TEST(a_filter_finds_only_what_it_names)
{
	AUTO_FREE char *log = NULL;
	struct seen s = { 0 };
	uint64_t last;
	struct err e;
	size_t len;

	fresh();
	log = made(60, &len);
	{
		AUTO(audit_close) struct audit *a = opened();

		CHECK_EQ(audit_read(a, 0, 100, &(struct audit_filter){ .kind = "exec.end" }, see, &s, &last, &e), 0);
		CHECK_EQ(s.n, 30);
		CHECK_EQ(last, 60);
		s = (struct seen){ 0 };
		CHECK_EQ(audit_read(a, 0, 100, &(struct audit_filter){ .sandbox = "s\"2" }, see, &s, &last, &e), 0);
		CHECK_EQ(s.n, 20);
		s = (struct seen){ 0 };
		CHECK_EQ(audit_read(a, 0, 100,
				    &(struct audit_filter){ .sandbox = "s1", .kind = "exec.end", .tenant = "default" },
				    see, &s, &last, &e),
			 0);
		CHECK_EQ(s.n, 20);
		s = (struct seen){ 0 };
		CHECK_EQ(audit_read(a, 0, 100, &(struct audit_filter){ .tenant = "defaul" }, see, &s, &last, &e), 0);
		CHECK_EQ(s.n, 0);
		CHECK_EQ(last, 60);
	}
	gone();
}

TEST(one_reading_looks_at_no_more_than_it_may)
{
	uint64_t last = 0, head;
	unsigned calls = 0;
	struct seen s = { 0 };
	struct err e;

	fresh();
	{
		AUTO(audit_close) struct audit *a = opened();

		for (unsigned i = 0; i < 100000; i++)
			add(a, i == 99990 ? "rare" : "k", NULL, i);
		head = audit_head(a)->seq;
		while (last < head) {
			uint64_t was = last;

			calls++;
			CHECK_EQ(audit_read(a, last, 10, &(struct audit_filter){ .kind = "rare" }, see, &s, &last, &e),
				 0);
			CHECK(last > was);
		}
		CHECK_EQ(s.n, 1);
		CHECK_EQ(s.last, 99991);
		CHECK(calls > 2);
	}
	gone();
}

/*
 * Adds records for ever, and writes the number of each to @out when it is in the log. Two at a time, so that a write
 * may tear.
 */
static _Noreturn void writer(int out)
{
	struct audit *a = opened();
	struct err e;

	for (;;) {
		uint64_t seq;

		add(a, "k", "s1", 1);
		add(a, "k", "s2", 2);
		if (audit_flush(a, &e) < 0)
			_exit(1);
		seq = audit_head(a)->seq;
		if (write(out, &seq, sizeof(seq)) != sizeof(seq))
			_exit(1);
	}
}

TEST(after_kill_9_everything_that_was_told_is_there)
{
	struct audit_verdict v;
	uint64_t told = 0;
	struct err e;
	int r;

	fresh();
	for (unsigned i = 0; i < 25; i++) {
		uint64_t end = clock_mono_ns() + (5 + i * 2) * 1000000ULL, got[64];
		int p[2], status;
		pid_t pid;

		CHECK_EQ(pipe2(p, O_CLOEXEC), 0);
		pid = fork();
		if (pid == 0) {
			close(p[0]);
			writer(p[1]);
		}
		close(p[1]);
		/* At least one, however slow the machine is. */
		for (bool any = false; !any || clock_mono_ns() < end; any = true) {
			ssize_t n = read(p[0], got, sizeof(got));

			if (n <= 0)
				break;
			told = got[(size_t)n / 8 - 1];
		}
		kill(pid, SIGKILL);
		for (ssize_t n; (n = read(p[0], got, sizeof(got))) > 0;)
			told = got[(size_t)n / 8 - 1];
		close(p[0]);
		waitpid(pid, &status, 0);
		CHECK(WIFSIGNALED(status));
		r = audit_verify(path, &v, &e);
		if (r < 0 && !v.torn)
			TEST_FAIL("%s", e.msg);
		CHECK(v.records >= told && v.records <= told + 2);
		/* The next writer continues at the end, over a torn record if there is one. */
	}
	printf("# %llu records through 25 kills\n", (unsigned long long)told);
	audit_close(opened());
	CHECK_EQ(audit_verify(path, &v, &e), 0);
	CHECK(told > 100);
	gone();
}

/* Of this process alone: others run on the machine. */
static uint64_t cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

TEST(figures_per_record)
{
	uint64_t start, each, scan;
	struct audit_verdict v;
	struct stat st;
	struct err e;

	fresh();
	{
		AUTO(audit_close) struct audit *a = opened();

		start = cpu_ns();
		for (unsigned i = 0; i < 5000; i++) {
			struct json *j = audit_begin(a, &(struct audit_rec){ .kind = "exec.start",
									     .tenant = "default",
									     .token = "0000abcdefghjkmnpqrstvwx",
									     .request_id = "0000abcdefghjkmnpqrstvwy",
									     .sandbox = "0000abcdefghjkmnpqrstvwz",
									     .exec = "0000abcdefghjkmnpqrstvw0" });

			jout_array(j, "cmd");
			jout_str(j, NULL, "/bin/sh");
			jout_str(j, NULL, "-c");
			jout_str(j, NULL, "echo hello world");
			jout_end(j);
			jout_str(j, "user", "user");
			audit_end(a, NULL);
			if (i % 8 == 7)
				CHECK_EQ(audit_flush(a, &e), 0);
		}
		each = (cpu_ns() - start) / 5000;
	}
	CHECK_EQ(stat(path, &st), 0);
	start = cpu_ns();
	CHECK_EQ(audit_verify(path, &v, &e), 0);
	scan = cpu_ns() - start;
	printf("# %.2f us of CPU per record of %llu bytes, one write for eight; checked at %.0f MB/s\n",
	       (double)each / 1e3, (unsigned long long)(st.st_size / 5000), (double)st.st_size * 1e3 / (double)scan);
	gone();
}
