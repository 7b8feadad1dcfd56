/*
 * The audit log over HTTP. Each turn of the loop reads one bounded stretch, so that a filter with few matches in a long
 * log does not block other requests. A worker verifies the whole log.
 */
#include "api/native/native.h"
#include "base/base.h"
#include "base/str.h"

#define LIMIT_DEFAULT 1000
#define LIMIT_MAX 10000
#define PAGE_BYTES (8 * MIB) /* bytes of a JSON answer; a longer one is cut, and continues at `next` */

struct page {
	struct call *c;
	struct audit_filter filter;
	uint64_t last; /* the last record read */
	uint64_t end; /* end of the log at the time of the request */
	uint64_t left; /* records that are still to be sent */
	bool lines; /* one record per line, as they are read */
	bool waiting; /* waiting for the client to read */
	bool full;
	struct buf out;
	struct json json;
};

static void page_free(struct page *p)
{
	turn_cancel(&p->c->wait);
	buf_done(&p->out);
	free(p);
}

static void page_gone(struct call *c)
{
	page_free(c->data);
}

static int on_record(void *arg, uint64_t seq, const char *line, size_t len)
{
	struct page *p = arg;

	if (seq > p->end) {
		p->full = true;
		return 1;
	}
	p->last = seq;
	p->left--;
	if (!p->lines) {
		jout_raw(&p->json, NULL, line, len);
		p->full = p->out.len > PAGE_BYTES;
		return p->full;
	}
	http_write(p->c->q, line, len);
	http_write(p->c->q, "\n", 1);
	return http_queued(p->c->q) >= HTTP_HIGH;
}

static void finish(struct page *p)
{
	const struct audit_head *h = audit_head(p->c->api->audit);
	AUTO(buf_done) struct buf out = p->out;
	struct json j = p->json;
	struct call *c = p->c;
	bool more = p->last < p->end;
	uint64_t next = p->last;

	p->out = (struct buf){ 0 };
	j.buf = &out;
	page_free(p);
	c->gone = NULL;
	jout_end(&j);
	jout_object(&j, "head");
	jout_u64(&j, "seq", h->seq);
	jout_str(&j, "hash", h->hash);
	jout_end(&j);
	if (more)
		jout_u64(&j, "next", next);
	else
		jout_null(&j, "next");
	jout_end(&j);
	call_list(c, &j);
}

static void finish_lines(struct page *p)
{
	struct call *c = p->c;

	page_free(p);
	http_end(c->q);
	c->q = NULL;
	call_free(c);
}

static void step(void *arg)
{
	struct page *p = arg;
	struct call *c = p->c;
	struct err e = { 0 };
	uint64_t last = p->last;
	int r = 0;

	if (p->last < p->end && p->left)
		r = audit_read(c->api->audit, p->last, p->left, &p->filter, on_record, p, &last, &e);
	if (r < 0) {
		page_free(p);
		c->gone = NULL;
		if (http_queued(c->q)) { /* a part is still being sent */
			http_cut(c->q);
			c->q = NULL;
			call_free(c);
		} else {
			call_fail(c, &e);
		}
		return;
	}
	/* At the end of the range, or stopped in the middle, where on_record has set the position. */
	if (r == 0 && p->left && last > p->last)
		p->last = last < p->end ? last : p->end;
	if (p->last < p->end && p->left && !p->full) {
		p->waiting = p->lines && http_queued(c->q) >= HTTP_HIGH;
		if (!p->waiting)
			turn_after(c->api->turn, &c->wait, step, p);
		return;
	}
	if (p->lines)
		finish_lines(p);
	else
		finish(p);
}

static void on_drain(void *arg)
{
	struct page *p = arg;

	if (!p->waiting)
		return;
	p->waiting = false;
	turn_after(p->c->api->turn, &p->c->wait, step, p);
}

/* All records so far are in the file now: its size is the end of the range. */
static void first_step(void *arg)
{
	struct page *p = arg;
	struct call *c = p->c;

	p->end = audit_written(c->api->audit);
	if (p->lines) {
		http_begin(c->q, 200, "application/x-ndjson", -1);
		http_set_drain(c->q, on_drain, p);
	}
	step(p);
}

static int read_query(struct call *c, struct page *p, struct err *e)
{
	const char *after = http_query(c->q, "after"), *limit = http_query(c->q, "limit");
	const char *accept = http_header(c->q, "Accept");
	uint64_t max;

	p->lines = accept && strstr(accept, "application/x-ndjson");
	p->left = p->lines ? UINT64_MAX : LIMIT_DEFAULT;
	max = p->lines ? UINT64_MAX : LIMIT_MAX;
	p->filter = (struct audit_filter){ .kind = http_query(c->q, "kind"),
					   .sandbox = http_query(c->q, "sandbox"),
					   .tenant = http_query(c->q, "tenant") };
	if (after && parse_u64(after, &p->last, NULL) < 0)
		return err_set(e, ERR_INVALID, -EINVAL, "after must be the number of a record");
	if (limit && (parse_u64(limit, &p->left, NULL) < 0 || !p->left || p->left > max))
		return err_set(e, ERR_INVALID, -EINVAL, p->lines ? "limit must be at least 1" : "limit must be 1 to %d",
			       LIMIT_MAX);
	return 0;
}

void get_audit(void *arg, struct http_req *q, const struct route *r)
{
	struct call *c = call_new(arg, q, r);
	struct page *p = calloc(1, sizeof(*p));
	struct err e = { 0 };

	if (!p)
		abort();
	p->c = c;
	if (read_query(c, p, &e) < 0) {
		free(p);
		call_fail(c, &e);
		return;
	}
	p->out = (struct buf)BUF_INIT(PAGE_BYTES + MIB);
	p->json = (struct json)JSON_INIT(&p->out);
	if (!p->lines) {
		jout_object(&p->json, NULL);
		jout_array(&p->json, "records");
	}
	c->data = p;
	c->gone = page_gone;
	turn_after(c->api->turn, &c->wait, first_step, p);
}

/* --- verify --- */

struct verify {
	uv_work_t work;
	struct call *c;
	char path[PATH_MAX];
	struct audit_head before;
	struct audit_verdict verdict;
	struct err e;
	int r;
};

static void verify_work(uv_work_t *work)
{
	struct verify *v = work->data;

	v->r = audit_verify(v->path, &v->verdict, &v->e);
}

/* A file can be a valid chain and still not be this daemon's. */
static void compare(struct verify *v, const struct audit *a)
{
	const struct audit_head *now = audit_head(a), *seen = &v->verdict.head;

	/* A line that was being written at that moment is no error. */
	if (v->r < 0 && v->verdict.torn && audit_written(a) > seen->seq)
		v->r = 0;
	if (v->r < 0)
		return;
	if (seen->seq < v->before.seq)
		v->r = err_set(&v->e, ERR_INTERNAL, -EBADMSG, "the log ends with record %llu, but %llu were written",
			       (unsigned long long)seen->seq, (unsigned long long)v->before.seq);
	else if ((seen->seq == v->before.seq && strcmp(seen->hash, v->before.hash)) ||
		 (seen->seq == now->seq && strcmp(seen->hash, now->hash)))
		v->r = err_set(&v->e, ERR_INTERNAL, -EBADMSG,
			       "record %llu is intact, but it is not the one that was written",
			       (unsigned long long)seen->seq);
}

static void verify_done(uv_work_t *work, int status)
{
	AUTO(buf_done) struct buf out = BUF_INIT(16 * KIB);
	struct verify *v = work->data;
	struct json j = JSON_INIT(&out);
	struct call *c = v->c;

	c->api->verifying = false;
	if (status < 0)
		v->r = err_set(&v->e, ERR_INTERNAL, status, "the check was cancelled");
	else
		compare(v, c->api->audit);
	jout_object(&j, NULL);
	jout_bool(&j, "ok", v->r == 0);
	jout_u64(&j, "records", v->verdict.records);
	jout_object(&j, "head");
	jout_u64(&j, "seq", v->verdict.head.seq);
	jout_str(&j, "hash", v->verdict.head.hash);
	jout_end(&j);
	jout_str(&j, "error", v->r < 0 ? v->e.msg : NULL);
	jout_end(&j);
	free(v);
	call_json(c, 200, &out);
}

static void verify_start(void *arg)
{
	struct verify *v = arg;
	struct call *c = v->c;
	struct err e = { 0 };
	int r;

	v->before = *audit_head(c->api->audit);
	r = uv_queue_work(c->api->loop, &v->work, verify_work, verify_done);
	if (r == 0)
		return;
	c->api->verifying = false;
	free(v);
	err_sys(&e, ERR_EXHAUSTED, r, "check the audit log");
	call_fail(c, &e);
}

void get_audit_verify(void *arg, struct http_req *q, const struct route *r)
{
	struct call *c = call_new(arg, q, r);
	struct verify *v;
	struct err e = { 0 };

	/* There are few worker threads, and the store and the log need them, too. */
	if (c->api->verifying) {
		err_set(&e, ERR_EXHAUSTED, -EBUSY, "another check of the audit log is in progress");
		call_fail(c, &e);
		return;
	}
	v = calloc(1, sizeof(*v));
	if (!v)
		abort();
	v->c = c;
	v->work.data = v;
	snprintf(v->path, sizeof(v->path), "%s/audit.log", service_opts(c->api->s)->data);
	c->api->verifying = true;
	c->pending = true;
	turn_after(c->api->turn, &c->wait, verify_start, v);
}
