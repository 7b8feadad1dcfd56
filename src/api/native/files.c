/* Files of a sandbox: one path, an operation by method and ?op=. Archives are in archive.c. */
#include "api/native/native.h"
#include "api/native/file_call.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/str.h"
#include "service/state/event.h"
#include "service/state/json_read.h"
#include "service/secret/secret.h"

#include <sys/stat.h>

#define LIST_MAX 10000U
#define DEPTH_MAX 64U

/* --- shared functions --- */

void file_call_free(struct file_call *f)
{
	api_stream_remove(&f->registered);
	buf_done(&f->out);
	free(f->path);
	free(f);
}

static void file_call_gone(struct call *c)
{
	struct file_call *f = c->data;

	if (f->op)
		file_cancel(f->op);
	turn_cancel(&c->wait);
	file_call_free(f);
}

/* Finds sandbox, path and user. NULL: the call has been answered. */
struct file_call *file_call_new(void *arg, struct http_req *q, const struct route *r)
{
	struct call *c = call_new(arg, q, r);
	const char *path = http_query(q, "path"), *user = http_query(q, "user");
	struct err e = { 0 };
	struct file_call *f;

	if (call_sandbox(c) < 0)
		return NULL;
	f = calloc(1, sizeof(*f));
	if (!f)
		abort();
	f->c = c;
	f->user = sandbox_view(c->sandbox).request->user;
	f->out = (struct buf)BUF_INIT(16 * MIB);
	f->json = (struct json)JSON_INIT(&f->out);
	if (!path || !*path)
		err_set(&e, ERR_INVALID, -EINVAL, "missing query parameter 'path'");
	else if (strlen(path) >= FILE_PATH_MAX)
		err_set(&e, ERR_INVALID, -ENAMETOOLONG, "path must be at most %u bytes", FILE_PATH_MAX - 1);
	else if (user)
		user_parse_ids(user, &f->user, &e);
	if (!e.msg[0])
		sandbox_ready(c->sandbox, &e);
	if (e.msg[0]) {
		file_call_fail(f, &e);
		return NULL;
	}
	f->path = strdup(path);
	if (!f->path)
		abort();
	c->data = f;
	c->gone = file_call_gone;
	return f;
}

void file_call_fail(struct file_call *f, const struct err *e)
{
	struct call *c = f->c;

	c->gone = NULL;
	file_call_free(f);
	call_fail(c, e);
}

static void answer_json(struct file_call *f, int status)
{
	struct call *c = f->c;
	struct buf out = f->out;

	f->out = (struct buf)BUF_INIT(0);
	c->gone = NULL;
	file_call_free(f);
	call_json(c, status, &out);
}

static void on_noted(void *arg)
{
	struct file_call *f = arg;
	struct call *c = f->c;

	call_audited(c);
	if (f->out.len) {
		answer_json(f, 200);
		return;
	}
	c->gone = NULL;
	file_call_free(f);
	call_empty(c, 204);
}

/* Something was changed: records that, then answers. */
void file_call_note(struct file_call *f, const char *kind, uint64_t bytes, const char *to)
{
	const struct file_change x = { .kind = kind, .path = f->path, .to = to, .user = f->user.text, .bytes = bytes };
	struct call *c = f->c;

	file_note(c->sandbox, &c->who, &x);
	turn_after(c->api->turn, &c->wait, on_noted, f);
}

static const char *type_name(uint32_t mode)
{
	return S_ISREG(mode) ? "file" : S_ISDIR(mode) ? "dir" : S_ISLNK(mode) ? "link" : "other";
}

static void put_entry(struct json *j, const struct file_entry *x, const char *path)
{
	char mode[8], when[32];

	snprintf(mode, sizeof(mode), "%04o", x->mode & 07777);
	clock_iso(x->mtime > 0 ? (uint64_t)x->mtime : 0, when);
	jout_object(j, NULL);
	jout_str(j, "path", path);
	jout_str(j, "type", type_name(x->mode));
	jout_u64(j, "size", x->size);
	jout_str(j, "mode", mode);
	jout_u64(j, "uid", x->uid);
	jout_u64(j, "gid", x->gid);
	jout_str(j, "mtime", when);
	if (S_ISLNK(x->mode))
		jout_str(j, "target", x->target);
	jout_end(j);
}

/* --- one entry: stat, and the result of a change --- */

static void on_entry(void *arg, const struct file_entry *x)
{
	struct file_call *f = arg;

	if (!f->out.len)
		put_entry(&f->json, x, f->to ? f->to : f->path);
}

static void on_stat_done(void *arg, int r, const struct file_end *x, unsigned flags, const struct err *e)
{
	struct file_call *f = arg;

	(void)x;
	(void)flags;
	f->op = NULL;
	if (r < 0)
		file_call_fail(f, e);
	else
		answer_json(f, 200);
}

static void on_change_done(void *arg, int r, const struct file_end *x, unsigned flags, const struct err *e)
{
	struct file_call *f = arg;

	(void)flags;
	f->op = NULL;
	if (r < 0)
		file_call_fail(f, e);
	else
		file_call_note(f, f->kind, f->kind_bytes ? x->count : 0, f->to);
}

int file_call_begin(struct file_call *f, enum file_type type, unsigned flags, struct file_request *q,
		    const struct file_calls *calls)
{
	struct err e = { 0 };
	int r;

	q->path = f->path;
	r = file_begin(f->c->sandbox, &f->user, type, flags, q, calls, f, &f->op, &e);
	if (r < 0)
		file_call_fail(f, &e);
	return r;
}

static void start_stat(struct file_call *f)
{
	static const struct file_calls calls = { .entry = on_entry, .done = on_stat_done };
	struct file_request q = { 0 };

	file_call_begin(f, FILE_STAT, 0, &q, &calls);
}

/* --- list --- */

static void on_listed(void *arg, const struct file_entry *x)
{
	struct file_call *f = arg;
	char path[2 * FILE_PATH_MAX];

	if (!*x->path) { /* the folder itself */
		f->is_folder = S_ISDIR(x->mode);
		return;
	}
	snprintf(path, sizeof(path), "%s%s%s", f->path, f->path[strlen(f->path) - 1] == '/' ? "" : "/", x->path);
	put_entry(&f->json, x, path);
}

static void on_list_done(void *arg, int r, const struct file_end *x, unsigned flags, const struct err *e)
{
	struct file_call *f = arg;
	struct err why = { 0 };

	(void)x;
	f->op = NULL;
	if (r == 0 && !f->is_folder) {
		r = file_error(&why, ENOTDIR, FILE_STEP_LIST, f->path);
		e = &why;
	}
	if (r < 0) {
		file_call_fail(f, e);
		return;
	}
	jout_end(&f->json);
	jout_bool(&f->json, "truncated", flags & FILE_TRUNCATED);
	jout_end(&f->json);
	if (jout_done(&f->json) < 0) { /* long names, deep folders */
		err_set(&why, ERR_EXHAUSTED, -E2BIG, "the list does not fit into one answer");
		err_remedy(&why, "list its subfolders one by one, with depth=1");
		file_call_fail(f, &why);
		return;
	}
	answer_json(f, 200);
}

static void start_list(struct file_call *f)
{
	static const struct file_calls calls = { .entry = on_listed, .done = on_list_done };
	const char *depth = http_query(f->c->q, "depth");
	struct file_request q = { .max = LIST_MAX, .depth = 1 };
	struct err e = { 0 };
	uint64_t n = 1;

	if (depth && (parse_u64(depth, &n, &e) < 0 || n < 1 || n > DEPTH_MAX)) {
		err_set(&e, ERR_INVALID, -EINVAL, "depth must be 1 to %u", DEPTH_MAX);
		file_call_fail(f, &e);
		return;
	}
	q.depth = (uint32_t)n;
	jout_object(&f->json, NULL);
	jout_array(&f->json, "entries");
	file_call_begin(f, FILE_LIST, 0, &q, &calls);
}

/* --- read --- */

static void refuse_range(struct file_call *f, uint64_t size)
{
	struct call *c = f->c;

	http_setf(c->q, "Content-Range", "bytes */%llu", (unsigned long long)size);
	http_fail_as(c->q, WHY_BAD_RANGE, "the range starts after the end of the file", NULL, NULL);
	c->q = NULL;
	c->gone = NULL;
	file_cancel(f->op);
	file_call_free(f);
	call_free(c);
}

static void refuse_secret(struct file_call *f)
{
	struct err e = { 0 };

	err_set(&e, WHY_NOT_ALLOWED, -EACCES, "'%.100s' is a secret of this sandbox: the API does not return it",
		f->path);
	file_cancel(f->op);
	f->op = NULL;
	file_call_fail(f, &e);
}

static void on_read_entry(void *arg, const struct file_entry *x)
{
	struct file_call *f = arg;
	struct http_req *q = f->c->q;
	uint64_t left = x->size > f->offset ? x->size - f->offset : 0;

	if (f->begun)
		return;
	if (x->dev && x->dev == secrets_dev(f->c->sandbox)) {
		refuse_secret(f);
		return;
	}
	if (f->ranged && !left) {
		refuse_range(f, x->size);
		return;
	}
	f->begun = true;
	if (left > f->length)
		left = f->length;
	f->left = left;
	http_set(q, "Accept-Ranges", "bytes");
	http_setf(q, "X-Cloche-Stat", "mode=%04o uid=%u gid=%u mtime=%lld", x->mode & 07777, x->uid, x->gid,
		  (long long)(x->mtime / 1000000000));
	if (f->ranged)
		http_setf(q, "Content-Range", "bytes %llu-%llu/%llu", (unsigned long long)f->offset,
			  (unsigned long long)(f->offset + left - 1), (unsigned long long)x->size);
	if (f->head)
		http_setf(q, "X-Cloche-Size", "%llu", (unsigned long long)x->size);
	http_begin(q, f->ranged ? 206 : 200, "application/octet-stream", (int64_t)(f->head ? x->size : left));
	http_set_drain(q, f->on_drain, f);
}

static void on_read_drain(void *arg)
{
	struct file_call *f = arg;

	if (f->op)
		file_go(f->op);
}

static void on_read_data(void *arg, const uint8_t *p, size_t len)
{
	struct file_call *f = arg;

	if (len > f->left)
		len = (size_t)f->left;
	f->left -= len;
	if (f->head || !len)
		return;
	http_write(f->c->q, p, len);
	if (http_queued(f->c->q) > HTTP_HIGH)
		file_hold(f->op);
}

static void on_read_done(void *arg, int r, const struct file_end *x, unsigned flags, const struct err *e)
{
	struct file_call *f = arg;
	struct call *c = f->c;

	(void)x;
	(void)flags;
	f->op = NULL;
	if (!f->begun) {
		file_call_fail(f, e);
		return;
	}
	/* Less than was announced: the client must notice. */
	if (r < 0 || (f->left && !f->head))
		http_cut(c->q);
	else
		http_end(c->q);
	c->q = NULL;
	c->gone = NULL;
	file_call_free(f);
	call_free(c);
}

/* Reads "bytes=A-B", "bytes=A-". Other ranges are ignored, as the standard allows. */
static void read_range(struct file_call *f)
{
	const char *h = http_header(f->c->q, "Range");
	unsigned long long from, to;

	f->length = FILE_ALL;
	if (!h || strncmp(h, "bytes=", 6) || strchr(h, ',') || strspn(h + 6, "0123456789-") != strlen(h + 6))
		return;
	if (sscanf(h + 6, "%llu-%llu", &from, &to) == 2 && to >= from) {
		f->length = to - from + 1;
	} else if (sscanf(h + 6, "%llu-", &from) != 1 || h[6] == '-') {
		return;
	}
	f->offset = from;
	f->ranged = true;
}

static void start_read(struct file_call *f)
{
	static const struct file_calls calls = { .entry = on_read_entry, .data = on_read_data, .done = on_read_done };
	struct file_request q = { 0 };

	f->head = http_method(f->c->q) == HTTP_M_HEAD;
	f->on_drain = on_read_drain;
	read_range(f);
	q.offset = f->offset;
	q.length = f->head ? 0 : f->length;
	file_call_begin(f, FILE_READ, 0, &q, &calls);
}

void get_files(void *arg, struct http_req *q, const struct route *r)
{
	const char *op = http_query(q, "op");
	struct file_call *f = file_call_new(arg, q, r);
	struct err e = { 0 };

	if (!f)
		return;
	if (!op)
		start_read(f);
	else if (!strcmp(op, "stat"))
		start_stat(f);
	else if (!strcmp(op, "list"))
		start_list(f);
	else if (!strcmp(op, "archive"))
		archive_out(f);
	else if (!strcmp(op, "watch"))
		watch_files(f);
	else {
		err_set(&e, ERR_INVALID, -EINVAL,
			"op must be stat, list, archive or watch, or be left out to read the file (got '%.40s')", op);
		file_call_fail(f, &e);
	}
}

/* --- write --- */

static void on_body(void *arg, const char *p, size_t len)
{
	struct call *c = arg;
	struct file_call *f = c->data;

	file_feed(f->op, p, len);
	if (file_queued(f->op) > FILE_HIGH)
		http_body_pause(c->q);
}

static void on_body_end(void *arg)
{
	struct call *c = arg;
	struct file_call *f = c->data;

	file_feed_end(f->op);
}

static void on_write_drain(void *arg)
{
	struct file_call *f = arg;

	if (f->c->q)
		http_body_resume(f->c->q);
}

static int read_mode(const struct http_req *q, uint32_t *ret, unsigned *flags, struct err *e)
{
	const char *text = http_query(q, "mode");
	uint32_t mode = 0;

	if (!text)
		return 0;
	if (!*text || strlen(text) > 5 || strspn(text, "01234567") != strlen(text))
		return err_set(e, ERR_INVALID, -EINVAL, "mode must be octal, as 0644 (got '%.40s')", text);
	for (const char *p = text; *p; p++)
		mode = mode * 8 + (uint32_t)(*p - '0');
	*ret = mode & 0777;
	*flags |= FILE_MODE;
	return 0;
}

/* A PUT with op=extract, which must be a POST, is refused instead of writing the archive as a file. */
static bool no_op(struct file_call *f, struct http_req *q)
{
	struct err e = { 0 };

	if (!http_query(q, "op"))
		return true;
	err_set(&e, ERR_INVALID, -EINVAL, "op must be left out with PUT and DELETE");
	err_remedy(&e, "POST accepts mkdir, move and extract; GET accepts stat, list, archive and watch");
	file_call_fail(f, &e);
	return false;
}

void put_files(void *arg, struct http_req *q, const struct route *r)
{
	static const struct file_calls calls = { .entry = on_entry, .drain = on_write_drain, .done = on_change_done };
	struct file_call *f = file_call_new(arg, q, r);
	struct file_request req = { 0 };
	bool parents = true, append = false, exclusive = false;
	struct err e = { 0 };
	unsigned flags = 0;

	if (!f || !no_op(f, q))
		return;
	if (api_flag(q, "mkdirs", &parents, &e) < 0 || api_flag(q, "append", &append, &e) < 0 ||
	    api_flag(q, "exclusive", &exclusive, &e) < 0 || read_mode(q, &req.mode, &flags, &e) < 0) {
		file_call_fail(f, &e);
		return;
	}
	flags |= (parents ? FILE_PARENTS : 0) | (append ? FILE_APPEND : 0) | (exclusive ? FILE_EXCLUSIVE : 0);
	f->kind = "file.write";
	f->kind_bytes = true;
	if (file_call_begin(f, FILE_WRITE, flags, &req, &calls) == 0)
		http_stream_body(q, on_body, on_body_end, f->c);
}

/* --- the other changes --- */

static void move_body(struct call *c, const char *data, size_t len)
{
	static const struct file_calls calls = { .entry = on_entry, .done = on_change_done };
	AUTO(json_decref) json_t *o = NULL;
	struct file_call *f = c->data;
	struct file_request q = { 0 };
	struct err e = { 0 };
	const char *to = NULL;
	int r = json_read_begin(data, len, &o, &e);

	if (r == 0) {
		struct json_read j = JIN_INIT(o, &e);

		if (!json_read_str(&j, "to", &to, FILE_PATH_MAX - 1) || !*to)
			json_read_bad(&j, "to", "is required");
		r = json_read_end(&j);
	}
	if (r < 0) {
		file_call_fail(f, &e);
		return;
	}
	snprintf(f->to_buf, sizeof(f->to_buf), "%s", to);
	f->to = f->to_buf;
	f->kind = "file.move";
	q.to = f->to;
	file_call_begin(f, FILE_MOVE, FILE_PARENTS, &q, &calls);
}

static void start_mkdir(struct file_call *f)
{
	static const struct file_calls calls = { .entry = on_entry, .done = on_change_done };
	struct file_request q = { 0 };
	unsigned flags = FILE_PARENTS;
	struct err e = { 0 };

	f->kind = "file.mkdir";
	if (read_mode(f->c->q, &q.mode, &flags, &e) < 0)
		file_call_fail(f, &e);
	else
		file_call_begin(f, FILE_MKDIR, flags, &q, &calls);
}

void post_files(void *arg, struct http_req *q, const struct route *r)
{
	const char *op = http_query(q, "op");
	struct file_call *f = file_call_new(arg, q, r);
	struct err e = { 0 };

	if (!f)
		return;
	if (op && !strcmp(op, "mkdir"))
		start_mkdir(f);
	else if (op && !strcmp(op, "move"))
		call_body(f->c, move_body);
	else if (op && !strcmp(op, "extract"))
		archive_in(f);
	else {
		err_set(&e, ERR_INVALID, -EINVAL, "op must be mkdir, move or extract");
		if (!op)
			err_remedy(&e, "PUT writes a file");
		file_call_fail(f, &e);
	}
}

void delete_files(void *arg, struct http_req *q, const struct route *r)
{
	static const struct file_calls calls = { .done = on_change_done };
	struct file_call *f = file_call_new(arg, q, r);
	struct file_request req = { 0 };
	bool recursive = false;
	struct err e = { 0 };

	if (!f || !no_op(f, q))
		return;
	if (api_flag(q, "recursive", &recursive, &e) < 0) {
		file_call_fail(f, &e);
		return;
	}
	f->kind = "file.remove";
	file_call_begin(f, FILE_REMOVE, recursive ? FILE_RECURSIVE : 0, &req, &calls);
}
