/* Writes and parses the stream of changes. */
#include "proto/change.h"
#include "base/base.h"
#include "proto/wire.h"

#define XATTR_NAME_MAX_LEN 255U

static bool known(uint8_t type)
{
	return type >= CHANGE_ENTRY && type <= CHANGE_END;
}

long change_decode(const uint8_t *data, size_t len, struct change_frame *ret)
{
	struct wire_in r = { data, data + len, false };
	struct change_frame f;

	/* As early as the bytes allow. */
	if ((len >= 1 && data[0] != CHANGE_VERSION) || (len >= 2 && !known(data[1])))
		return -EBADMSG;
	if (len < CHANGE_HEAD)
		return 0;
	r.at += 1;
	f.type = wire_get_u8(&r);
	if (wire_get_u8(&r))
		return -EBADMSG;
	if (wire_get_u8(&r))
		return -EBADMSG;
	f.len = wire_get_u32(&r);
	if (f.len > CHANGE_PAYLOAD_MAX)
		return -EBADMSG;
	if (len - CHANGE_HEAD < f.len)
		return 0;
	f.payload = r.at;
	*ret = f;
	return (long)(CHANGE_HEAD + f.len);
}

void change_head(uint8_t *out, enum change_type type, uint32_t len)
{
	struct wire_out w = { out, out + CHANGE_HEAD, false };

	wire_put_u8(&w, CHANGE_VERSION);
	wire_put_u8(&w, (uint8_t)type);
	wire_put_u8(&w, 0);
	wire_put_u8(&w, 0);
	wire_put_u32(&w, len);
}

static void put_bytes(struct wire_out *w, const uint8_t *p, size_t n)
{
	if (w->bad || (size_t)(w->end - w->at) < n) {
		w->bad = true;
		return;
	}
	if (n)
		memcpy(w->at, p, n);
	w->at += n;
}

static const uint8_t *get_bytes(struct wire_in *r, size_t n)
{
	const uint8_t *p = r->at;

	if (r->bad || (size_t)(r->end - r->at) < n) {
		r->bad = true;
		return NULL;
	}
	r->at += n;
	return p;
}

static struct wire_in payload_of(const struct change_frame *f)
{
	return (struct wire_in){ f->payload, f->payload + f->len, false };
}

static long done_out(const struct wire_out *w, const uint8_t *start)
{
	return w->bad ? -EMSGSIZE : w->at - start;
}

static bool good_path(const char *p)
{
	if (*p != '/' || !p[1] || strlen(p) >= CHANGE_PATH_MAX)
		return false;
	while (*p) {
		size_t n = strcspn(++p, "/");

		if (!n || (n == 1 && *p == '.') || (n == 2 && p[0] == '.' && p[1] == '.'))
			return false;
		p += n;
	}
	return true;
}

static bool one_xattr(struct wire_in *r, struct change_xattr *ret)
{
	ret->name = wire_get_str(r);
	ret->len = wire_get_u32(r);
	ret->value = get_bytes(r, ret->len);
	return !r->bad && *ret->name && strlen(ret->name) <= XATTR_NAME_MAX_LEN;
}

static bool good_xattrs(const uint8_t *p, uint32_t len)
{
	struct wire_in r = { p, p + len, false };
	struct change_xattr x;

	while (r.at < r.end)
		if (!one_xattr(&r, &x))
			return false;
	return true;
}

/* In order, apart from each other, within the file. */
static bool good_extents(const struct change_entry *e)
{
	uint64_t at = 0, offset, len;

	for (uint32_t i = 0; i < e->nextents; i++) {
		change_extent(e, i, &offset, &len);
		if (offset < at || offset > e->size || len > e->size - offset)
			return false;
		at = offset + len;
	}
	return true;
}

long change_entry_encode(const struct change_entry *x, uint8_t *out, size_t size)
{
	struct wire_out w = { out, out + size, false };

	wire_put_u8(&w, x->what);
	wire_put_u8(&w, x->flags);
	wire_put_u32(&w, x->mode);
	wire_put_u32(&w, x->old_mode);
	wire_put_u32(&w, x->uid);
	wire_put_u32(&w, x->gid);
	wire_put_u32(&w, x->nlink);
	wire_put_u64(&w, x->size);
	wire_put_u64(&w, x->old_size);
	wire_put_u64(&w, (uint64_t)x->mtime);
	wire_put_u64(&w, x->dev);
	wire_put_u64(&w, x->ino);
	wire_put_str(&w, x->path);
	wire_put_str(&w, x->target ? x->target : "");
	wire_put_u32(&w, x->xattrs_len);
	put_bytes(&w, x->xattrs, x->xattrs_len);
	wire_put_u32(&w, x->nextents);
	put_bytes(&w, x->extents, x->nextents * 16UL);
	return done_out(&w, out);
}

int change_entry_decode(const struct change_frame *f, struct change_entry *ret)
{
	struct wire_in r = payload_of(f);
	struct change_entry x = { 0 };

	x.what = wire_get_u8(&r);
	x.flags = wire_get_u8(&r);
	x.mode = wire_get_u32(&r);
	x.old_mode = wire_get_u32(&r);
	x.uid = wire_get_u32(&r);
	x.gid = wire_get_u32(&r);
	x.nlink = wire_get_u32(&r);
	x.size = wire_get_u64(&r);
	x.old_size = wire_get_u64(&r);
	x.mtime = (int64_t)wire_get_u64(&r);
	x.dev = wire_get_u64(&r);
	x.ino = wire_get_u64(&r);
	x.path = wire_get_str(&r);
	x.target = wire_get_str(&r);
	x.xattrs_len = wire_get_u32(&r);
	x.xattrs = get_bytes(&r, x.xattrs_len);
	x.nextents = wire_get_u32(&r);
	x.extents = x.nextents > CHANGE_EXTENTS_MAX ? NULL : get_bytes(&r, x.nextents * 16UL);
	if (r.bad || !x.extents || r.at != r.end || x.xattrs_len > CHANGE_XATTRS_MAX)
		return -EBADMSG;
	if (x.what < CHANGE_ADDED || x.what > CHANGE_REMOVED || x.flags & ~CHANGE_FLAGS || !good_path(x.path) ||
	    strlen(x.target) >= CHANGE_PATH_MAX || x.size > INT64_MAX || x.old_size > INT64_MAX || x.mode > 0177777 ||
	    x.old_mode > 0177777 || !good_xattrs(x.xattrs, x.xattrs_len) || !good_extents(&x))
		return -EBADMSG;
	*ret = x;
	return 0;
}

long change_end_encode(const struct change_end *x, uint8_t *out, size_t size)
{
	struct wire_out w = { out, out + size, false };

	wire_put_u32(&w, x->errnum);
	wire_put_u32(&w, x->kind);
	wire_put_u8(&w, x->truncated);
	wire_put_u64(&w, x->added);
	wire_put_u64(&w, x->changed);
	wire_put_u64(&w, x->removed);
	wire_put_str(&w, x->msg ? x->msg : "");
	return done_out(&w, out);
}

int change_end_decode(const struct change_frame *f, struct change_end *ret)
{
	struct wire_in r = payload_of(f);
	struct change_end x;
	uint8_t truncated;

	x.errnum = wire_get_u32(&r);
	x.kind = wire_get_u32(&r);
	truncated = wire_get_u8(&r);
	x.truncated = truncated;
	x.added = wire_get_u64(&r);
	x.changed = wire_get_u64(&r);
	x.removed = wire_get_u64(&r);
	x.msg = wire_get_str(&r);
	if (r.bad || r.at != r.end || x.errnum > 4095 || truncated > 1)
		return -EBADMSG;
	*ret = x;
	return 0;
}

void change_data_head(uint8_t *out, enum change_type type, uint64_t offset, uint32_t len)
{
	struct wire_out w = { out + CHANGE_HEAD, out + CHANGE_DATA_HEAD, false };

	change_head(out, type, len + 8);
	wire_put_u64(&w, offset);
}

int change_data_decode(const struct change_frame *f, uint64_t *ret_offset, const uint8_t **ret, size_t *ret_len)
{
	struct wire_in r = payload_of(f);
	uint64_t offset = wire_get_u64(&r);

	if (r.bad || f->len < 9 || f->len - 8 > CHANGE_DATA_MAX || offset > (uint64_t)INT64_MAX - CHANGE_DATA_MAX)
		return -EBADMSG;
	*ret_offset = offset;
	*ret = r.at;
	*ret_len = f->len - 8;
	return 0;
}

long change_xattr_encode(const struct change_xattr *x, uint8_t *out, size_t size)
{
	struct wire_out w = { out, out + size, false };

	wire_put_str(&w, x->name);
	wire_put_u32(&w, x->len);
	put_bytes(&w, x->value, x->len);
	return done_out(&w, out);
}

int change_xattr_next(const struct change_entry *e, uint32_t *at, struct change_xattr *ret)
{
	struct wire_in r = { e->xattrs + *at, e->xattrs + e->xattrs_len, false };

	if (*at >= e->xattrs_len || !one_xattr(&r, ret))
		return 0;
	*at = (uint32_t)(r.at - e->xattrs);
	return 1;
}

void change_extent(const struct change_entry *e, uint32_t n, uint64_t *ret_offset, uint64_t *ret_len)
{
	const uint8_t *p = e->extents + (size_t)n * 16;
	struct wire_in r = { p, p + 16, false };

	*ret_offset = wire_get_u64(&r);
	*ret_len = wire_get_u64(&r);
}

void change_extent_put(uint8_t *out, uint32_t n, uint64_t offset, uint64_t len)
{
	struct wire_out w = { out + (size_t)n * 16, out + (size_t)n * 16 + 16, false };

	wire_put_u64(&w, offset);
	wire_put_u64(&w, len);
}
