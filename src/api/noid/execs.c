/* Noid's exec call: its request, and its result. */
#include "api/noid/noid.h"
#include "base/base.h"
#include "proto/exec.h"
#include "service/exec/exec.h"
#include "service/state/json_read.h"

/* Reads ["K=V"] into an object; the last value of a name counts. */
static json_t *read_env(struct json_read *j, const json_t *list)
{
	json_t *env = json_object();

	for (size_t i = 0; env && list && i < json_array_size(list); i++) {
		const char *text = json_string_value(json_array_get(list, i));
		const char *eq = text ? strchr(text, '=') : NULL;

		if (!eq || eq == text) {
			json_read_bad(j, "env", "must be an array of \"NAME=VALUE\"");
			break;
		}
		json_object_setn_new(env, text, (size_t)(eq - text), json_string(eq + 1));
	}
	return env;
}

static json_t *read_command(struct json_read *j)
{
	const json_t *list = json_read_array(j, "command", EXEC_ARGS_MAX);

	if (!list)
		json_read_bad(j, "command", "is required: an array of strings");
	else if (!json_array_size(list))
		json_read_bad(j, "command", "must not be empty");
	for (size_t i = 0; list && i < json_array_size(list); i++)
		if (!json_is_string(json_array_get(list, i)))
			json_read_bad(j, "command", "must be an array of strings");
	return list && j->r == 0 ? json_copy(json_object_get(j->o, "command")) : NULL;
}

int noid_exec_request(const struct sandbox *b, const char *data, size_t len, bool stream, struct exec_request **ret,
		      struct err *e)
{
	AUTO(json_decref) json_t *from = NULL, *own = NULL, *env = NULL, *command = NULL;
	uint64_t rows = 24, cols = 80;
	bool tty = false;
	struct json_read j;
	int r = json_read_begin(data, len, &from, e);

	if (r < 0)
		return r;
	j = (struct json_read)JIN_INIT(from, e);
	command = read_command(&j);
	json_read_bool(&j, "tty", &tty);
	json_read_u64(&j, "rows", &rows, 1, 10000);
	json_read_u64(&j, "cols", &cols, 1, 10000);
	env = read_env(&j, json_read_array(&j, "env", ENV_MAX));
	if (j.r < 0)
		return j.r;
	own = json_pack("{s:O, s:O, s:s, s:b}", "cmd", command, "env", env, "user", "root", "stdin_open",
			stream && !tty);
	if (own && tty)
		r = json_object_set_new(own, "tty",
					json_pack("{s:I, s:I}", "rows", (json_int_t)rows, "cols", (json_int_t)cols));
	if (!own || r < 0)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a command");
	r = exec_request_read(b, own, ret, e);
	if (r == 0 && tty)
		(*ret)->background = true; /* as for every terminal */
	return r;
}

void noid_exec_end(const struct exec *x, bool truncated, struct json *j)
{
	if (exec_timed_out(x))
		jout_null(j, "exit_code");
	else
		jout_i64(j, "exit_code", exec_exit_code(x));
	jout_bool(j, "timed_out", exec_timed_out(x));
	jout_bool(j, "truncated", truncated);
}

struct waiter {
	struct call *c;
	struct exec_watch watch;
};

static void answer(struct call *c)
{
	AUTO(buf_done) struct buf out = BUF_INIT(API_ANSWER_MAX);
	struct json j = JSON_INIT(&out);
	uint64_t dropped[2] = { 0, 0 };
	struct exec *x = c->exec;
	const struct err *fail = exec_failure(x);
	struct err e = { 0 };
	char why[256];
	int r = 0;

	if (fail && fail->kind != ERR_REFUSED) {
		e = *fail;
		call_fail(c, &e);
		return;
	}
	if (call_room(c, 0, &e) < 0) {
		call_fail_done(c, &e);
		return;
	}
	jout_object(&j, NULL);
	if (fail) { /* a shell would report this, and end with 127 or 126 */
		snprintf(why, sizeof(why), "%s\n", fail->msg);
		jout_str(&j, "stdout", "");
		jout_str(&j, "stderr", why);
	} else {
		r = exec_write_output(x, &j, dropped);
	}
	noid_exec_end(x, dropped[0] || dropped[1], &j);
	jout_end(&j);
	if (r == 0)
		r = jout_done(&j);
	if (r < 0) {
		err_sys(&e, ERR_EXHAUSTED, r, "put the result together");
		call_fail_done(c, &e);
		return;
	}
	if (call_room(c, out.len, &e) < 0) {
		call_fail_done(c, &e);
		return;
	}
	call_audited(c);
	call_json(c, 200, &out);
}

static void on_change(void *arg, struct exec *x)
{
	struct waiter *w = arg;
	struct call *c = w->c;

	if (!exec_over(x))
		return;
	exec_unwatch(&w->watch);
	free(w);
	answer(c);
}

static void exec_body(struct call *c, const char *data, size_t len)
{
	AUTO(exec_request_free) struct exec_request *request = NULL;
	struct waiter *w;
	struct err e = { 0 };
	int r = noid_exec_request(c->sandbox, data, len, false, &request, &e);

	if (r == 0)
		r = exec_new(c->sandbox, &c->who, TAKE_PTR(request), NULL, &c->exec, &e);
	if (r < 0) {
		call_fail(c, &e);
		return;
	}
	w = calloc(1, sizeof(*w));
	if (!w)
		abort();
	w->c = c;
	c->pending = true;
	exec_watch(c->exec, &w->watch, on_change, w);
}

void noid_post_exec(void *arg, struct http_req *q, const struct route *r)
{
	struct call *c = call_new(arg, q, r);

	if (noid_vm(c) == 0)
		call_body(c, exec_body);
}
