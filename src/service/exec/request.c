/* Parses and writes the request for an exec. */
#include "base/base.h"
#include "base/base64.h"
#include "base/fd.h"
#include "base/str.h"
#include "base/utf8.h"
#include "proto/exec.h"
#include "service/state/json_read.h"
#include "base/mask.h"
#include "service/sandbox/request.h"

static int text_copy(const char *text, char **ret)
{
	*ret = strdup(text);
	return *ret ? 0 : -ENOMEM;
}

static void read_cmd(struct json_read *j, struct exec_request *x)
{
	const json_t *cmd;
	const char *shell = NULL, *code = NULL, *text[] = { "/bin/sh", "-c", NULL };
	size_t n = 3;
	int r = 0;

	if (j->r == 0 && json_is_string(json_object_get(j->o, "cmd")))
		json_read_bad(j, "cmd", "must be an array of strings; use `shell` for a shell command");
	cmd = json_read_array(j, "cmd", EXEC_ARGS_MAX);
	json_read_str(j, "shell", &shell, EXEC_BYTES_MAX);
	json_read_str(j, "code", &code, EXEC_BYTES_MAX);
	if (j->r < 0)
		return;
	if (cmd)
		n = json_array_size(cmd);
	/* read_all() reports it, after an unknown key: that may be a misspelt `cmd`. */
	if (!cmd && !shell && !code)
		return;
	if (!!cmd + !!shell + !!code > 1) {
		json_read_bad(j, "cmd", "only one of `cmd`, `shell` and `code` may be given");
		return;
	}
	if (!n) {
		json_read_bad(j, "cmd", "must have at least one string, the program");
		return;
	}
	text[2] = shell;
	if (code) {
		x->way = EXEC_CODE;
		text[0] = "python";
		text[1] = code;
		n = 2;
	}
	x->argv = calloc(n + 1, sizeof(char *));
	if (!x->argv)
		r = -ENOMEM;
	for (size_t i = 0; r == 0 && i < n; i++) {
		const char *one = cmd ? json_string_value(json_array_get(cmd, i)) : text[i];

		if (!one) {
			json_read_bad(j, "cmd", "must be an array of strings");
			return;
		}
		r = text_copy(one, &x->argv[i]);
		x->argc += r == 0;
	}
	if (r < 0)
		j->r = err_set(j->e, ERR_EXHAUSTED, r, "no memory for a command");
}

static void read_stdin(struct json_read *j, struct exec_request *x)
{
	const char *text = NULL, *coded = NULL;
	ssize_t n;

	json_read_str(j, "stdin", &text, SIZE_MAX);
	json_read_str(j, "stdin_base64", &coded, SIZE_MAX);
	json_read_bool(j, "stdin_open", &x->stdin_open);
	if (j->r < 0 || (!text && !coded))
		return;
	if (x->stdin_open || (text && coded)) {
		json_read_bad(j, "stdin", "only one of stdin, stdin_base64 and stdin_open is allowed");
		return;
	}
	x->stdin_len = strlen(text ? text : coded);
	x->stdin_data = malloc(x->stdin_len + 1);
	if (!x->stdin_data) {
		j->r = err_set(j->e, ERR_EXHAUSTED, -ENOMEM, "no memory for stdin");
		return;
	}
	if (text) {
		memcpy(x->stdin_data, text, x->stdin_len);
		return;
	}
	n = base64_decode(coded, x->stdin_len, x->stdin_data);
	if (n < 0)
		json_read_bad(j, "stdin_base64", "must be valid base64");
	x->stdin_len = n < 0 ? 0 : (size_t)n;
}

static void read_tty(struct json_read *j, struct exec_request *x)
{
	const json_t *v = json_read_any(j, "tty");
	uint64_t rows = 24, cols = 80;

	if (!v || json_is_false(v))
		return;
	x->tty = true;
	x->stdin_open = false; /* a terminal's always is */
	if (json_is_object(v)) {
		struct json_read t = JIN_INIT(v, j->e);

		json_read_u64(&t, "rows", &rows, 1, 10000);
		json_read_u64(&t, "cols", &cols, 1, 10000);
		if (json_read_end(&t) < 0)
			j->r = -EINVAL;
	} else if (!json_is_true(v)) {
		json_read_bad(j, "tty", "must be true, false or {rows, cols}");
	}
	x->rows = (uint32_t)rows;
	x->cols = (uint32_t)cols;
}

static void read_restart(struct json_read *j, const json_t *from, struct exec_request *x)
{
	const char *text = NULL;

	json_read_str(j, "restart", &text, 16);
	if (j->r < 0 || !text || !strcmp(text, "no"))
		return;
	if (strcmp(text, "always") != 0)
		json_read_bad(j, "restart", "must be \"no\" or \"always\"");
	else if (!x->background || x->tty || x->stdin_open)
		json_read_bad(j, "restart",
			      "is only for commands in the background, without a terminal and without an open stdin");
	else if (!(x->again = json_deep_copy(from)))
		j->r = err_set(j->e, ERR_EXHAUSTED, -ENOMEM, "no memory for a command");
}

/* A relative one begins at the work folder, as paths of files do. */
static int copy_cwd(const struct sandbox_request *w, const char *cwd, char **ret)
{
	const char *base = *cwd == '/' ? "" : w->spec->workdir;
	const size_t size = strlen(base) + strlen(cwd) + 2;

	*ret = malloc(size);
	if (*ret)
		snprintf(*ret, size, "%s%s%s", base, *base && base[strlen(base) - 1] != '/' ? "/" : "", cwd);
	return *ret ? 0 : -ENOMEM;
}

static int read_all(const struct service_opts *o, const struct sandbox_request *w, const json_t *from,
		    struct exec_request *x, struct err *e)
{
	struct json_read j = JIN_INIT(from, e);
	const char *cwd = NULL, *user = NULL, *encoding = "utf8", *output = "separate";
	const json_t *env;

	x->timeout_ms = w->exec_timeout_ms;
	x->output_limit = w->output_limit;
	x->nofile = w->nofile;
	x->user = w->user;
	read_cmd(&j, x);
	read_stdin(&j, x);
	read_tty(&j, x);
	json_read_str(&j, "cwd", &cwd, 4095);
	if (json_read_str(&j, "user", &user, sizeof(x->user.text) - 1) && j.r == 0)
		j.r = user_parse(user, &x->user, e);
	if (x->user.named && x->way == EXEC_CODE)
		json_read_bad(&j, "user", "must be user, root, \"UID\" or \"UID:GID\" for a warm Python");
	json_read_ms(&j, "timeout", &x->timeout_ms);
	json_read_ms(&j, "cpu_time", &x->cpu_ms);
	json_read_size(&j, "output_limit", &x->output_limit);
	json_read_u64(&j, "nofile", &x->nofile, 0, 1 << 20);
	if (!x->nofile && w->nofile)
		json_read_bad(&j, "nofile", "a command cannot remove the sandbox's limit");
	json_read_bool(&j, "background", &x->background);
	json_read_bool(&j, "echo", &x->echo);
	read_restart(&j, from, x);
	json_read_str(&j, "encoding", &encoding, 16);
	json_read_str(&j, "output", &output, 16);
	x->merge = !strcmp(output, "merged");
	if (!x->merge && strcmp(output, "separate"))
		json_read_bad(&j, "output", "must be \"separate\" or \"merged\"");
	env = json_read_object(&j, "env");
	if (env && j.r == 0)
		j.r = kv_parse(env, "env", ENV_MAX, true, &x->env, e);
	x->base64 = !strcmp(encoding, "base64");
	if (!x->base64 && strcmp(encoding, "utf8"))
		json_read_bad(&j, "encoding", "must be \"utf8\" or \"base64\"");
	if (x->output_limit > OUTPUT_LIMIT_MAX)
		json_read_bad(&j, "output_limit", "must be at most 16M in an answer; …/output returns more");
	if (o->exec_timeout_max_ms && (!x->timeout_ms || x->timeout_ms > o->exec_timeout_max_ms))
		x->timeout_ms = o->exec_timeout_max_ms;
	if (cwd && *cwd && j.r == 0 && copy_cwd(w, cwd, &x->cwd) < 0)
		j.r = err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a command");
	if (json_read_end(&j) < 0)
		return -EINVAL;
	if (!x->argc)
		json_read_bad(&j, "cmd",
			      "one of `cmd` (an array of strings), `shell` and `code` (strings) is required");
	return j.r;
}

int exec_request_parse(const struct service_opts *o, const struct sandbox_request *w, const json_t *from,
		       struct exec_request **ret, struct err *e)
{
	AUTO(exec_request_free) struct exec_request *x = calloc(1, sizeof(*x));
	int r;

	if (!x)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a command");
	r = read_all(o, w, from, x, e);
	if (r < 0)
		return r;
	*ret = TAKE_PTR(x);
	return 0;
}

/* Of a warm process and of a kernel its own text is long, and ours. */
static bool is_told(const struct exec_request *x, uint32_t i)
{
	return (x->way != EXEC_WARM && !x->context) || i != 2;
}

static size_t cmd_length(const struct exec_request *x)
{
	size_t n = 0;

	for (uint32_t i = 0; i < x->argc; i++)
		n += is_told(x, i) ? strlen(x->argv[i]) + 1 : 0;
	return x->cmd_bytes ? x->cmd_bytes : n;
}

/* Whether all of the next argument is kept; if not, @kept says how much of it is, and no other is. */
static bool fits(const char *text, size_t *room, size_t *kept)
{
	const size_t n = strlen(text), each = 8;

	if (*room >= each && n <= *room - each) {
		*room -= each + n;
		return true;
	}
	*kept = *room > each ? utf8_whole(text, *room - each) : 0;
	return false;
}

/* A value of @m that is cut in two must not show its beginning. */
static int cut_text(struct mask *m, const char *text, size_t len, struct buf *out)
{
	return m ? mask_cut_text(m, text, len, out) : buf_add(out, text, len);
}

void exec_request_write_cmd(const struct exec_request *x, struct mask *m, struct json *j)
{
	size_t room = COMMAND_KEPT, kept;
	bool whole = !x->cmd_bytes;

	jout_array(j, "cmd");
	for (uint32_t i = 0; i < x->argc; i++) {
		AUTO(buf_done) struct buf cut = BUF_INIT(2 * COMMAND_KEPT);

		if (!is_told(x, i))
			continue;
		if (fits(x->argv[i], &room, &kept)) {
			mask_write(m, NULL, x->argv[i], j);
			continue;
		}
		whole = false;
		if (kept && cut_text(m, x->argv[i], kept, &cut) == 0)
			jout_strn(j, NULL, buf_str(&cut), cut.len);
		break;
	}
	jout_end(j);
	if (!whole)
		jout_u64(j, "cmd_bytes", cmd_length(x));
}

static void write_rest(const struct exec_request *x, struct json *j);

void exec_request_write_kept(const struct exec_request *x, struct mask *m, struct json *j)
{
	exec_request_write_cmd(x, m, j);
	write_rest(x, j);
	if (x->context)
		jout_raw(j, "context", x->context, strlen(x->context));
}

void exec_request_write(const struct exec_request *x, struct mask *m, struct json *j)
{
	jout_array(j, "cmd");
	for (uint32_t i = 0; i < x->argc; i++)
		if (is_told(x, i))
			mask_write(m, NULL, x->argv[i], j);
	jout_end(j);
	if (x->cmd_bytes)
		jout_u64(j, "cmd_bytes", x->cmd_bytes);
	write_rest(x, j);
}

size_t exec_request_bytes(const struct exec_request *x)
{
	size_t n = sizeof(*x) + (x->stdin_data ? x->stdin_len : 0);

	for (uint32_t i = 0; i < x->argc; i++)
		n += strlen(x->argv[i]) + 32;
	for (uint32_t i = 0; i < x->env.n; i++)
		n += strlen(x->env.item[i]) + 32;
	return n;
}

static void empty(char **text)
{
	char *none = strdup("");

	if (!none)
		return;
	free(*text);
	*text = none;
}

void exec_request_trim(struct exec_request *x, struct mask *m)
{
	const size_t all = cmd_length(x);
	size_t room = COMMAND_KEPT, kept;
	uint32_t i;

	free(x->stdin_data);
	x->stdin_data = NULL;
	kv_done(&x->env);
	x->env = (struct kv){ 0 };
	for (i = 0; i < x->argc; i++) {
		AUTO(buf_done) struct buf cut = BUF_INIT(2 * COMMAND_KEPT);

		if (!is_told(x, i)) {
			empty(&x->argv[i]); /* not recorded anywhere, but its position counts */
			continue;
		}
		if (fits(x->argv[i], &room, &kept))
			continue;
		x->cmd_bytes = all;
		if (kept && cut_text(m, x->argv[i], kept, &cut) == 0) {
			free(x->argv[i]);
			x->argv[i++] = buf_take(&cut);
		}
		break;
	}
	while (x->argc > i)
		free(x->argv[--x->argc]);
	while (x->argc && !x->argv[x->argc - 1])
		x->argc--; /* no memory for the last */
}

static void write_rest(const struct exec_request *x, struct json *j)
{
	if (x->resident)
		jout_bool(j, "standing", true);
	if (x->way != EXEC_PROGRAM)
		jout_str(j, "way", x->way == EXEC_CODE ? "code" : "warm");
	jout_str(j, "cwd", x->cwd);
	jout_str(j, "user", x->user.text);
	jout_bool(j, "background", x->background);
	jout_bool(j, "tty", x->tty);
	jout_u64(j, "timeout_ms", x->timeout_ms);
}

void exec_request_free(struct exec_request *x)
{
	if (!x)
		return;
	for (uint32_t i = 0; i < x->argc; i++)
		free(x->argv[i]);
	free(x->argv);
	kv_done(&x->env);
	free(x->cwd);
	free(x->stdin_data);
	if (x->stdin_given)
		fd_close(x->stdin_fd);
	json_decref(x->again);
	free(x->context);
	free(x);
}
