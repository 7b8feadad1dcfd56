/* WebSockets of the native dialect. */
#include "api/attach.h"
#include "api/native/native.h"
#include "base/base.h"
#include "base/str.h"
#include "service/state/json_read.h"

/* The first text is a body of POST …/execs. */
static int read_request(const struct sandbox *b, const char *data, size_t len, struct exec_request **ret, struct err *e)
{
	AUTO(json_decref) json_t *from = NULL;
	int r = json_read_begin(data, len, &from, e);

	return r < 0 ? r : exec_request_read(b, from, ret, e);
}

static int read_text(struct exec *x, const char *data, size_t len, struct err *e)
{
	AUTO(json_decref) json_t *o = NULL;
	const char *type = "", *sig = "TERM";
	uint64_t rows = 24, cols = 80;
	struct json_read j;
	int r = json_read_begin(data, len, &o, e), n;

	if (r < 0)
		return r;
	j = (struct json_read)JIN_INIT(o, e);
	json_read_str(&j, "type", &type, 32);
	json_read_str(&j, "signal", &sig, 16);
	json_read_u64(&j, "rows", &rows, 1, 10000);
	json_read_u64(&j, "cols", &cols, 1, 10000);
	r = json_read_end(&j);
	if (r < 0)
		return r;
	if (!strcmp(type, "stdin_close")) {
		exec_close_stdin(x);
	} else if (!strcmp(type, "resize")) {
		return exec_resize(x, (uint32_t)rows, (uint32_t)cols, e);
	} else if (!strcmp(type, "signal")) {
		n = signal_parse(sig);
		if (n < 0)
			return err_set(e, WHY_BAD_FIELD, -EINVAL, "'signal': unknown signal '%.20s'", sig);
		return exec_signal(x, n, EXEC_TREE, e);
	} else {
		return err_set(e, WHY_BAD_FIELD, -EINVAL, "'type' must be signal, stdin_close or resize");
	}
	return 0;
}

static void write_result(struct exec *x, bool gaps, struct json *j)
{
	(void)gaps; /* each gap was reported already */
	jout_object(j, NULL);
	jout_str(j, "type", "result");
	exec_write_result(x, 0, j);
	jout_end(j);
}

static void write_gap(const struct exec *x, enum exec_stream s, uint64_t offset, uint64_t lost, struct json *j)
{
	jout_object(j, NULL);
	jout_str(j, "type", "gap");
	jout_str(j, "stream", s == EXEC_ERR ? "stderr" : exec_has_tty(x) ? "tty" : "stdout");
	jout_u64(j, "offset", offset);
	jout_u64(j, "lost", lost);
	jout_end(j);
}

static void write_error(const struct who *who, const struct err *e, struct json *j)
{
	jout_object(j, NULL);
	jout_str(j, "type", "error");
	dto_error(j, "error", e, who->request_id);
	jout_end(j);
}

static const struct attach_kind kind = {
	.request = read_request,
	.text = read_text,
	.result = write_result,
	.gap = write_gap,
	.error = write_error,
	.says_started = true,
};

void get_exec_attach(void *arg, struct http_req *q, const struct route *r)
{
	const char *out = http_query(q, "offset"), *err = http_query(q, "stderr_offset");
	struct attach_from from = { .given = out != NULL };
	struct call *c = call_new(arg, q, r);
	struct err e = { 0 };

	if (call_exec(c) < 0)
		return;
	if ((out && parse_u64(out, &from.out, &e) < 0) || (err && parse_u64(err, &from.err, &e) < 0))
		call_fail(c, &e);
	else
		attach_ws(c, &kind, &from);
}

void get_execs_attach(void *arg, struct http_req *q, const struct route *r)
{
	struct call *c = call_new(arg, q, r);

	if (call_sandbox(c) == 0)
		attach_ws(c, &kind, NULL);
}
