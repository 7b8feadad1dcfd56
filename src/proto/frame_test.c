#include "proto/frame.h"
#include "base/base.h"
#include "base/test.h"

static uint8_t bytes[FRAME_HEAD + FRAME_PAYLOAD_MAX + 64];
#define PAYLOAD (bytes + FRAME_HEAD)
#define ROOM (sizeof(bytes) - FRAME_HEAD)

static const char *const argv[] = { "python3", "-c", "print('hallo')", "" };
static const char *const envp[] = { "PATH=/bin", "A=" };
static const struct frame_exec an_exec = {
	.flags = FRAME_EXEC_FILTER,
	.uid = 1000,
	.gid = 100,
	.rows = 24,
	.cols = 80,
	.nofile = 1024,
	.cpu_seconds = 7,
	.cwd = "/home/user",
	.argc = 4,
	.envc = 2,
	.argv = argv,
	.envp = envp,
};
static const struct frame_setup a_setup = {
	.hostname = "sandbox",
	.workdir = "/work",
	.uid = 1,
	.gid = 2,
	.flags = FRAME_SETUP_READ_ONLY,
	.cpu_mask = 0xff00000000000001ULL,
	.mounts.n = 3,
	.mounts.mount = { { FRAME_MOUNT_DIR, "/" }, { FRAME_MOUNT_FILE, "/etc/x" }, { FRAME_MOUNT_PARK, "" } },
};

/* Puts a head before the @len bytes in PAYLOAD and decodes the whole. */
static struct frame framed(enum frame_type type, uint8_t nfds, long len)
{
	struct frame f = { 0 };

	frame_head(bytes, type, nfds, 77, (uint32_t)len);
	if (frame_decode(bytes, FRAME_HEAD + (size_t)len, &f) != FRAME_HEAD + len)
		f.type = 0;
	return f;
}

TEST(a_head_comes_back)
{
	struct frame f;

	frame_head(bytes, FRAME_EXEC, 4, 0xdeadbeef, 5);
	CHECK_EQ(frame_decode(bytes, FRAME_HEAD + 5, &f), FRAME_HEAD + 5);
	CHECK_EQ(f.type, FRAME_EXEC);
	CHECK_EQ(f.nfds, 4);
	CHECK_EQ(f.id, 0xdeadbeef);
	CHECK_EQ(f.len, 5);
	CHECK(f.payload == PAYLOAD);
}

TEST(bytes_after_a_frame_are_the_next_one)
{
	struct frame f;

	frame_head(bytes, FRAME_PING, 0, 1, 0);
	frame_head(bytes + FRAME_HEAD, FRAME_PONG, 0, 2, 0);
	CHECK_EQ(frame_decode(bytes, 2UL * FRAME_HEAD, &f), FRAME_HEAD);
	CHECK_EQ(f.id, 1);
}

TEST(what_can_never_be_a_frame_is_refused_at_once)
{
	static const struct {
		const char *what;
		unsigned at;
		uint8_t value;
	} cases[] = {
		{ "version 0", 0, 0 },
		{ "version 2", 0, 2 },
		{ "type 0", 1, 0 },
		{ "type 15", 1, 15 },
		{ "type 26", 1, 26 },
		{ "type 255", 1, 255 },
		{ "145 descriptors", 2, FRAME_FDS_MAX + 1 },
		{ "reserved", 3, 1 },
		{ "length 16M", 11, 1 },
		{ "length 2^31", 11, 0x80 },
	};
	struct frame f;

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		frame_head(bytes, FRAME_PING, 0, 1, 0);
		bytes[cases[i].at] = cases[i].value;
		if (frame_decode(bytes, FRAME_HEAD, &f) != -EBADMSG)
			TEST_FAIL("%s: taken", cases[i].what);
	}
	frame_head(bytes, FRAME_PING, 0, 1, FRAME_PAYLOAD_MAX + 1);
	CHECK_EQ(frame_decode(bytes, FRAME_HEAD, &f), -EBADMSG);
	frame_head(bytes, FRAME_PING, 0, 1, FRAME_PAYLOAD_MAX);
	CHECK_EQ(frame_decode(bytes, FRAME_HEAD, &f), 0);
	bytes[0] = 2;
	CHECK_EQ(frame_decode(bytes, 1, &f), -EBADMSG);
}

TEST(every_prefix_of_a_frame_needs_more)
{
	struct frame f;
	long n = frame_exec_encode(&an_exec, PAYLOAD, ROOM);

	CHECK(n > 0);
	frame_head(bytes, FRAME_EXEC, 4, 1, (uint32_t)n);
	for (size_t len = 0; len < FRAME_HEAD + (size_t)n; len++)
		CHECK_EQ(frame_decode(bytes, len, &f), 0);
}

TEST(a_setup_comes_back)
{
	struct frame_setup s;
	struct frame f = framed(FRAME_SETUP, 3, frame_setup_encode(&a_setup, PAYLOAD, ROOM));

	CHECK_EQ(f.type, FRAME_SETUP);
	CHECK_EQ(frame_setup_decode(&f, &s), 0);
	CHECK_STR(s.hostname, "sandbox");
	CHECK_STR(s.workdir, "/work");
	CHECK(s.uid == 1 && s.gid == 2 && s.flags == FRAME_SETUP_READ_ONLY && s.cpu_mask == a_setup.cpu_mask);
	CHECK_EQ(s.mounts.n, 3);
	for (unsigned i = 0; i < 3; i++) {
		CHECK_EQ(s.mounts.mount[i].kind, a_setup.mounts.mount[i].kind);
		CHECK_STR(s.mounts.mount[i].target, a_setup.mounts.mount[i].target);
	}
}

TEST(an_exec_comes_back)
{
	struct frame_exec x;
	char *args[5], *env[3];
	struct frame f = framed(FRAME_EXEC, 4, frame_exec_encode(&an_exec, PAYLOAD, ROOM));

	CHECK_EQ(frame_exec_decode(&f, &x), 0);
	CHECK(x.flags == an_exec.flags && x.uid == 1000 && x.gid == 100 && x.rows == 24 && x.cols == 80);
	CHECK(x.nofile == 1024 && x.cpu_seconds == 7 && x.argc == 4 && x.envc == 2);
	CHECK_STR(x.cwd, "/home/user");
	frame_exec_strings(&x, args, env);
	for (unsigned i = 0; i < 4; i++)
		CHECK_STR(args[i], argv[i]);
	for (unsigned i = 0; i < 2; i++)
		CHECK_STR(env[i], envp[i]);
	CHECK(!args[4] && !env[2]);
}

TEST(answers_come_back)
{
	const struct frame_exited in = { .status = -3, .cpu_usec = 1ULL << 40, .maxrss = 9, .oom_kills = 2 };
	const struct frame_failed fin = { .stage = FRAME_STAGE_EXECVE, .errnum = ENOENT, .which = 3 };
	struct frame_exited x;
	struct frame_failed y;
	struct frame f = framed(FRAME_EXITED, 0, frame_exited_encode(&in, PAYLOAD, ROOM));

	CHECK_EQ(frame_exited_decode(&f, &x), 0);
	CHECK(x.status == -3 && x.cpu_usec == in.cpu_usec && x.maxrss == 9 && x.oom_kills == 2);
	f = framed(FRAME_FAILED, 0, frame_failed_encode(&fin, PAYLOAD, ROOM));
	CHECK_EQ(frame_failed_decode(&f, &y), 0);
	CHECK(y.stage == fin.stage && y.errnum == ENOENT && y.which == 3);
}

static int decode(const struct frame *f)
{
	union {
		struct frame_setup s;
		struct frame_exec x;
		struct frame_exited e;
		struct frame_failed d;
		struct frame_held h;
		struct frame_files w;
	} u;

	switch (f->type) {
	case FRAME_SETUP:
		return frame_setup_decode(f, &u.s);
	case FRAME_EXEC:
		return frame_exec_decode(f, &u.x);
	case FRAME_EXITED:
		return frame_exited_decode(f, &u.e);
	case FRAME_HELD:
		return frame_held_decode(f, &u.h);
	case FRAME_FILES:
		return frame_files_decode(f, &u.w);
	default:
		return frame_failed_decode(f, &u.d);
	}
}

static long encode(enum frame_type type, uint8_t *out, size_t size, uint8_t *nfds)
{
	*nfds = type == FRAME_SETUP ? 3 : type == FRAME_EXEC ? 4 : type == FRAME_FILES ? 1 : type == FRAME_HELD ? 3 : 0;
	if (type == FRAME_SETUP)
		return frame_setup_encode(&a_setup, out, size);
	if (type == FRAME_EXEC)
		return frame_exec_encode(&an_exec, out, size);
	if (type == FRAME_EXITED)
		return frame_exited_encode(&(struct frame_exited){ 1, 2, 3, 0 }, out, size);
	if (type == FRAME_HELD)
		return frame_held_encode(&(struct frame_held){ FRAME_HELD_STDIN, { 1, 2, 3, 0 } }, out, size);
	if (type == FRAME_FILES)
		return frame_files_encode(&(struct frame_files){ 1, 2, "/w" }, out, size);
	return frame_failed_encode(&(struct frame_failed){ 1, 2, 3, NULL }, out, size);
}

/* Those with descriptors first. */
static const enum frame_type with_payload[] = { FRAME_SETUP, FRAME_EXEC,   FRAME_FILES,
						FRAME_HELD,  FRAME_EXITED, FRAME_FAILED };

TEST(a_payload_cut_anywhere_or_longer_is_bad)
{
	for (size_t i = 0; i < ARRAY_LEN(with_payload); i++) {
		uint8_t nfds;
		long n = encode(with_payload[i], PAYLOAD, ROOM, &nfds);
		struct frame f;

		for (long len = 0; len <= n + 1; len++) {
			f = framed(with_payload[i], nfds, len);
			CHECK_EQ(decode(&f), len == n ? 0 : -EBADMSG);
		}
	}
}

TEST(the_wrong_number_of_descriptors_is_bad)
{
	for (size_t i = 0; i < 4; i++) {
		uint8_t want;
		long n = encode(with_payload[i], PAYLOAD, ROOM, &want);

		for (uint8_t nfds = 0; nfds <= FRAME_FDS_MAX; nfds++) {
			struct frame f = framed(with_payload[i], nfds, n);

			CHECK_EQ(decode(&f), nfds == want ? 0 : -EBADMSG);
		}
	}
}

TEST(an_encoder_says_when_there_is_no_room)
{
	for (size_t i = 0; i < ARRAY_LEN(with_payload); i++) {
		uint8_t nfds;
		long n = encode(with_payload[i], PAYLOAD, ROOM, &nfds);

		for (long size = 0; size < n; size++)
			CHECK_EQ(encode(with_payload[i], PAYLOAD, (size_t)size, &nfds), -EMSGSIZE);
	}
	CHECK_EQ(frame_setup_encode(
			 &(struct frame_setup){ .hostname = "", .workdir = "", .mounts.n = FRAME_MOUNTS_MAX + 1 },
			 PAYLOAD, ROOM),
		 -EMSGSIZE);
}

/* Decodes an exec that differs from a good one. */
TEST(a_setup_with_a_flag_nobody_knows_is_bad)
{
	struct frame_setup s = a_setup;
	struct frame f;

	s.flags = FRAME_SETUP_FLAGS;
	f = framed(FRAME_SETUP, (uint8_t)s.mounts.n, frame_setup_encode(&s, PAYLOAD, ROOM));
	CHECK_EQ(frame_setup_decode(&f, &s), 0);
	s = a_setup;
	s.flags |= FRAME_SETUP_FLAGS + 1;
	f = framed(FRAME_SETUP, (uint8_t)s.mounts.n, frame_setup_encode(&s, PAYLOAD, ROOM));
	CHECK_EQ(frame_setup_decode(&f, &s), -EBADMSG);
}

static int exec_of(struct frame_exec x, uint8_t nfds)
{
	struct frame f = framed(FRAME_EXEC, nfds, frame_exec_encode(&x, PAYLOAD, ROOM));

	return frame_exec_decode(&f, &x);
}

TEST(an_exec_outside_the_rules_is_bad)
{
	struct frame_exec x = an_exec;

	x.flags = 512;
	CHECK_EQ(exec_of(x, 3), -EBADMSG);
	x.user = "name";
	x.flags = FRAME_EXEC_WARM | FRAME_EXEC_USER;
	CHECK_EQ(exec_of(x, 3), -EBADMSG);
	x.flags = FRAME_EXEC_WARM | FRAME_EXEC_FILTER;
	CHECK_EQ(exec_of(x, 4), -EBADMSG);
	x.flags = FRAME_EXEC_WARM | FRAME_EXEC_WARM_HOST | FRAME_EXEC_KEEP;
	CHECK_EQ(exec_of(x, 5), -EBADMSG);
	x.flags = FRAME_EXEC_WARM_HOST; /* also without KEEP */
	CHECK_EQ(exec_of(x, 3), 0);
	x.flags = FRAME_EXEC_WARM;
	CHECK_EQ(exec_of(x, 3), 0);
	x.flags = FRAME_EXEC_USER;
	CHECK_EQ(exec_of(x, 3), 0);
	x.flags = FRAME_EXEC_WARM;
	x.argc = 1;
	CHECK_EQ(exec_of(x, 3), -EBADMSG);
	x = an_exec;
	x.uid = AGENT_UID;
	CHECK_EQ(exec_of(x, 4), -EBADMSG);
	x = an_exec;
	x.gid = AGENT_UID;
	CHECK_EQ(exec_of(x, 4), -EBADMSG);
	x = an_exec;
	x.argc = 0;
	CHECK_EQ(exec_of(x, 4), -EBADMSG);
	x = an_exec;
	x.flags = FRAME_EXEC_TTY;
	CHECK_EQ(exec_of(x, 0), 0);
	CHECK_EQ(exec_of(x, 3), -EBADMSG);
	x.flags |= FRAME_EXEC_FILTER;
	CHECK_EQ(exec_of(x, 1), 0);
}

TEST(what_is_kept_decides_how_many_descriptors_come)
{
	static const struct {
		uint32_t flags;
		int n; /* -1: may not be */
	} cases[] = {
		{ FRAME_EXEC_KEEP, 5 },
		{ FRAME_EXEC_KEEP | FRAME_EXEC_STDIN, 6 },
		{ FRAME_EXEC_KEEP | FRAME_EXEC_STDIN | FRAME_EXEC_GROUP, 7 },
		{ FRAME_EXEC_KEEP | FRAME_EXEC_STDIN | FRAME_EXEC_GROUP | FRAME_EXEC_FILTER, 8 },
		{ FRAME_EXEC_GROUP, 4 },
		{ FRAME_EXEC_TTY | FRAME_EXEC_KEEP, 0 },
		{ FRAME_EXEC_TTY | FRAME_EXEC_KEEP | FRAME_EXEC_GROUP, 1 },
		{ FRAME_EXEC_STDIN, -1 },
		{ FRAME_EXEC_TTY | FRAME_EXEC_KEEP | FRAME_EXEC_STDIN, -1 },
	};
	struct frame_exec_fds at = frame_exec_fds(31 & ~FRAME_EXEC_TTY);

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct frame_exec x = an_exec;

		x.flags = cases[i].flags;
		for (uint8_t n = 0; n < 12; n++)
			CHECK_EQ(exec_of(x, n), n == cases[i].n ? 0 : -EBADMSG);
	}
	CHECK(at.stdio == 0 && at.filter == 3 && at.group == 4 && at.out == 5 && at.err == 6 && at.in == 7 &&
	      at.n == 8);
	at = frame_exec_fds(FRAME_EXEC_TTY | FRAME_EXEC_KEEP | FRAME_EXEC_GROUP);
	CHECK(at.stdio == -1 && at.filter == -1 && at.group == 0 && at.out == -1 && at.err == -1 && at.in == -1 &&
	      at.n == 1);
}

TEST(what_is_held_comes_with_its_descriptors)
{
	static const struct {
		uint32_t flags;
		int n;
	} cases[] = {
		{ 0, 2 },
		{ FRAME_HELD_ENDED, 2 },
		{ FRAME_HELD_STDIN, 3 },
		{ FRAME_HELD_TTY | FRAME_HELD_ENDED, 1 },
		{ FRAME_HELD_TTY | FRAME_HELD_STDIN, -1 },
		{ 8, -1 },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		for (uint8_t n = 0; n < 5; n++) {
			const struct frame_held in = { cases[i].flags, { -9, 1ULL << 40, 7, 0 } };
			struct frame f = framed(FRAME_HELD, n, frame_held_encode(&in, PAYLOAD, ROOM));
			struct frame_held x;

			CHECK_EQ(frame_held_decode(&f, &x), n == cases[i].n ? 0 : -EBADMSG);
			if (n == cases[i].n)
				CHECK(x.flags == in.flags && x.exited.status == -9 && x.exited.cpu_usec == 1ULL << 40 &&
				      x.exited.maxrss == 7);
		}
}

TEST(a_file_worker_is_never_the_agent)
{
	struct frame_files x = { 1000, 1001, "/work" };
	struct frame f = framed(FRAME_FILES, 1, frame_files_encode(&x, PAYLOAD, ROOM));

	CHECK_EQ(frame_files_decode(&f, &x), 0);
	CHECK(x.uid == 1000 && x.gid == 1001);
	CHECK_STR(x.cwd, "/work");
	x.uid = AGENT_UID;
	f = framed(FRAME_FILES, 1, frame_files_encode(&x, PAYLOAD, ROOM));
	CHECK_EQ(frame_files_decode(&f, &x), -EBADMSG);
	x.uid = 0;
	x.gid = AGENT_UID;
	f = framed(FRAME_FILES, 1, frame_files_encode(&x, PAYLOAD, ROOM));
	CHECK_EQ(frame_files_decode(&f, &x), -EBADMSG);
}

static void put_u32(size_t at, uint32_t v)
{
	for (unsigned i = 0; i < 4; i++)
		PAYLOAD[at + i] = (uint8_t)(v >> (8 * i));
}

TEST(counts_that_promise_more_than_there_is_are_bad)
{
	static const uint32_t counts[] = { 3, 5, FRAME_STRINGS_MAX, FRAME_STRINGS_MAX + 1, 0x80000000, UINT32_MAX };
	const size_t argc_at = 36 + 4 + strlen("/home/user") + 1, envc_at = argc_at + 4;
	long n = frame_exec_encode(&an_exec, PAYLOAD, ROOM);
	struct frame_setup s;
	struct frame_exec x;
	struct frame f;

	for (size_t i = 0; i < ARRAY_LEN(counts); i++) {
		frame_exec_encode(&an_exec, PAYLOAD, ROOM);
		put_u32(argc_at, counts[i]);
		f = framed(FRAME_EXEC, 4, n);
		CHECK_EQ(frame_exec_decode(&f, &x), -EBADMSG);
		frame_exec_encode(&an_exec, PAYLOAD, ROOM);
		put_u32(envc_at, counts[i]);
		f = framed(FRAME_EXEC, 4, n);
		CHECK_EQ(frame_exec_decode(&f, &x), -EBADMSG);
	}
	/* Two counts that wrap around together. */
	frame_exec_encode(&an_exec, PAYLOAD, ROOM);
	put_u32(argc_at, 0x80000003);
	put_u32(envc_at, 0x80000003);
	f = framed(FRAME_EXEC, 4, n);
	CHECK_EQ(frame_exec_decode(&f, &x), -EBADMSG);
	/* And a setup without a root, or with more mounts than descriptors. */
	for (uint32_t k = 0; k <= 4; k++) {
		const size_t at = 4 + 8 + 4 + 6 + 12 + 8;

		n = frame_setup_encode(&a_setup, PAYLOAD, ROOM);
		put_u32(at, k);
		f = framed(FRAME_SETUP, (uint8_t)k, n);
		CHECK_EQ(frame_setup_decode(&f, &s), k == 3 ? 0 : -EBADMSG);
	}
}

TEST(a_mount_of_unknown_kind_is_bad)
{
	struct frame_setup s = a_setup, back;
	struct frame f;

	s.mounts.mount[1].kind = FRAME_MOUNT_PARK + 1;
	f = framed(FRAME_SETUP, 3, frame_setup_encode(&s, PAYLOAD, ROOM));
	CHECK_EQ(frame_setup_decode(&f, &back), -EBADMSG);
}

TEST(a_failure_that_cannot_be_is_bad)
{
	struct frame_failed x;
	struct frame f =
		framed(FRAME_FAILED, 0,
		       frame_failed_encode(&(struct frame_failed){ FRAME_STAGE_COUNT, 1, 0, NULL }, PAYLOAD, ROOM));

	CHECK_EQ(frame_failed_decode(&f, &x), -EBADMSG);
	f = framed(FRAME_FAILED, 0, frame_failed_encode(&(struct frame_failed){ 1, 4096, 0, NULL }, PAYLOAD, ROOM));
	CHECK_EQ(frame_failed_decode(&f, &x), -EBADMSG);
}

/* The transport of a VM: no packets, whatever arrives is added at the end. */
TEST(a_stream_fed_byte_by_byte_gives_the_same_frames)
{
	static const enum frame_type types[] = { FRAME_PING, FRAME_EXEC, FRAME_SETUP, FRAME_EXITED, FRAME_PING };
	static uint8_t stream[4096], inbox[4096];
	size_t total = 0, have = 0, seen = 0;

	for (size_t i = 0; i < ARRAY_LEN(types); i++) {
		uint8_t nfds = 0;
		long n = types[i] == FRAME_PING ? 0 : encode(types[i], stream + total + FRAME_HEAD, 1024, &nfds);

		frame_head(stream + total, types[i], nfds, (uint32_t)i + 1, (uint32_t)n);
		total += FRAME_HEAD + (size_t)n;
	}
	for (size_t at = 0; at < total; at++) {
		struct frame f;
		long n;

		inbox[have++] = stream[at];
		n = frame_decode(inbox, have, &f);
		CHECK(n >= 0);
		if (!n)
			continue;
		CHECK_EQ(n, have); /* never a byte late */
		CHECK_EQ(f.type, types[seen]);
		CHECK_EQ(f.id, ++seen);
		CHECK(f.type == FRAME_PING || decode(&f) == 0);
		have = 0;
	}
	CHECK_EQ(seen, ARRAY_LEN(types));
	CHECK_EQ(have, 0);
}

TEST(a_restore_comes_back)
{
	static const struct frame_restore want = { FRAME_RESTORE_FILTER, 3, 2, 1024, 9, { 0x1122334455667788, 7 } };
	struct frame_restore x = { 0 };
	struct frame f = framed(FRAME_RESTORE, 7, frame_restore_encode(&want, PAYLOAD, ROOM));
	struct frame_restore_fds at;

	CHECK_EQ(frame_restore_decode(&f, &x), 0);
	CHECK(x.flags == want.flags && x.pages == want.pages && x.groups == want.groups && x.nofile == want.nofile);
	CHECK(x.cpu_seconds == want.cpu_seconds && !memcmp(x.generation, want.generation, sizeof(x.generation)));
	at = frame_restore_fds(&x);
	CHECK_EQ(at.pages, 1);
	CHECK_EQ(at.filter, 4);
	CHECK_EQ(at.groups, 5);
	CHECK_EQ(at.n, 7);
	f.nfds = 6;
	CHECK_EQ(frame_restore_decode(&f, &x), -EBADMSG);
}

TEST(a_restore_beyond_its_limits_is_refused)
{
	static const struct frame_restore wrong[] = {
		{ .flags = 2, .pages = 1 },
		{ .pages = 0 },
		{ .pages = FRAME_RESTORE_PAGES_MAX + 1 },
		{ .pages = 1, .groups = FRAME_RESTORE_GROUPS_MAX + 1 },
		{ .pages = 1, .groups = UINT32_MAX },
	};

	for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
		struct frame_restore x;
		struct frame f = framed(FRAME_RESTORE, 1, frame_restore_encode(&wrong[i], PAYLOAD, ROOM));

		for (unsigned n = 0; n <= FRAME_FDS_MAX; n++) {
			f.nfds = (uint8_t)n;
			CHECK_EQ(frame_restore_decode(&f, &x), -EBADMSG);
		}
	}
}

TEST(what_was_restored_and_why_not_come_back)
{
	static const struct frame_restored want = { 3, 17, FRAME_RESTORED_MACHINE_ID, 2100 };
	struct frame_failed why = { .stage = FRAME_STAGE_RESTORE, .errnum = EBADMSG, .text = "process 7: no" }, y;
	struct frame_restored x = { 0 };
	struct frame f = framed(FRAME_RESTORED, 0, frame_restored_encode(&want, PAYLOAD, ROOM));
	char longer[FRAME_FAILED_TEXT_MAX + 2];

	CHECK_EQ(frame_restored_decode(&f, &x), 0);
	CHECK(!memcmp(&x, &want, sizeof(x)));
	f = framed(FRAME_FAILED, 0, frame_failed_encode(&why, PAYLOAD, ROOM));
	CHECK_EQ(frame_failed_decode(&f, &y), 0);
	CHECK_STR(y.text, "process 7: no");
	memset(longer, 'x', sizeof(longer));
	longer[sizeof(longer) - 1] = '\0';
	why.text = longer;
	f = framed(FRAME_FAILED, 0, frame_failed_encode(&why, PAYLOAD, ROOM));
	CHECK_EQ(frame_failed_decode(&f, &y), -EBADMSG);
	why.text = "a\nb";
	f = framed(FRAME_FAILED, 0, frame_failed_encode(&why, PAYLOAD, ROOM));
	CHECK_EQ(frame_failed_decode(&f, &y), -EBADMSG);
	why.stage = FRAME_STAGE_GROUP;
	f = framed(FRAME_FAILED, 0, frame_failed_encode(&why, PAYLOAD, ROOM));
	CHECK_EQ(f.len, 12);
	CHECK_EQ(frame_failed_decode(&f, &y), 0);
	CHECK(!y.text);
}

TEST(every_stage_has_a_text)
{
	for (uint32_t i = 1; i < FRAME_STAGE_COUNT; i++)
		CHECK(frame_stage_text(i)[0]);
	CHECK_STR(frame_stage_text(FRAME_STAGE_COUNT), "?");
	CHECK_STR(frame_stage_text(UINT32_MAX), "?");
}

TEST(a_connect_has_one_socket_a_family_and_a_port)
{
	struct frame_connect x = { .family = 6, .port = 8080 }, y;
	uint8_t out[16];
	struct frame f = { .type = FRAME_CONNECT, .nfds = 1, .payload = out };

	f.len = (uint32_t)frame_connect_encode(&x, out, sizeof(out));
	CHECK_EQ(frame_connect_decode(&f, &y), 0);
	CHECK(y.family == 6 && y.port == 8080);
	f.nfds = 0;
	CHECK_EQ(frame_connect_decode(&f, &y), -EBADMSG);
	f.nfds = 1;
	f.len++;
	CHECK_EQ(frame_connect_decode(&f, &y), -EBADMSG);
	x.port = 0;
	f.len = (uint32_t)frame_connect_encode(&x, out, sizeof(out));
	CHECK_EQ(frame_connect_decode(&f, &y), -EBADMSG);
}

TEST(changes_are_asked_for_with_one_pipe)
{
	struct frame_changes x = { .flags = 2, .max = 7 }, y;
	uint8_t out[16];
	struct frame f = { .type = FRAME_CHANGES, .nfds = 1, .payload = out };

	f.len = (uint32_t)frame_changes_encode(&x, out, sizeof(out));
	CHECK_EQ(frame_changes_decode(&f, &y), 0);
	CHECK(y.flags == 2 && y.max == 7);
	f.nfds = 2;
	CHECK_EQ(frame_changes_decode(&f, &y), -EBADMSG);
	f.nfds = 1;
	f.len--;
	CHECK_EQ(frame_changes_decode(&f, &y), -EBADMSG);
}
