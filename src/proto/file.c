/* Checks messages between the API process and file workers. */
#include "proto/file.h"
#include "base/base.h"
#include "proto/wire.h"

#define FLAGS_HOST                                                                                                     \
	((unsigned)FILE_PARENTS | FILE_APPEND | FILE_EXCLUSIVE | FILE_MODE | FILE_MTIME | FILE_RECURSIVE |             \
	 FILE_CONTENT | FILE_BENEATH | FILE_SPARSE | FILE_ROOTED | FILE_OVER | FILE_XATTRS)

/* The largest payload of a type from that side, or -1 when that side never sends it. */
static int room(enum file_from from, uint8_t type)
{
	bool host = from == FILE_FROM_HOST;

	switch ((enum file_type)type) {
	case FILE_STAT:
	case FILE_READ:
	case FILE_WRITE:
	case FILE_LIST:
	case FILE_MKDIR:
	case FILE_MOVE:
	case FILE_REMOVE:
	case FILE_SYMLINK:
	case FILE_LINK:
	case FILE_ATTR:
	case FILE_WATCH:
	case FILE_FIFO:
		return host ? (int)FILE_SMALL_MAX : -1;
	case FILE_DRESS:
		return host ? (int)FILE_DATA_MAX : -1;
	case FILE_ABORT:
		return host ? 0 : -1;
	case FILE_DATA:
		return FILE_DATA_MAX;
	case FILE_END:
		return host ? 0 : (int)FILE_SMALL_MAX;
	case FILE_ENTRY:
	case FILE_EVENT:
		return host ? -1 : (int)FILE_SMALL_MAX;
	case FILE_XATTR_LIST:
		return host ? -1 : (int)FILE_DATA_MAX;
	}
	return -1;
}

static bool good_flags(enum file_from from, uint8_t type, unsigned flags)
{
	if (from == FILE_FROM_WORKER)
		return !(flags & ~(type == FILE_END ? (unsigned)FILE_TRUNCATED : 0U));
	return !(flags & ~(type < FILE_ABORT ? FLAGS_HOST : 0U));
}

long file_decode(enum file_from from, const uint8_t *data, size_t len, struct file_frame *ret)
{
	struct wire_in r = { data, data + len, false };
	struct file_frame f;
	int most;

	/* Refuse as early as the bytes allow: a stranger must not make us wait for a length it made up. */
	if (len >= 1 && data[0] != FILE_VERSION)
		return -EBADMSG;
	if (len >= 2 && room(from, data[1]) < 0)
		return -EBADMSG;
	if (len < FILE_HEAD)
		return 0;
	r.at += 1;
	f.type = wire_get_u8(&r);
	f.flags = wire_get_u8(&r);
	f.flags = (uint16_t)(f.flags | wire_get_u8(&r) << 8);
	f.tag = wire_get_u32(&r);
	f.len = wire_get_u32(&r);
	most = room(from, f.type);
	if (f.len > (uint32_t)most || (f.type == FILE_DATA && !f.len) || !good_flags(from, f.type, f.flags))
		return -EBADMSG;
	if (len - FILE_HEAD < f.len)
		return 0;
	f.payload = r.at;
	*ret = f;
	return (long)(FILE_HEAD + f.len);
}

void file_head(uint8_t *out, enum file_type type, unsigned flags, uint32_t tag, uint32_t len)
{
	struct wire_out w = { out, out + FILE_HEAD, false };

	wire_put_u8(&w, FILE_VERSION);
	wire_put_u8(&w, (uint8_t)type);
	wire_put_u8(&w, (uint8_t)flags);
	wire_put_u8(&w, (uint8_t)(flags >> 8));
	wire_put_u32(&w, tag);
	wire_put_u32(&w, len);
}

static void put_path(struct wire_out *w, const char *s)
{
	if (!s)
		s = "";
	if (strlen(s) >= FILE_PATH_MAX)
		w->bad = true;
	wire_put_str(w, s);
}

static const char *get_path(struct wire_in *r)
{
	const uint8_t *start = r->at;
	const char *s = wire_get_str(r);

	if (r->at - start > (long)(FILE_PATH_MAX + 4))
		r->bad = true;
	return s;
}

static long done_out(const struct wire_out *w, const uint8_t *start)
{
	return w->bad ? -EMSGSIZE : w->at - start;
}

/* A payload must be read to its last byte: what is left over would be a second meaning. */
static int done_in(const struct wire_in *r)
{
	return r->bad || r->at != r->end ? -EBADMSG : 0;
}

static struct wire_in payload_of(const struct file_frame *f)
{
	return (struct wire_in){ f->payload, f->payload + f->len, false };
}

long file_request_encode(const struct file_request *q, uint8_t *out, size_t size)
{
	struct wire_out w = { out, out + size, false };

	wire_put_u32(&w, q->mode);
	wire_put_u32(&w, q->depth);
	wire_put_u32(&w, q->max);
	wire_put_u64(&w, q->offset);
	wire_put_u64(&w, q->length);
	wire_put_u64(&w, (uint64_t)q->mtime);
	put_path(&w, q->path);
	put_path(&w, q->to);
	put_path(&w, q->under);
	return done_out(&w, out);
}

int file_request_decode(const struct file_frame *f, struct file_request *ret)
{
	struct wire_in r = payload_of(f);
	struct file_request q;

	q.mode = wire_get_u32(&r);
	q.depth = wire_get_u32(&r);
	q.max = wire_get_u32(&r);
	q.offset = wire_get_u64(&r);
	q.length = wire_get_u64(&r);
	q.mtime = (int64_t)wire_get_u64(&r);
	q.path = get_path(&r);
	q.to = get_path(&r);
	q.under = get_path(&r);
	if (done_in(&r) < 0 || q.mode > 07777)
		return -EBADMSG;
	*ret = q;
	return 0;
}

long file_dress_encode(const struct file_dress *x, uint8_t *out, size_t size)
{
	struct wire_out w = { out, out + size, false };

	wire_put_u32(&w, x->mode);
	wire_put_u32(&w, x->uid);
	wire_put_u32(&w, x->gid);
	wire_put_u64(&w, (uint64_t)x->mtime);
	put_path(&w, x->path);
	put_path(&w, x->under);
	if (w.bad || (size_t)(w.end - w.at) < x->xattrs_len)
		return -EMSGSIZE;
	if (x->xattrs_len)
		memcpy(w.at, x->xattrs, x->xattrs_len);
	w.at += x->xattrs_len;
	return done_out(&w, out);
}

int file_dress_decode(const struct file_frame *f, struct file_dress *ret)
{
	struct wire_in r = payload_of(f);
	struct file_dress x;

	x.mode = wire_get_u32(&r);
	x.uid = wire_get_u32(&r);
	x.gid = wire_get_u32(&r);
	x.mtime = (int64_t)wire_get_u64(&r);
	x.path = get_path(&r);
	x.under = get_path(&r);
	if (r.bad || x.mode > 07777)
		return -EBADMSG;
	x.xattrs = r.at;
	x.xattrs_len = (uint32_t)(r.end - r.at);
	*ret = x;
	return 0;
}

long file_entry_encode(const struct file_entry *x, uint8_t *out, size_t size)
{
	struct wire_out w = { out, out + size, false };

	wire_put_u32(&w, x->mode);
	wire_put_u32(&w, x->uid);
	wire_put_u32(&w, x->gid);
	wire_put_u32(&w, x->nlink);
	wire_put_u32(&w, x->errnum);
	wire_put_u64(&w, x->size);
	wire_put_u64(&w, x->dev);
	wire_put_u64(&w, x->ino);
	wire_put_u64(&w, (uint64_t)x->mtime);
	put_path(&w, x->path);
	put_path(&w, x->target);
	return done_out(&w, out);
}

int file_entry_decode(const struct file_frame *f, struct file_entry *ret)
{
	struct wire_in r = payload_of(f);
	struct file_entry x;

	x.mode = wire_get_u32(&r);
	x.uid = wire_get_u32(&r);
	x.gid = wire_get_u32(&r);
	x.nlink = wire_get_u32(&r);
	x.errnum = wire_get_u32(&r);
	x.size = wire_get_u64(&r);
	x.dev = wire_get_u64(&r);
	x.ino = wire_get_u64(&r);
	x.mtime = (int64_t)wire_get_u64(&r);
	x.path = get_path(&r);
	x.target = get_path(&r);
	/* A size fits into off_t, so that adding to it cannot wrap. */
	if (done_in(&r) < 0 || x.mode > 0177777 || x.errnum > 4095 || x.size > INT64_MAX)
		return -EBADMSG;
	*ret = x;
	return 0;
}

long file_end_encode(const struct file_end *x, uint8_t *out, size_t size)
{
	struct wire_out w = { out, out + size, false };

	wire_put_u32(&w, x->errnum);
	wire_put_u32(&w, x->step);
	wire_put_u64(&w, x->count);
	return done_out(&w, out);
}

int file_end_decode(const struct file_frame *f, struct file_end *ret)
{
	struct wire_in r = payload_of(f);
	struct file_end x;

	x.errnum = wire_get_u32(&r);
	x.step = wire_get_u32(&r);
	x.count = wire_get_u64(&r);
	if (done_in(&r) < 0 || x.errnum > 4095 || x.step >= FILE_STEP_COUNT)
		return -EBADMSG;
	*ret = x;
	return 0;
}

long file_event_encode(const struct file_event *x, uint8_t *out, size_t size)
{
	struct wire_out w = { out, out + size, false };

	wire_put_u32(&w, x->kind);
	wire_put_u32(&w, x->type);
	put_path(&w, x->path);
	put_path(&w, x->to);
	return done_out(&w, out);
}

int file_event_decode(const struct file_frame *f, struct file_event *ret)
{
	struct wire_in r = payload_of(f);
	struct file_event x;

	x.kind = wire_get_u32(&r);
	x.type = wire_get_u32(&r);
	x.path = get_path(&r);
	x.to = get_path(&r);
	if (done_in(&r) < 0 || x.kind < FILE_EVENT_CREATED || x.kind > FILE_EVENT_GONE || x.type > 0177777)
		return -EBADMSG;
	*ret = x;
	return 0;
}

static const char *const steps[] = {
#define X(name, text) [FILE_STEP_##name] = text,
	FILE_STEPS(X)
#undef X
};

const char *file_step_text(uint32_t step)
{
	return step < FILE_STEP_COUNT ? steps[step] : "?";
}
