/* Prints how a command ended, as text or JSON. */
#include "base/base.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/json.h"
#include "cli/run.h"
#include "engine/sandbox/enforced.h"

#include <unistd.h>

static int add_piece(void *arg, const char *data, size_t len)
{
	return buf_add(arg, data, len);
}

static int put_stream(struct json *j, const char *key, const struct capture *c)
{
	AUTO(buf_done) struct buf all = BUF_INIT(c->head.len + c->tail_len + 160);
	int r = buf_add(&all, c->head.data, c->head.len);

	if (r == 0 && capture_truncated(c))
		r = buf_addf(&all, "\n[… %llu bytes left out …]\n", (unsigned long long)capture_dropped(c));
	if (r == 0)
		r = capture_tail(c, add_piece, &all);
	if (r == 0)
		jout_strn(j, key, all.data, all.len);
	return r;
}

static void put_enforced(void *arg, const char *name, const char *how)
{
	jout_str(arg, name, how);
}

/* The limits this process keeps itself, and those of every process. */
static void put_own_limits(struct json *j, const struct options *o)
{
	const struct {
		const char *name, *unit;
		uint64_t value;
	} limits[] = { { "nofile", "per process", o->nofile },
		       { "timeout", "ms", o->timeout_ms },
		       { "cpu_time", "ms", o->cpu_ms },
		       { "output", "bytes of stdout and of stderr", o->output } };
	char text[64];

	for (size_t i = 0; i < ARRAY_LEN(limits); i++) {
		if (!limits[i].value)
			continue;
		snprintf(text, sizeof(text), "%llu %s", (unsigned long long)limits[i].value, limits[i].unit);
		jout_str(j, limits[i].name, text);
	}
	if (o->seccomp)
		jout_str(j, "seccomp_profile", o->seccomp);
}

static void put_verdict(struct json *j, const struct verdict *v)
{
	jout_object(j, "verdict");
	jout_str(j, "cause", verdict_name(v->cause));
	jout_str(j, "detail", v->detail);
	if (v->oom_kind[0])
		jout_str(j, "oom_kind", v->oom_kind);
	if (v->oom_kills)
		jout_u64(j, "oom_kills", v->oom_kills);
	if (v->warning[0])
		jout_str(j, "warning", v->warning);
	if (v->has_limit) {
		jout_u64(j, "limit", v->limit);
		jout_u64(j, "peak", v->peak);
	} else {
		jout_null(j, "limit");
		jout_null(j, "peak");
	}
	jout_end(j);
}

static void put_usage(struct json *j, const struct run *r)
{
	const struct cgroup_stat *g = &r->stat.group;

	jout_object(j, "usage");
	jout_u64(j, "wall_ms", (r->end_ns - r->start_ns) / 1000000ULL);
	jout_u64(j, "cpu_ms", (g->cpu_usec ? g->cpu_usec - r->cpu_base_usec : r->exit.cpu_usec) / 1000);
	jout_u64(j, "memory_peak", g->memory_peak ? g->memory_peak : r->exit.maxrss);
	jout_u64(j, "pids_peak", g->pids_peak);
	jout_u64(j, "disk_used", r->stat.disk_used);
	jout_u64(j, "io_bytes", g->io_bytes);
	jout_u64(j, "net_bytes", r->network.counts.bytes_out + r->network.counts.bytes_in);
	jout_end(j);
}

static int write_out(const struct buf *b, struct err *e)
{
	int r = fd_write_all(STDOUT_FILENO, b->data, b->len);

	if (r == 0)
		r = fd_write_all(STDOUT_FILENO, "\n", 1);
	return r < 0 ? err_sys(e, ERR_INTERNAL, r, "write the result") : 0;
}

int result_print(const struct run *r, struct err *e)
{
	AUTO(buf_done) struct buf b = BUF_INIT(4 * GIB);
	struct json j = JSON_INIT(&b);
	char id[ID_SIZE], when[32];
	int rc;

	rc = id_new(id, sizeof(id));
	if (rc < 0)
		return err_sys(e, ERR_INTERNAL, rc, "make an id");
	clock_iso(r->start_real_ns, when);
	jout_object(&j, NULL);
	jout_str(&j, "id", id);
	jout_i64(&j, "exit_code", r->verdict.exit_code);
	if (r->verdict.signal)
		jout_i64(&j, "signal", r->verdict.signal);
	else
		jout_null(&j, "signal");
	put_verdict(&j, &r->verdict);
	rc = put_stream(&j, "stdout", &r->out.capture);
	if (rc == 0)
		rc = put_stream(&j, "stderr", &r->err.capture);
	if (rc < 0)
		return err_sys(e, ERR_EXHAUSTED, rc, "build the output");
	jout_object(&j, "truncated");
	jout_bool(&j, "stdout", capture_truncated(&r->out.capture));
	jout_bool(&j, "stderr", capture_truncated(&r->err.capture));
	jout_u64(&j, "stdout_dropped", capture_dropped(&r->out.capture));
	jout_u64(&j, "stderr_dropped", capture_dropped(&r->err.capture));
	jout_null(&j, "full_url");
	jout_end(&j);
	put_usage(&j, r);
	network_write(&r->network, &j);
	jout_str(&j, "started_at", when);
	jout_object(&j, "enforced");
	enforced_say(r->sandbox.tier, &r->sandbox.receipt, &r->o.spec, put_enforced, &j);
	put_own_limits(&j, &r->o);
	jout_end(&j);
	jout_end(&j);
	rc = jout_done(&j);
	return rc < 0 ? err_sys(e, ERR_EXHAUSTED, rc, "write the result") : write_out(&b, e);
}

void result_print_error(const struct err *err)
{
	AUTO(buf_done) struct buf b = BUF_INIT(64 * KIB);
	struct json j = JSON_INIT(&b);

	jout_object(&j, NULL);
	jout_object(&j, "error");
	jout_str(&j, "code", err_kind_name(err->kind));
	jout_str(&j, "reason", err_reason_name(err_reason(err)));
	jout_str(&j, "message", err->msg);
	jout_str(&j, "cause", err->errnum ? strerror(err->errnum) : NULL);
	jout_str(&j, "remedy", err->remedy[0] ? err->remedy : NULL);
	jout_null(&j, "request_id");
	jout_end(&j);
	jout_end(&j);
	if (jout_done(&j) == 0)
		write_out(&b, NULL);
}
