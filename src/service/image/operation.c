/* The list of operations, their events, and their watches. */
#include "service/image/operation.h"
#include "base/base.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/id.h"
#include "service/image/book.h"
#include "service/struct.h"

#define EVENTS_MAX 16384U
#define BYTES_MAX (8 * MIB) /* bytes of one operation's events; the oldest are dropped */

struct past {
	struct past *next;
	uint64_t seq;
	char kind[24];
	size_t len;
	char json[];
};

struct operation {
	struct service *s;
	struct tenant *tenant;
	char id[ID_SIZE], kind[16], request_id[65];
	char *what, *progress, *result; /* ->progress: JSON fields without braces; ->result: JSON; NULL: none */
	enum operation_state state;
	struct err e; /* the error, if it failed */
	uint64_t created_ns, ended_ns, seq, dropped; /* ->dropped: number of events that are not kept any more */
	bool canceling;
	struct past *first, **last;
	unsigned npast;
	size_t bytes;
	struct operation_watch *watches;
	void (*cancel)(void *arg);
	void *arg;
};

static const char *const states[] = { "running", "done", "failed", "canceled" };

const char *operation_state_name(enum operation_state s)
{
	return states[s];
}

const char *operation_id(const struct operation *o)
{
	return o->id;
}

static void drop_oldest(struct operation *o)
{
	struct past *x = o->first;

	o->first = x->next;
	if (!o->first)
		o->last = &o->first;
	o->npast--;
	o->bytes -= x->len;
	o->dropped++;
	free(x);
}

static void operation_free(struct operation *o)
{
	while (o->first)
		drop_oldest(o);
	while (o->watches)
		operation_unlisten(o->watches);
	free(o->what);
	free(o->progress);
	free(o->result);
	free(o);
}

/* Removes the operation that ended first when there are too many; ids are ordered by time. */
static void make_room(struct service *s, const struct tenant *t)
{
	struct operation *o, *oldest = NULL;
	unsigned n = 0;
	size_t at = 0;

	while ((o = map_next(&s->images->operations, &at)))
		if (o->tenant == t && o->state != OPERATION_RUNNING) {
			n++;
			if (!oldest || o->ended_ns < oldest->ended_ns)
				oldest = o;
		}
	if (n < OPERATIONS_ENDED)
		return;
	map_del(&s->images->operations, oldest->id);
	operation_free(oldest);
}

int operation_begin(struct service *s, const struct who *who, const struct operation_new *n, struct operation **ret,
		    struct err *e)
{
	struct operation *o;
	unsigned running = 0;
	size_t at = 0;
	int r;

	while ((o = map_next(&s->images->operations, &at)))
		running += o->tenant == who->tenant && o->state == OPERATION_RUNNING;
	if (running >= OPERATIONS_RUNNING) {
		err_set(e, ERR_EXHAUSTED, -EAGAIN, "%u operations of this tenant are running, which is the limit",
			running);
		err_remedy(e, "wait for one to end, or cancel one");
		return -EAGAIN;
	}
	o = calloc(1, sizeof(*o));
	if (!o || !(o->what = strdup(n->what)))
		abort();
	o->s = s;
	o->tenant = who->tenant;
	o->cancel = n->cancel;
	o->arg = n->arg;
	o->last = &o->first;
	o->created_ns = clock_real_ns();
	snprintf(o->kind, sizeof(o->kind), "%s", n->kind);
	snprintf(o->request_id, sizeof(o->request_id), "%s", who->request_id);
	r = id_new(o->id, sizeof(o->id));
	if (r < 0 || map_put(&s->images->operations, o->id, o) < 0) {
		operation_free(o);
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for an operation");
	}
	*ret = o;
	return 0;
}

static void tell(struct operation *o, const struct operation_event *ev)
{
	for (struct operation_watch *w = o->watches, *next; w; w = next) {
		next = w->next;
		w->fn(w->arg, ev);
	}
}

/* {"operation","kind","time", …fields} */
static char *event_text(const struct operation *o, const char *kind, const char *fields)
{
	AUTO(buf_done) struct buf b = BUF_INIT(4 * MIB);
	struct json j = JSON_INIT(&b);
	char when[32];

	clock_iso(clock_real_ns(), when);
	jout_object(&j, NULL);
	jout_str(&j, "operation", o->id);
	jout_str(&j, "kind", kind);
	jout_str(&j, "time", when);
	jout_end(&j);
	if (jout_done(&j) < 0)
		return NULL;
	if (*fields) {
		buf_cut(&b, b.len - 1);
		if (buf_addf(&b, ",%s}", fields) < 0)
			return NULL;
	}
	return buf_take(&b);
}

static void add_event(struct operation *o, const char *kind, const char *fields, bool last)
{
	AUTO_FREE char *text = event_text(o, kind, fields);
	struct operation_event ev = { .kind = kind, .json = text, .last = last };
	size_t len = text ? strlen(text) : 0;
	struct past *x = text ? malloc(sizeof(*x) + len + 1) : NULL;

	if (!text)
		return;
	ev.seq = ++o->seq;
	if (x) {
		*x = (struct past){ .seq = ev.seq, .len = len };
		snprintf(x->kind, sizeof(x->kind), "%s", kind);
		memcpy(x->json, text, len + 1);
		*o->last = x;
		o->last = &x->next;
		o->npast++;
		o->bytes += len;
		while (o->npast > EVENTS_MAX || o->bytes > BYTES_MAX)
			drop_oldest(o);
	}
	tell(o, &ev);
}

void operation_event(struct operation *o, const char *kind, const char *fields)
{
	add_event(o, kind, fields, false);
}

void operation_progress(struct operation *o, const char *fields)
{
	AUTO_FREE char *text = event_text(o, "progress", fields);
	const struct operation_event ev = { .kind = "progress", .json = text };

	free(o->progress);
	o->progress = strdup(fields);
	if (text)
		tell(o, &ev);
}

/* How far it is, for one that has just begun to listen. */
static void tell_progress(const struct operation *o, struct operation_watch *w)
{
	AUTO_FREE char *text = o->progress ? event_text(o, "progress", o->progress) : NULL;

	if (text)
		w->fn(w->arg, &(struct operation_event){ .kind = "progress", .json = text });
}

static void put_error(struct json *j, const struct operation *o)
{
	jout_object(j, "error");
	jout_str(j, "code", err_kind_name(o->e.kind));
	jout_str(j, "reason", err_reason_name(err_reason(&o->e)));
	jout_str(j, "message", o->e.msg);
	jout_str(j, "remedy", o->e.remedy[0] ? o->e.remedy : NULL);
	jout_end(j);
}

void operation_end(struct operation *o, const char *result, const struct err *e)
{
	AUTO(buf_done) struct buf b = BUF_INIT(16 * MIB);
	struct json j = JSON_INIT(&b);

	make_room(o->s, o->tenant);
	o->state = !e ? OPERATION_DONE : o->canceling ? OPERATION_CANCELED : OPERATION_FAILED;
	o->ended_ns = clock_real_ns();
	o->cancel = NULL;
	if (e)
		o->e = *e;
	o->result = result ? strdup(result) : NULL;
	jout_object(&j, NULL);
	jout_str(&j, "state", operation_state_name(o->state));
	if (o->state == OPERATION_FAILED)
		put_error(&j, o);
	if (o->result)
		jout_raw(&j, "result", o->result, strlen(o->result));
	jout_end(&j);
	if (jout_done(&j) == 0) {
		b.data[b.len - 1] = '\0'; /* without its braces */
		add_event(o, "end", b.data + 1, true);
	}
	while (o->watches)
		operation_unlisten(o->watches);
}

/* --- for callers --- */

struct operation *operation_find(struct service *s, const struct who *who, const char *id, struct err *e)
{
	struct operation *o = map_get(&s->images->operations, id);

	if (o && (o->tenant == who->tenant || who->scope == SCOPE_ADMIN))
		return o;
	err_set(e, WHY_OPERATION_MISSING, -ENOENT, "no operation '%.64s'", id);
	return NULL;
}

static int newest_first(const void *a, const void *b)
{
	struct operation *const *x = a, *const *y = b;

	return (*x)->created_ns < (*y)->created_ns ? 1 :
	       (*x)->created_ns > (*y)->created_ns ? -1 :
						     strcmp((*x)->id, (*y)->id);
}

void operations_list(struct service *s, const struct tenant *t, struct operation ***ret, size_t *ret_n)
{
	struct operation **list = calloc(s->images->operations.count + 1, sizeof(struct operation *)), *o;
	size_t n = 0, at = 0;

	if (!list)
		abort();
	while ((o = map_next(&s->images->operations, &at)))
		if (!t || o->tenant == t)
			list[n++] = o;
	qsort(list, n, sizeof(struct operation *), newest_first);
	*ret = list;
	*ret_n = n;
}

int operation_cancel(struct operation *o, const struct who *who, struct err *e)
{
	struct audit_rec rec = who_rec(who, "operation.cancel");
	struct json *j;

	if (o->state != OPERATION_RUNNING)
		return err_set(e, WHY_ENDED, -ESRCH, "operation '%s' has ended", o->id);
	rec.tenant = o->tenant->id;
	j = audit_begin(o->s->audit, &rec);
	jout_str(j, "operation", o->id);
	audit_end(o->s->audit, NULL);
	turn_dirty(o->s->turn);
	if (!o->canceling) {
		o->canceling = true;
		o->cancel(o->arg);
	}
	return 0;
}

static void put_time(struct json *j, const char *key, uint64_t ns)
{
	char text[32];

	if (ns)
		clock_iso(ns, text);
	jout_str(j, key, ns ? text : NULL);
}

void operation_write(const struct operation *o, struct json *j)
{
	AUTO(buf_done) struct buf b = BUF_INIT(MIB);

	jout_object(j, NULL);
	jout_str(j, "id", o->id);
	jout_str(j, "kind", o->kind);
	jout_str(j, "what", o->what);
	jout_str(j, "tenant", o->tenant->id);
	jout_str(j, "state", operation_state_name(o->state));
	put_time(j, "created_at", o->created_ns);
	put_time(j, "ended_at", o->ended_ns);
	if (o->progress && buf_addf(&b, "{%s}", o->progress) == 0)
		jout_raw(j, "progress", b.data, b.len);
	else
		jout_null(j, "progress");
	if (o->state == OPERATION_FAILED)
		put_error(j, o);
	else
		jout_null(j, "error");
	if (o->result)
		jout_raw(j, "result", o->result, strlen(o->result));
	else
		jout_null(j, "result");
	jout_end(j);
}

void operation_listen(struct operation *o, uint64_t seq, struct operation_watch *w,
		      void (*fn)(void *arg, const struct operation_event *ev), void *arg)
{
	const bool ended = o->state != OPERATION_RUNNING;

	*w = (struct operation_watch){ .next = o->watches, .prev = &o->watches, .fn = fn, .arg = arg };
	if (w->next)
		w->next->prev = &w->next;
	o->watches = w;
	/* The callback may end the watch, and free it: only the list shows whether it still exists. */
	for (const struct past *x = o->first; x && o->watches == w && (!ended || x->next); x = x->next)
		if (x->seq > seq)
			fn(arg, &(struct operation_event){ .seq = x->seq, .kind = x->kind, .json = x->json });
	if (o->watches == w)
		tell_progress(o, w);
	/* Who had the last event already gets it once more: a stream without an end would be waited for. */
	for (const struct past *x = o->first; ended && x && o->watches == w; x = x->next)
		if (!x->next)
			fn(arg,
			   &(struct operation_event){ .seq = x->seq, .kind = x->kind, .json = x->json, .last = true });
	if (ended && o->watches == w)
		operation_unlisten(w);
}

void operation_unlisten(struct operation_watch *w)
{
	if (!w->prev)
		return;
	*w->prev = w->next;
	if (w->next)
		w->next->prev = w->prev;
	w->prev = NULL;
}
