/* Noid's WebSockets: a command with its streams, and the VM's console. */
#include "api/attach.h"
#include "api/noid/noid.h"
#include "base/base.h"
#include "service/state/json_read.h"

/*
 * Noid's console is a machine's; here it is a login shell with a terminal: one per VM, which survives the connection.
 */
static const char *const console_argv[] = { "/bin/sh", "-c",
					    "command -v bash >/dev/null && exec bash -l; exec /bin/sh -l" };

static int read_request(const struct sandbox *b, const char *data, size_t len, struct exec_request **ret, struct err *e)
{
	return noid_exec_request(b, data, len, true, ret, e);
}

/* Noid has no message for the end of stdin; the native one is accepted. */
static int read_text(struct exec *x, const char *data, size_t len, struct err *e)
{
	AUTO(json_decref) json_t *o = NULL;
	const char *type = "";
	int r = json_read_begin(data, len, &o, e);
	struct json_read j;

	if (r < 0)
		return r;
	j = (struct json_read)JIN_INIT(o, e);
	if (json_read_str(&j, "type", &type, 32) && !strcmp(type, "stdin_close"))
		exec_close_stdin(x);
	return j.r;
}

static void write_result(struct exec *x, bool gaps, struct json *j)
{
	jout_object(j, NULL);
	noid_exec_end(x, gaps, j);
	jout_end(j);
}

static void write_error(const struct who *who, const struct err *e, struct json *j)
{
	(void)who;
	noid_error(j, e->msg, e->remedy);
}

static const struct attach_kind exec_kind = {
	.request = read_request,
	.text = read_text,
	.result = write_result,
	.error = write_error,
	.json_size = true,
	.lenient = true,
	.refusal_ends = true,
	.owner = true,
};

static const struct attach_kind console_kind = {
	.error = write_error,
	.json_size = true,
	.lenient = true,
};

/* -EPROTO: the call has been answered and ended. */
static int need_upgrade(struct call *c)
{
	if (http_is_ws(c->q))
		return 0;
	http_set(c->q, "Upgrade", "websocket");
	http_fail_as(c->q, WHY_UPGRADE_REQUIRED, "WebSocket upgrade required", NULL, NULL);
	call_free(c);
	return -EPROTO;
}

void noid_ws_exec(void *arg, struct http_req *q, const struct route *r)
{
	struct call *c = call_new(arg, q, r);

	if (noid_vm(c) == 0 && need_upgrade(c) == 0)
		attach_ws(c, &exec_kind, NULL);
}

static int start_console(struct call *c, struct err *e)
{
	AUTO(exec_request_free) struct exec_request *w = NULL;
	AUTO(json_decref) json_t *o = NULL;
	int r;

	o = json_pack("{s:[sss], s:s, s:b, s:b, s:i}", "cmd", console_argv[0], console_argv[1], console_argv[2], "user",
		      "root", "tty", 1, "background", 1, "timeout", 0);
	if (!o)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a console");
	r = exec_request_read(c->sandbox, o, &w, e);
	return r < 0 ? r : exec_new(c->sandbox, &c->who, TAKE_PTR(w), NULL, &c->exec, e);
}

void noid_ws_console(void *arg, struct http_req *q, const struct route *r)
{
	struct call *c = call_new(arg, q, r);
	struct err e = { 0 };

	if (noid_vm(c) < 0 || need_upgrade(c) < 0)
		return;
	for (struct exec *x = exec_first(c->sandbox); x && !c->exec; x = exec_next(x))
		if (exec_is_terminal_of(x, console_argv, ARRAY_LEN(console_argv)))
			c->exec = x;
	if (c->exec) {
		exec_ref(c->exec);
	} else if (start_console(c, &e) < 0) {
		call_fail(c, &e);
		return;
	}
	attach_ws(c, &console_kind, &(struct attach_from){ 0 });
}
