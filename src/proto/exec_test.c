#include "proto/exec.h"
#include "base/base.h"
#include "base/test.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

static struct err e;
static const char *const one[] = { "true" };

static struct exec_spec good(void)
{
	return (struct exec_spec){ .argv = one, .argc = 1, .cwd = "/", .filter = -1 };
}

static const char **many(uint32_t n, const char *text)
{
	const char **list = calloc(n, sizeof(*list));

	for (uint32_t i = 0; list && i < n; i++)
		list[i] = text;
	return list;
}

TEST(a_command_is_needed)
{
	struct exec_spec x = good();

	CHECK_EQ(exec_check(&x, &e), 0);
	x.argc = 0;
	CHECK_EQ(exec_check(&x, &e), -EINVAL);
}

TEST(counts_up_to_the_limit_pass_and_one_more_is_told)
{
	AUTO_FREE const char **args = many(EXEC_ARGS_MAX + 1, "a"), **env = many(EXEC_ENV_MAX + 1, "A=");
	struct exec_spec x = good();

	x.argv = args;
	x.argc = EXEC_ARGS_MAX;
	CHECK_EQ(exec_check(&x, &e), 0);
	x.argc++;
	CHECK_EQ(exec_check(&x, &e), -E2BIG);
	CHECK(e.remedy[0]);
	x = good();
	x.envp = env;
	x.envc = EXEC_ENV_MAX;
	CHECK_EQ(exec_check(&x, &e), 0);
	x.envc++;
	CHECK_EQ(exec_check(&x, &e), -E2BIG);
}

TEST(bytes_up_to_the_limit_pass_and_one_more_is_told)
{
	/* 16 of the longest, of which the last makes room for their pointers and counts. */
	const uint32_t n = EXEC_BYTES_MAX / EXEC_ONE_MAX;
	AUTO_FREE char *text = calloc(1, EXEC_ONE_MAX + 1), *last = calloc(1, EXEC_ONE_MAX);
	AUTO_FREE const char **args = many(n, text);
	struct exec_spec x = good();

	memset(text, 'a', EXEC_ONE_MAX);
	memset(last, 'a', EXEC_ONE_MAX);
	text[EXEC_ONE_MAX - 1] = '\0';
	last[EXEC_ONE_MAX - 1 - n * sizeof(char *)] = '\0';
	x.argv = args;
	x.argc = n;
	args[n - 1] = last;
	CHECK_EQ(exec_bytes(&x), EXEC_BYTES_MAX);
	CHECK_EQ(exec_check(&x, &e), 0);
	last[EXEC_ONE_MAX - 1 - n * sizeof(char *)] = 'a';
	last[EXEC_ONE_MAX - n * sizeof(char *)] = '\0';
	CHECK_EQ(exec_check(&x, &e), -E2BIG);
	CHECK_EQ(e.kind, ERR_TOO_LARGE);
	CHECK_CONTAINS(e.msg, "2097153");
	/* One alone is bounded, too, where Linux is who bounds it. */
	x.argc = 1;
	CHECK_EQ(exec_check(&x, &e), 0);
	text[EXEC_ONE_MAX - 1] = 'a';
	text[EXEC_ONE_MAX] = '\0';
	CHECK_EQ(exec_check(&x, &e), -E2BIG);
	CHECK_CONTAINS(e.msg, "131072");
	x.code = true;
	CHECK_EQ(exec_check(&x, &e), 0);
}

TEST(a_variable_has_a_name_and_a_value)
{
	static const char *const bad[] = { "", "=", "=x", "NAME" };
	struct exec_spec x = good();

	x.envc = 1;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		x.envp = &bad[i];
		CHECK_EQ(exec_check(&x, &e), -EINVAL);
	}
	x.envp = (const char *const[]){ "A=" };
	CHECK_EQ(exec_check(&x, &e), 0);
}

TEST(a_nul_inside_an_argument_is_told)
{
	CHECK_EQ(exec_check_arg(&(struct exec_arg){ "a\0b", 3 }, &e), -EINVAL);
	CHECK_CONTAINS(e.msg, "NUL");
	CHECK_EQ(exec_check_arg(&(struct exec_arg){ "ab", 2 }, &e), 0);
	CHECK_EQ(exec_check_arg(&(struct exec_arg){ "", 0 }, &e), 0);
}

/* The largest allowed exec fits into a frame the other side accepts. */
TEST(what_passes_can_be_sent)
{
	static uint8_t in[FRAME_HEAD + FRAME_PAYLOAD_MAX];
	static char word[250] = "A=";
	AUTO_FREE const char **args = many(EXEC_ARGS_MAX, word), **env = many(EXEC_ENV_MAX, word);
	struct exec_spec x = good();
	struct frame_exec back;
	struct link l;
	struct frame f;
	int pair[2], fds[4], none[3] = { 0, 0, 0 };
	size_t have = 0, nfds;
	pid_t pid;

	memset(word + 2, 'a', sizeof(word) - 3);
	x.argv = args;
	x.argc = EXEC_ARGS_MAX;
	x.envp = env;
	x.envc = EXEC_ENV_MAX;
	x.user = "name:group";
	x.cpu_ms = 1001;
	CHECK_EQ(exec_check(&x, &e), 0);
	CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	link_init(&l, pair[0]);
	pid = fork(); /* it is more than a socket holds */
	if (pid == 0)
		_exit(exec_send(&l, 3, &x, none, &e) < 0);
	close(pair[0]);
	for (;;) {
		ssize_t n = fd_recv(pair[1], in + have, sizeof(in) - have, fds, 4, &nfds);

		fd_close_many(fds, nfds);
		if (n <= 0)
			break;
		have += (size_t)n;
	}
	CHECK_EQ(frame_decode(in, have, &f), have);
	CHECK_EQ(frame_exec_decode(&f, &back), 0);
	CHECK(f.id == 3 && f.nfds == 3 && back.argc == EXEC_ARGS_MAX && back.envc == EXEC_ENV_MAX);
	CHECK_EQ(back.cpu_seconds, 2);
	CHECK_STR(back.user, "name:group");
	close(pair[1]);
}
