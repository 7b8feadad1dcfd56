/* Keeps rows in a file of their own until SQLite has them. */
#include "store/pending_rows.h"
#include "base/base.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/sha256.h"
#include "store/impl.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC "cloche late rows 1\n"
#define BOOT_ID 36
#define FILE_MAX (16 * MIB)
#define FILE_LARGE (64 * KIB) /* it is emptied when nothing in it counts any more, */
#define FILE_FULL (MIB) /* and all in it is settled */
#define ROW_MAX (32 * KIB)
#define ROWS_MANY 256U /* each turn looks at all */
#define TEXTS 9
#define NUMBERS 7
#define NO_TEXT UINT32_MAX

enum { RECORD_ROW = 1, RECORD_GONE };

struct head {
	char magic[sizeof(MAGIC)];
	char boot[BOOT_ID];
};

struct record {
	uint32_t kind, len; /* of what follows */
	uint8_t sum[16]; /* of kind, length and that */
};

struct pending_row {
	struct pending_row *next;
	bool written; /* in an earlier turn */
	bool settled; /* in this turn's transaction */
	size_t len;
	char data[]; /* numbers; texts, each with its length and a NUL; the id first */
};

static void sum_of(const struct record *r, const void *data, uint8_t ret[16])
{
	uint8_t sum[SHA256_SIZE];
	struct sha256 s;

	sha256_init(&s);
	sha256_add(&s, r, offsetof(struct record, sum));
	sha256_add(&s, data, r->len);
	sha256_end(&s, sum);
	memcpy(ret, sum, 16);
}

static int add_record(struct buf *b, uint32_t kind, const void *data, size_t len)
{
	struct record r = { .kind = kind, .len = (uint32_t)len };
	const size_t before = b->len;

	sum_of(&r, data, r.sum);
	if (buf_add(b, &r, sizeof(r)) < 0 || buf_add(b, data, len) < 0) {
		buf_cut(b, before);
		return -ENOMEM;
	}
	return 0;
}

/* --- a row as bytes --- */

static int add_text(struct buf *b, const char *text)
{
	const uint32_t len = text ? (uint32_t)strlen(text) : NO_TEXT;

	return buf_add(b, &len, sizeof(len)) < 0 || (text && buf_add(b, text, (size_t)len + 1) < 0) ? -ENOMEM : 0;
}

static int encode(const struct sandbox_row *r, struct buf *b)
{
	const uint64_t numbers[NUMBERS] = { r->handle,	  r->created_ns, r->expires_ns, r->used_ns,
					    r->next_exec, r->asleep,	 r->tree };
	const char *texts[TEXTS] = { r->id,   r->tenant, r->name,	r->key,	    r->state,
				     r->spec, r->layers, r->checkpoint, r->restored };
	int x = buf_add(b, numbers, sizeof(numbers));

	for (size_t i = 0; i < TEXTS && x == 0; i++)
		x = add_text(b, texts[i]);
	return x;
}

static const char *id_of(const struct pending_row *r)
{
	return r->data + NUMBERS * sizeof(uint64_t) + sizeof(uint32_t);
}

/* The texts point into @data. */
static int decode(const char *data, size_t len, struct sandbox_row *ret)
{
	const char *texts[TEXTS], *end = data + len;
	uint64_t numbers[NUMBERS];

	if (len < sizeof(numbers))
		return -EBADMSG;
	memcpy(numbers, data, sizeof(numbers));
	data += sizeof(numbers);
	for (size_t i = 0; i < TEXTS; i++) {
		uint32_t n;

		if ((size_t)(end - data) < sizeof(n))
			return -EBADMSG;
		memcpy(&n, data, sizeof(n));
		data += sizeof(n);
		texts[i] = n == NO_TEXT ? NULL : data;
		if (n == NO_TEXT)
			continue;
		if (n >= (size_t)(end - data) || data[n] || strlen(data) != n)
			return -EBADMSG;
		data += n + 1;
	}
	if (data != end || !texts[0])
		return -EBADMSG;
	*ret = (struct sandbox_row){
		.id = texts[0],
		.tenant = texts[1],
		.name = texts[2],
		.key = texts[3],
		.handle = numbers[0],
		.state = texts[4],
		.spec = texts[5],
		.created_ns = numbers[1],
		.expires_ns = numbers[2],
		.used_ns = numbers[3],
		.next_exec = (uint32_t)numbers[4],
		.layers = texts[6],
		.checkpoint = texts[7],
		.restored = texts[8],
		.asleep = (uint32_t)numbers[5],
		.tree = numbers[6],
	};
	return 0;
}

/* --- rows --- */

static struct pending_row **find(struct pending_rows *l, const char *id)
{
	struct pending_row **at = &l->rows;

	while (*at && strcmp(id_of(*at), id))
		at = &(*at)->next;
	return at;
}

static void drop(struct pending_rows *l, struct pending_row **at)
{
	struct pending_row *r = *at;

	*at = r->next;
	l->n--;
	free(r);
}

static int add_row(struct pending_rows *l, const char *data, size_t len, bool written)
{
	struct pending_row **end = &l->rows, *r = malloc(sizeof(*r) + len);

	if (!r)
		return -ENOMEM;
	*r = (struct pending_row){ .written = written, .len = len };
	memcpy(r->data, data, len);
	while (*end) /* in the order they came, as SQLite would have them */
		end = &(*end)->next;
	*end = r;
	l->n++;
	return 0;
}

int pending_rows_insert(struct db *d, const struct sandbox_row *b, struct err *e)
{
	struct pending_rows *l = &d->pending;

	if (l->fd < 0 || d->sure)
		return 0;
	buf_clear(&l->out);
	if (encode(b, &l->out) < 0 || l->out.len > ROW_MAX)
		return 0;
	if (add_row(l, l->out.data, l->out.len, false) < 0)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory to store a sandbox");
	return 1;
}

int pending_rows_delete(struct db *d, const char *id, struct err *e)
{
	struct pending_rows *l = &d->pending;
	struct pending_row **at = find(l, id);
	bool only_here = *at && !(*at)->settled;

	/* Also when SQLite has it: what is in the file would come back, should that be read before it is emptied. */
	if (l->size > sizeof(struct head) && !(*at && !(*at)->written) &&
	    add_record(&l->gone, RECORD_GONE, id, strlen(id)) < 0)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory to delete a sandbox");
	if (*at)
		drop(l, at);
	return only_here;
}

/* @again: SQLite may have some of them already. */
static int settle(struct db *d, bool again, struct err *e)
{
	int r = 0;

	for (struct pending_row *at = d->pending.rows; at && r == 0; at = at->next) {
		struct sandbox_row b;

		if (at->settled)
			continue;
		r = decode(at->data, at->len, &b);
		r = r < 0 ? err_set(e, ERR_INTERNAL, r, "state: a pending row is damaged") : sandboxes_insert(d, &b, e);
		if (again && r == -EEXIST)
			r = 0;
		at->settled = r == 0;
	}
	return r;
}

int pending_rows_settle(struct db *d, struct err *e)
{
	return settle(d, false, e);
}

/* --- the file --- */

static int append(struct pending_rows *l, const void *data, size_t len, struct err *e)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = pwrite(l->fd, (const char *)data + done, len - done, (off_t)(l->size + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			n = n < 0 ? -errno : -EIO;
			return err_sys(e, n == -ENOSPC ? WHY_NO_HOST_SPACE : WHY_INTERNAL, (int)n,
				       "state: store a sandbox");
		}
		done += (size_t)n;
	}
	l->size += len;
	return 0;
}

int pending_rows_write(struct db *d, struct err *e)
{
	struct pending_rows *l = &d->pending;
	int r = l->size > FILE_FULL || l->n > ROWS_MANY ? pending_rows_settle(d, e) : 0;

	if (r < 0)
		return r;
	buf_clear(&l->out);
	for (struct pending_row *at = l->rows; at && r == 0; at = at->next)
		if (!at->written && !at->settled)
			r = add_record(&l->out, RECORD_ROW, at->data, at->len);
	if (r == 0 && l->gone.len)
		r = buf_add(&l->out, l->gone.data, l->gone.len);
	if (r < 0)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory to store a sandbox");
	if (!l->out.len)
		return 0;
	r = append(l, l->out.data, l->out.len, e);
	if (r < 0)
		return r;
	buf_clear(&l->gone);
	for (struct pending_row *at = l->rows; at; at = at->next)
		at->written = at->written || !at->settled;
	return 0;
}

int pending_rows_committed(struct db *d, struct err *e)
{
	struct pending_rows *l = &d->pending;
	bool settled = false;

	for (struct pending_row **at = &l->rows; *at;) {
		if (!(*at)->settled) {
			at = &(*at)->next;
			continue;
		}
		settled = settled || (*at)->written;
		drop(l, at);
	}
	if (l->fd < 0 || l->n || l->size == sizeof(struct head) || (!settled && l->size < FILE_LARGE))
		return 0;
	/* First, so that the file is never shorter than it is said to be. */
	d->seen.pending = 0;
	witness_write(&d->seen);
	if (ftruncate(l->fd, sizeof(struct head)) < 0)
		return err_sys(e, ERR_INTERNAL, -errno, "state: empty the file of pending rows");
	l->size = sizeof(struct head);
	return 0;
}

/* Which start of the machine this is. */
static int this_head(struct head *ret)
{
	char text[64];
	ssize_t n = fd_get(AT_FDCWD, "/proc/sys/kernel/random/boot_id", text, sizeof(text));

	if (n < BOOT_ID)
		return n < 0 ? (int)n : -EIO;
	*ret = (struct head){ .magic = MAGIC };
	memcpy(ret->boot, text, BOOT_ID);
	return 0;
}

/* Up to the first record that is not whole: the turn it is of was never answered. */
static int read_records(struct pending_rows *l, const char *data, size_t len, size_t *ret_whole)
{
	const size_t all = len;
	int r = 0;

	*ret_whole = 0;

	while (r == 0 && len >= sizeof(struct record)) {
		struct pending_row **at;
		char id[ID_LEN + 64];
		struct sandbox_row b;
		struct record x;
		uint8_t sum[16];

		memcpy(&x, data, sizeof(x));
		data += sizeof(x);
		len -= sizeof(x);
		if (x.len > len)
			break;
		sum_of(&x, data, sum);
		if (memcmp(sum, x.sum, sizeof(sum)))
			break;
		if (x.kind == RECORD_ROW && decode(data, x.len, &b) == 0) {
			r = add_row(l, data, x.len, true);
		} else if (x.kind == RECORD_GONE && x.len < sizeof(id)) {
			snprintf(id, sizeof(id), "%.*s", (int)x.len, data);
			at = find(l, id);
			if (*at)
				drop(l, at);
		} else {
			break;
		}
		data += x.len;
		len -= x.len;
		*ret_whole = all - len;
	}
	if (len && r == 0)
		log_warn("state: %zu bytes of pending rows are incomplete: they belong to requests that were never "
			 "answered",
			 len);
	return r;
}

static int refuse_short(struct err *e)
{
	err_set(e, ERR_CONFLICT, -ESTALE, "the file state.db-late has lost rows of recently made sandboxes");
	err_remedy(
		e,
		"nothing was changed; restore the file, or continue without those sandboxes: `cloche serve --recover`");
	return -ESTALE;
}

/* @counts: so much of it was stored, by what the data folder's marker says. */
static int read_file(struct pending_rows *l, const struct head *head, uint64_t counts, struct err *e)
{
	AUTO(buf_done) struct buf b = BUF_INIT(FILE_MAX);
	struct stat st;
	size_t whole;
	ssize_t n;
	char *room;
	int r;

	if (fstat(l->fd, &st) < 0)
		return err_sys(e, ERR_INTERNAL, -errno, "state: read pending rows");
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size >= FILE_MAX)
		return err_set(e, ERR_INVALID, -EINVAL, "state: the file of pending rows has an unknown format");
	room = buf_room(&b, (size_t)st.st_size + 1);
	n = room ? pread(l->fd, room, (size_t)st.st_size, 0) : -1;
	if (n < 0)
		return err_sys(e, ERR_INTERNAL, room ? -errno : -ENOMEM, "state: read pending rows");
	buf_added(&b, (size_t)n);
	if (b.len < sizeof(*head) || memcmp(b.data, head, sizeof(*head)))
		return counts > sizeof(*head) ? refuse_short(e) : 0;
	r = read_records(l, b.data + sizeof(*head), b.len - sizeof(*head), &whole);
	if (r < 0)
		return err_sys(e, ERR_EXHAUSTED, r, "state: read pending rows");
	return sizeof(*head) + whole < counts ? refuse_short(e) : 0;
}

int pending_rows_check(struct db *d, const char *path, struct err *e)
{
	struct pending_rows x = { .fd = -1 };
	uint64_t counts = d->seen.now ? d->seen.pending : 0;
	struct head head;
	char name[1100];
	int r = this_head(&head);

	snprintf(name, sizeof(name), "%s-late", path);
	x.fd = open(name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
	if (r < 0 || (x.fd < 0 && errno != ENOENT))
		return err_sys(e, ERR_INTERNAL, r < 0 ? r : -errno, "open '%.200s'", name);
	if (x.fd < 0)
		return counts > sizeof(head) ? refuse_short(e) : 0;
	r = read_file(&x, &head, counts, e);
	while (x.rows)
		drop(&x, &x.rows);
	fd_close(x.fd);
	return r;
}

int pending_rows_open(struct db *d, const char *path, struct err *e)
{
	struct pending_rows *l = &d->pending;
	struct head head;
	int r;

	if (asprintf(&l->name, "%s-late", path) < 0) {
		l->name = NULL;
		return err_sys(e, ERR_EXHAUSTED, -ENOMEM, "state");
	}
	l->gone.max = l->out.max = FILE_MAX;
	l->fd = open(l->name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0600);
	if (l->fd < 0)
		return err_sys(e, ERR_INTERNAL, -errno, "open '%s'", l->name);
	r = this_head(&head);
	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "read /proc/sys/kernel/random/boot_id");
	r = read_file(l, &head, d->seen.now ? d->seen.pending : 0, e);
	/* After a crash between SQLite's commit and the emptying of this file, rows may be in both. */
	if (r == 0)
		r = settle(d, true, e);
	if (r == 0)
		r = db_commit(d, e);
	if (r < 0)
		return r;
	d->seen.pending = 0;
	witness_write(&d->seen);
	if (ftruncate(l->fd, 0) < 0)
		return err_sys(e, ERR_INTERNAL, -errno, "empty '%s'", l->name);
	l->size = 0;
	return append(l, &head, sizeof(head), e);
}

void pending_rows_close(struct db *d)
{
	struct pending_rows *l = &d->pending;

	if (!l->n && l->size)
		unlink(l->name);
	while (l->rows)
		drop(l, &l->rows);
	buf_done(&l->gone);
	buf_done(&l->out);
	fd_close(l->fd);
	l->fd = -1;
	free(l->name);
}
