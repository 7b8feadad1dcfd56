/* Writes the EXEC frame. */
#include "proto/exec.h"
#include "base/base.h"

int exec_check_arg(const struct exec_arg *a, struct err *e)
{
	if (memchr(a->data, 0, a->len))
		return err_set(e, ERR_INVALID, -EINVAL, "an argument contains a NUL byte; programs cannot receive it");
	return 0;
}

static size_t bytes(const char *const *list, uint32_t n)
{
	size_t sum = 0;

	for (uint32_t i = 0; i < n; i++)
		sum += strlen(list[i]) + 1;
	return sum;
}

size_t exec_bytes(const struct exec_spec *x)
{
	return bytes(x->argv, x->argc) + bytes(x->envp, x->envc) + sizeof(char *) * (x->argc + x->envc);
}

/* Linux would refuse it, with a message that says less. */
static int check_one(const char *text, const char *what, uint32_t i, struct err *e)
{
	const size_t n = strlen(text) + 1;

	if (n <= EXEC_ONE_MAX)
		return 0;
	err_set(e, WHY_ARGUMENT_TOO_LONG, -E2BIG, "%s %u has %zu bytes; Linux accepts at most %u", what, i, n - 1,
		EXEC_ONE_MAX - 1);
	err_remedy(e, "pass large data on stdin or in a file");
	return -E2BIG;
}

int exec_check(const struct exec_spec *x, struct err *e)
{
	size_t all;
	int r = 0;

	if (!x->argc)
		return err_set(e, ERR_INVALID, -EINVAL, "no command given");
	if (x->argc > EXEC_ARGS_MAX) {
		err_set(e, WHY_ARGUMENT_TOO_LONG, -E2BIG, "%u arguments; at most %u", x->argc, EXEC_ARGS_MAX);
		err_remedy(e, "pass the list on stdin or in a file");
		return -E2BIG;
	}
	if (x->envc > EXEC_ENV_MAX) {
		err_set(e, WHY_ARGUMENT_TOO_LONG, -E2BIG, "%u environment variables; at most %u", x->envc,
			EXEC_ENV_MAX);
		err_remedy(e, "put them into a file that the command reads");
		return -E2BIG;
	}
	all = exec_bytes(x);
	if (all > EXEC_BYTES_MAX) {
		err_set(e, WHY_ARGUMENT_TOO_LONG, -E2BIG, "arguments and environment are %zu bytes; at most %u", all,
			EXEC_BYTES_MAX);
		err_remedy(e, "pass large data on stdin or in a file");
		return -E2BIG;
	}
	for (uint32_t i = 0; r == 0 && !x->code && i < x->argc; i++)
		r = check_one(x->argv[i], "argument", i, e);
	for (uint32_t i = 0; r == 0 && i < x->envc; i++)
		r = check_one(x->envp[i], "environment variable", i, e);
	if (r < 0)
		return r;
	for (uint32_t i = 0; i < x->envc; i++)
		if (!strchr(x->envp[i], '=') || x->envp[i][0] == '=')
			return err_set(e, ERR_INVALID, -EINVAL, "environment '%.60s': must be NAME=VALUE", x->envp[i]);
	return 0;
}

int exec_send(struct link *l, uint32_t id, const struct exec_spec *x, const int stdio[3], struct err *e)
{
	struct frame_exec f = {
		.flags = (x->tty ? FRAME_EXEC_TTY : 0) | (x->filter >= 0 ? FRAME_EXEC_FILTER : 0) |
			 (x->user ? FRAME_EXEC_USER : 0),
		.uid = x->uid,
		.gid = x->gid,
		.rows = x->rows,
		.cols = x->cols,
		.nofile = x->nofile,
		.cpu_seconds = (x->cpu_ms + 999) / 1000,
		.cwd = x->cwd,
		.user = x->user,
		.argc = x->argc,
		.envc = x->envc,
		.argv = x->argv,
		.envp = x->envp,
	};
	size_t size = 256 + strlen(x->cwd) + (x->user ? strlen(x->user) : 0) + exec_bytes(x);
	AUTO_FREE uint8_t *out = NULL;
	int fds[4], r;
	size_t n = 0;
	long len;

	r = exec_check(x, e);
	if (r < 0)
		return r;
	out = malloc(size);
	if (!out)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for an exec");
	len = frame_exec_encode(&f, out, size);
	if (len < 0)
		return err_set(e, WHY_ARGUMENT_TOO_LONG, (int)len, "the command does not fit into a frame");
	for (int i = 0; !x->tty && i < 3; i++)
		fds[n++] = stdio[i];
	if (x->filter >= 0)
		fds[n++] = x->filter;
	r = link_send(l, FRAME_EXEC, id, out, (size_t)len, fds, n);
	return r < 0 ? err_sys(e, WHY_SANDBOX_LOST, r, "send the command to the agent") : 0;
}
