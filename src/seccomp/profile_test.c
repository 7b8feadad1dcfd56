#include "seccomp/profile.h"
#include "base/base.h"
#include "base/test.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define DIED(sig) (-100000L - (sig))
#define BROKEN (-200000L)

static int compile(const char *json, struct buf *b, struct err *e)
{
	*e = (struct err){ 0 };
	return profile_compile(json, strlen(json), b, e);
}

/* The result of one call in a child under the profile: 0, -errno, or DIED(signal). */
static long call_under(const char *json, long nr, unsigned long a, unsigned long b, unsigned long c)
{
	AUTO(buf_done) struct buf prog = BUF_INIT(PROFILE_PROGRAM_MAX);
	struct sock_fprog f;
	struct err e;
	long out = BROKEN;
	int p[2], st;
	pid_t pid;

	if (compile(json, &prog, &e) < 0) {
		printf("# %s\n", e.msg);
		return BROKEN;
	}
	f = (struct sock_fprog){ (unsigned short)(prog.len / sizeof(struct sock_filter)), (void *)prog.data };
	if (pipe(p) < 0)
		return BROKEN;
	pid = fork();
	if (pid == 0) {
		if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &f))
			_exit(1);
		out = syscall(nr, a, b, c) < 0 ? -errno : 0;
		_exit(write(p[1], &out, sizeof(out)) == sizeof(out) ? 0 : 1);
	}
	close(p[1]);
	if (read(p[0], &out, sizeof(out)) != sizeof(out))
		out = BROKEN;
	close(p[0]);
	if (waitpid(pid, &st, 0) == pid && WIFSIGNALED(st))
		out = DIED(WTERMSIG(st));
	return out;
}

#define MKDIRAT(profile) call_under(profile, SYS_mkdirat, (unsigned long)AT_FDCWD, (unsigned long)"/", 0700)
#define SOCKET(profile, family) call_under(profile, SYS_socket, (family), SOCK_STREAM, 0)

/* Like Docker's default: everything is refused except a list, parts of which have conditions. */
static const char docker_like[] =
	"{\"defaultAction\": \"SCMP_ACT_ERRNO\", \"defaultErrnoRet\": 1,"
	" \"archMap\": [{\"architecture\": \"SCMP_ARCH_X86_64\","
	"   \"subArchitectures\": [\"SCMP_ARCH_X86\", \"SCMP_ARCH_X32\"]},"
	"  {\"architecture\": \"SCMP_ARCH_AARCH64\", \"subArchitectures\": [\"SCMP_ARCH_ARM\"]}],"
	" \"syscalls\": ["
	"  {\"names\": [\"read\", \"write\", \"exit\", \"exit_group\", \"close\", \"rt_sigreturn\", \"brk\","
	"    \"mmap\", \"munmap\", \"sigaltstack\","
	"    \"futex_time64\", \"of_another_planet\", \"getppid\"], \"action\": \"SCMP_ACT_ALLOW\", \"args\": null,"
	"    \"comment\": \"\", \"includes\": {}, \"excludes\": {}},"
	"  {\"names\": [\"personality\"], \"action\": \"SCMP_ACT_ALLOW\","
	"    \"args\": [{\"index\": 0, \"value\": 4294967295, \"valueTwo\": 0, \"op\": \"SCMP_CMP_EQ\"}]},"
	"  {\"names\": [\"clone\"], \"action\": \"SCMP_ACT_ALLOW\","
	"    \"args\": [{\"index\": 0, \"value\": 2114060288, \"valueTwo\": 0, \"op\": \"SCMP_CMP_MASKED_EQ\"}],"
	"    \"excludes\": {\"caps\": [\"CAP_SYS_ADMIN\"], \"arches\": [\"s390\", \"s390x\"]}},"
	"  {\"names\": [\"chroot\"], \"action\": \"SCMP_ACT_ALLOW\", \"includes\": {\"caps\": [\"CAP_SYS_CHROOT\"]}},"
	"  {\"names\": [\"getuid\"], \"action\": \"SCMP_ACT_ALLOW\", \"includes\": {\"minKernel\": \"4.8\"}},"
	"  {\"names\": [\"geteuid\"], \"action\": \"SCMP_ACT_ALLOW\", \"includes\": {\"minKernel\": \"99.0\"}},"
	"  {\"names\": [\"getgid\"], \"action\": \"SCMP_ACT_ALLOW\", \"excludes\": {\"minKernel\": \"4.8\"}},"
	"  {\"names\": [\"getegid\"], \"action\": \"SCMP_ACT_ALLOW\", \"includes\": {\"arches\": [\"amd64\", "
	"\"arm64\"]}},"
	"  {\"names\": [\"getsid\"], \"action\": \"SCMP_ACT_ALLOW\", \"includes\": {\"arches\": [\"s390x\"]}},"
	"  {\"name\": \"clone3\", \"action\": \"SCMP_ACT_ERRNO\", \"errnoRet\": 38}"
	" ]}";

TEST(a_docker_like_profile_allows_what_it_lists)
{
	CHECK_EQ(call_under(docker_like, SYS_getppid, 0, 0, 0), 0);
	CHECK_EQ(MKDIRAT(docker_like), -EPERM);
	CHECK_EQ(call_under(docker_like, SYS_personality, 0xffffffff, 0, 0), 0);
	CHECK_EQ(call_under(docker_like, SYS_personality, 8, 0, 0), -EPERM);
	CHECK_EQ(call_under(docker_like, SYS_clone3, 0, 0, 0), -ENOSYS);
	CHECK_EQ(call_under(docker_like, SYS_clone, 0x10000000, 0, 0), -EPERM);
}

TEST(conditions_are_judged_for_this_kernel_and_no_capabilities)
{
	CHECK_EQ(call_under(docker_like, SYS_chroot, (unsigned long)"/nonexistent", 0, 0), -EPERM);
	CHECK_EQ(call_under(docker_like, SYS_getuid, 0, 0, 0), 0);
	CHECK_EQ(call_under(docker_like, SYS_geteuid, 0, 0, 0), -EPERM);
	CHECK_EQ(call_under(docker_like, SYS_getgid, 0, 0, 0), -EPERM);
	CHECK_EQ(call_under(docker_like, SYS_getegid, 0, 0, 0), 0);
	CHECK_EQ(call_under(docker_like, SYS_getsid, 0, 0, 0), -EPERM);
}

/* Lists of allowed calls: one from before clone3 and faccessat2, and a later one that names neither. */
#define LIST(action, names)                                                                                            \
	"{\"defaultAction\":\"SCMP_ACT_" action "\",\"syscalls\":[{\"names\":[\"write\",\"exit_group\"" names "],"     \
	"\"action\":\"SCMP_ACT_ALLOW\"}]}"

TEST(calls_newer_than_a_list_are_not_there_instead_of_refused)
{
	static const char old[] = LIST("ERRNO", ""), newer[] = LIST("ERRNO", ",\"mseal\"");

	CHECK_EQ(MKDIRAT(old), -EPERM);
	CHECK_EQ(call_under(old, SYS_clone3, 0, 0, 0), -ENOSYS);
	CHECK_EQ(call_under(old, SYS_faccessat2, 0, 0, 0), -ENOSYS);
	CHECK_EQ(call_under(newer, SYS_clone3, 0, 0, 0), -ENOSYS);
	CHECK_EQ(call_under(newer, SYS_faccessat2, 0, 0, 0), -EPERM);
	CHECK_EQ(call_under(newer, 463, 0, 0, 0), -ENOSYS);
	CHECK_EQ(call_under(LIST("KILL_PROCESS", ""), SYS_clone3, 0, 0, 0), DIED(SIGSYS));
}

#define DENY(names, rest) "{\"defaultAction\":\"SCMP_ACT_ALLOW\",\"syscalls\":[{\"names\":[" names "]," rest "}]}"

TEST(denied_calls_fail_with_the_errno_of_the_profile)
{
	CHECK_EQ(MKDIRAT(DENY("\"mkdir\",\"mkdirat\"", "\"action\":\"SCMP_ACT_ERRNO\"")), -EPERM);
	CHECK_EQ(MKDIRAT(DENY("\"mkdirat\"", "\"action\":\"SCMP_ACT_ERRNO\",\"errnoRet\":30")), -EROFS);
	CHECK_EQ(MKDIRAT(DENY("\"mkdirat\"", "\"action\":\"SCMP_ACT_ERRNO\",\"errno\":\"EROFS\"")), -EROFS);
	CHECK_EQ(MKDIRAT(DENY("\"mkdirat\"", "\"action\":\"SCMP_ACT_KILL_PROCESS\"")), DIED(SIGSYS));
	CHECK_EQ(MKDIRAT(DENY("\"mkdirat\"", "\"action\":\"SCMP_ACT_TRAP\"")), DIED(SIGSYS));
	CHECK_EQ(MKDIRAT(DENY("\"mkdirat\"", "\"action\":\"SCMP_ACT_LOG\"")), -EEXIST);
	CHECK_EQ(MKDIRAT(DENY("\"unlinkat\"", "\"action\":\"SCMP_ACT_ERRNO\"")), -EEXIST);
}

TEST(calls_newer_than_the_library_are_known)
{
	CHECK_EQ(call_under(DENY("\"mseal\"", "\"action\":\"SCMP_ACT_ERRNO\",\"errnoRet\":30"), 462, 0, 0, 0), -EROFS);
}

TEST(two_conditions_on_one_argument_are_alternatives)
{
	static const char p[] = DENY("\"socket\"", "\"action\":\"SCMP_ACT_ERRNO\",\"errnoRet\":97,\"args\":["
						   "{\"index\":0,\"value\":2,\"op\":\"SCMP_CMP_EQ\"},"
						   "{\"index\":0,\"value\":10,\"op\":\"SCMP_CMP_EQ\"}]");

	CHECK_EQ(SOCKET(p, AF_INET), -EAFNOSUPPORT);
	CHECK_EQ(SOCKET(p, AF_INET6), -EAFNOSUPPORT);
	CHECK_EQ(SOCKET(p, AF_UNIX), 0);
}

TEST(conditions_on_two_arguments_must_both_hold)
{
	static const char p[] = DENY("\"socket\"", "\"action\":\"SCMP_ACT_ERRNO\",\"errnoRet\":97,\"args\":["
						   "{\"index\":0,\"value\":1,\"op\":\"SCMP_CMP_EQ\"},"
						   "{\"index\":1,\"value\":2,\"op\":\"SCMP_CMP_EQ\"}]");

	CHECK_EQ(SOCKET(p, AF_UNIX), 0);
	CHECK_EQ(call_under(p, SYS_socket, AF_UNIX, SOCK_DGRAM, 0), -EAFNOSUPPORT);
}

TEST(mistakes_are_named)
{
#define ENTRY(text) "{\"defaultAction\":\"SCMP_ACT_ALLOW\",\"syscalls\":[{\"names\":[\"mkdir\"]," text "}]}"
#define ARG(text) ENTRY("\"action\":\"SCMP_ACT_ERRNO\",\"args\":[" text "]")
	static const struct {
		const char *json, *message;
	} cases[] = {
		{ "", "line" },
		{ "nonsense", "line 1" },
		{ "[]", "is not an object" },
		{ "{}", "'defaultAction' is missing" },
		{ "{\"defaultAction\":\"SCMP_ACT_ALLOW\"} x", "line 1" },
		{ "{\"defaultAction\":7}", "'defaultAction' must be a string" },
		{ "{\"defaultAction\":\"SCMP_ACT_MAYBE\"}", "unknown action 'SCMP_ACT_MAYBE'" },
		{ "{\"defaultAction\":\"SCMP_ACT_NOTIFY\"}", "SCMP_ACT_NOTIFY needs a supervisor" },
		{ "{\"defaultAction\":\"SCMP_ACT_ALLOW\",\"defaultErrnoRet\":1}", "an errno is given" },
		{ "{\"defaultAction\":\"SCMP_ACT_ERRNO\",\"defaultErrnoRet\":4096}", "between 0 and 4095" },
		{ "{\"defaultAction\":\"SCMP_ACT_ERRNO\",\"defaultErrno\":\"EVIL\"}", "'EVIL'" },
		{ "{\"defaultAction\":\"SCMP_ACT_ALLOW\",\"defaultAction\":\"SCMP_ACT_ALLOW\"}", "defaultAction" },
		{ "{\"defaultAction\":\"SCMP_ACT_ALLOW\",\"sycalls\":[]}", "unknown key 'sycalls'" },
		{ "{\"defaultAction\":\"SCMP_ACT_ALLOW\",\"listenerPath\":\"/x\"}", "unknown key 'listenerPath'" },
		{ "{\"defaultAction\":\"SCMP_ACT_ALLOW\",\"architectures\":[\"VAX\"]}", "unknown architecture 'VAX'" },
		{ "{\"defaultAction\":\"SCMP_ACT_ALLOW\",\"architectures\":[\"SCMP_ARCH_X86\"],\"archMap\":[]}",
		  "both" },
		{ "{\"defaultAction\":\"SCMP_ACT_ALLOW\",\"archMap\":[{}]}", "archMap[0]: 'architecture' is missing" },
		{ "{\"defaultAction\":\"SCMP_ACT_ALLOW\",\"flags\":[\"SECCOMP_FILTER_FLAG_SPEC_ALLOW\"]}",
		  "not supported" },
		{ "{\"defaultAction\":\"SCMP_ACT_ALLOW\",\"syscalls\":{}}", "'syscalls' must be an array" },
		{ "{\"defaultAction\":\"SCMP_ACT_ALLOW\",\"syscalls\":[7]}", "syscalls[0]: is not an object" },
		{ "{\"defaultAction\":\"SCMP_ACT_ALLOW\",\"syscalls\":[{\"action\":\"SCMP_ACT_LOG\"}]}",
		  "'names' or 'name'" },
		{ ENTRY("\"action\":\"SCMP_ACT_LOG\",\"name\":\"read\""), "'names' or 'name'" },
		{ ENTRY("\"action\":\"SCMP_ACT_TRACE\""), "syscalls[0]: 'action': SCMP_ACT_TRACE needs" },
		{ ENTRY("\"action\":\"SCMP_ACT_KILL\",\"errnoRet\":1"), "an errno is given" },
		{ ENTRY("\"action\":\"SCMP_ACT_LOG\",\"acton\":1"), "syscalls[0]: unknown key 'acton'" },
		{ ENTRY("\"action\":\"SCMP_ACT_LOG\",\"includes\":{\"caps\":[\"root\"]}"), "unknown capability" },
		{ ENTRY("\"action\":\"SCMP_ACT_LOG\",\"includes\":{\"minKernel\":\"new\"}"), "minKernel" },
		{ ENTRY("\"action\":\"SCMP_ACT_LOG\",\"excludes\":{\"user\":1}"), "unknown key 'user'" },
		{ ARG("{}"), "syscalls[0].args[0]: 'index' or 'value'" },
		{ ARG("{\"index\":6,\"value\":1,\"op\":\"SCMP_CMP_EQ\"}"), "'index' is out of range" },
		{ ARG("{\"index\":0,\"value\":-1,\"op\":\"SCMP_CMP_EQ\"}"), "'value' is out of range" },
		{ ARG("{\"index\":0,\"value\":1.5,\"op\":\"SCMP_CMP_EQ\"}"), "'value' must be an integer" },
		{ ARG("{\"index\":0,\"value\":1,\"op\":\"==\"}"), "unknown operator '=='" },
		{ ARG("{\"index\":0,\"value\":1}"), "'op' is missing" },
		{ ENTRY("\"action\":\"\\u001b[31m\""), "unknown action '?[31m'" },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		AUTO(buf_done) struct buf b = BUF_INIT(PROFILE_PROGRAM_MAX);
		struct err e;

		if (compile(cases[i].json, &b, &e) != -EINVAL)
			TEST_FAIL("%s is taken", cases[i].json);
		CHECK_CONTAINS(e.msg, cases[i].message);
		CHECK_EQ(b.len, 0);
	}
}

TEST(too_deep_and_too_large_profiles_are_refused)
{
	AUTO(buf_done) struct buf b = BUF_INIT(PROFILE_PROGRAM_MAX);
	AUTO_FREE char *big = malloc(PROFILE_JSON_MAX + 1);
	struct err e;

	CHECK(big);
	memset(big, '[', PROFILE_JSON_MAX + 1);
	CHECK_EQ(profile_compile(big, PROFILE_JSON_MAX, &b, &e), -EFBIG);
	CHECK_CONTAINS(e.msg, "deeper");
	memset(big, ' ', PROFILE_JSON_MAX + 1);
	CHECK_EQ(profile_compile(big, PROFILE_JSON_MAX + 1, &b, &e), -EFBIG);
	CHECK_CONTAINS(e.msg, "larger");
}

/* Makes @n rules, each comparing with another number. */
static int many(unsigned n, struct buf *prog, struct err *e)
{
	AUTO(buf_done) struct buf b = BUF_INIT(PROFILE_JSON_MAX);

	if (buf_adds(&b, "{\"defaultAction\":\"SCMP_ACT_ALLOW\",\"syscalls\":["))
		return BROKEN;
	for (unsigned i = 0; i < n; i++)
		if (buf_addf(&b,
			     "%s{\"name\":\"dup\",\"action\":\"SCMP_ACT_ERRNO\",\"args\":"
			     "[{\"index\":0,\"value\":%u,\"op\":\"SCMP_CMP_EQ\"}]}",
			     i ? "," : "", i))
			return BROKEN;
	if (buf_adds(&b, "]}"))
		return BROKEN;
	return compile(buf_str(&b), prog, e);
}

TEST(a_program_too_long_for_the_kernel_is_refused)
{
	AUTO(buf_done) struct buf b = BUF_INIT(PROFILE_PROGRAM_MAX);
	struct err e;

	CHECK_EQ(many(PROFILE_RULES_MAX + 1, &b, &e), -EFBIG);
	CHECK_CONTAINS(e.msg, "rules");
	CHECK_EQ(many(PROFILE_RULES_MAX, &b, &e), -E2BIG);
	CHECK_CONTAINS(e.msg, "instructions");
	CHECK_EQ(b.len, 0);
	CHECK_EQ(many(100, &b, &e), 0);
}
