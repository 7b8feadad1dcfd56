/* What callers see of an exec, and give for one. */
#include "base/base.h"
#include "service/exec/internal.h"

int exec_request_read(const struct sandbox *b, const json_t *from, struct exec_request **ret, struct err *e)
{
	return exec_request_parse(&b->service->o, b->request, from, ret, e);
}

const char *exec_id(const struct exec *x)
{
	return x->id;
}

const char *exec_context(const struct exec *x)
{
	return x->request ? x->request->context : NULL;
}

uint32_t exec_number(const struct exec *x)
{
	return x->number;
}

const struct verdict *exec_verdict(const struct exec *x)
{
	return &x->verdict;
}

void exec_write_much(struct exec *x, size_t bytes)
{
	x->in_queue.max = bytes;
}

struct exec *exec_first(const struct sandbox *b)
{
	return b->execs;
}

struct exec *exec_next(const struct exec *x)
{
	return x->next;
}

bool exec_has_exited(const struct exec *x)
{
	return x->state >= EXEC_EXITED;
}

const struct err *exec_failure(const struct exec *x)
{
	return x->failed ? &x->fail : NULL;
}

bool exec_has_tty(const struct exec *x)
{
	return x->request->tty;
}

bool exec_is_terminal_of(const struct exec *x, const char *const *argv, uint32_t argc)
{
	if (exec_has_exited(x) || !x->request || !x->request->tty || x->request->argc != argc)
		return false;
	for (uint32_t i = 0; i < argc; i++)
		if (strcmp(x->request->argv[i], argv[i]))
			return false;
	return true;
}

bool exec_timed_out(const struct exec *x)
{
	return x->timed_out;
}

int exec_exit_code(const struct exec *x)
{
	return x->verdict.exit_code;
}

uint64_t exec_output_total(const struct exec *x, enum exec_stream s)
{
	return x->stream[s].spool.total;
}

uint64_t exec_output_first(const struct exec *x, enum exec_stream s, uint64_t offset)
{
	return spool_first(&x->stream[s].spool, offset);
}

ssize_t exec_output_read(const struct exec *x, enum exec_stream s, uint64_t offset, char *to, size_t len)
{
	return spool_read(&x->stream[s].spool, offset, to, len);
}

bool exec_rejoin(struct exec *x, const uint64_t at[2], uint64_t ret[2])
{
	if (!x->adopted || x->request->background)
		return false;
	if (!x->joined) {
		x->joined = true;
		memcpy(x->seen, at, sizeof(x->seen));
	}
	memcpy(ret, x->seen, sizeof(x->seen));
	return true;
}
