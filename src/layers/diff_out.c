/* The stream of a comparison: frames, the extents of files, and comparing the content of two files. */
#include "layers/diff_walk.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/sys.h"

#include <poll.h>
#include <unistd.h>

#define LOOK_MS 200
#define STILL_NS (600ULL * 1000000000) /* a reader that takes nothing for this long is given up */

static bool stopped(const int *stop)
{
	return __atomic_load_n(stop, __ATOMIC_RELAXED);
}

int out_flush(struct diff_out *o)
{
	uint64_t since = clock_mono_ns();
	size_t at = 0;

	while (at < o->len) {
		struct pollfd p = { .fd = o->fd, .events = POLLOUT };
		ssize_t n = sys_write(o->fd, o->buf + at, o->len - at);

		if (stopped(o->stop))
			return -ECANCELED;
		if (n == -EAGAIN) {
			if (clock_mono_ns() - since > STILL_NS)
				return -EPIPE;
			poll(&p, 1, LOOK_MS);
			continue;
		}
		if (n < 0 && n != -EINTR)
			return -EPIPE;
		if (n > 0) {
			at += (size_t)n;
			since = clock_mono_ns();
		}
	}
	o->len = 0;
	return 0;
}

uint8_t *out_room(struct diff_out *o, int *ret_r)
{
	int r = sizeof(o->buf) - o->len < CHANGE_FRAME_MAX ? out_flush(o) : 0;

	if (r < 0) {
		*ret_r = r;
		return NULL;
	}
	return o->buf + o->len;
}

void out_added(struct diff_out *o, size_t n)
{
	o->len += n;
}

/* The next piece that is not a hole, from @at on. 0, 1 when there is none, -errno. */
static int next_data(int fd, uint64_t at, uint64_t size, uint64_t *ret, uint64_t *ret_end)
{
	off_t data = lseek(fd, (off_t)at, SEEK_DATA), hole;

	if (data < 0 && errno == ENXIO)
		return 1;
	if (data < 0) /* the filesystem does not support holes */
		return errno == EINVAL ? (*ret = at, *ret_end = size, 0) : -errno;
	if ((uint64_t)data >= size)
		return 1;
	hole = lseek(fd, data, SEEK_HOLE);
	if (hole < 0)
		return errno == ENXIO ? 1 : -errno;
	*ret = (uint64_t)data;
	*ret_end = (uint64_t)hole < size ? (uint64_t)hole : size;
	return *ret_end > *ret ? 0 : 1;
}

/* Lists the extents of a file; holes smaller than @gap are ignored. -E2BIG: too many. */
static int extents(int fd, uint64_t size, uint64_t gap, uint8_t *ret)
{
	uint64_t at = 0, begin = 0, end = 0, data, to;
	uint32_t n = 0;
	bool open = false;
	int r;

	while ((r = next_data(fd, at, size, &data, &to)) == 0) {
		if (open && data - end < gap) {
			end = to;
		} else {
			if (open && n == CHANGE_EXTENTS_MAX)
				return -E2BIG;
			if (open)
				change_extent_put(ret, n++, begin, end - begin);
			open = true;
			begin = data;
			end = to;
		}
		at = to;
	}
	if (r < 0)
		return r;
	if (n == CHANGE_EXTENTS_MAX)
		return -E2BIG;
	/* The whole file is data. */
	if (open && n == 0 && begin == 0 && end == size)
		return 0;
	/* An empty extent at the end gives the file's size. */
	if (open)
		change_extent_put(ret, n++, begin, end - begin);
	else
		change_extent_put(ret, n++, size, 0);
	return (int)n;
}

int out_extents(int fd, uint64_t size, uint8_t *ret)
{
	int r = -E2BIG;

	if (!size)
		return 0;
	for (uint64_t gap = 0; r == -E2BIG; gap = gap ? gap * 4 : 65536)
		r = extents(fd, size, gap, ret);
	return r;
}

static int send_range(struct diff_out *o, enum change_type type, int fd, uint64_t at, uint64_t end)
{
	int r = 0;

	while (at < end) {
		uint8_t *to = out_room(o, &r);
		size_t want = end - at < CHANGE_DATA_MAX ? (size_t)(end - at) : CHANGE_DATA_MAX;
		ssize_t n;

		if (!to)
			return r;
		n = pread(fd, to + CHANGE_DATA_HEAD, want, (off_t)at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : 1;
		change_data_head(to, type, at, (uint32_t)n);
		out_added(o, CHANGE_DATA_HEAD + (size_t)n);
		at += (uint64_t)n;
	}
	return 0;
}

int out_data(struct diff_out *o, enum change_type type, int fd, uint64_t size)
{
	uint64_t at = 0, data = 0, end = size;
	int r = 0;

	while (r == 0 && at < size) {
		r = next_data(fd, at, size, &data, &end);
		if (r == 0)
			r = send_range(o, type, fd, data, end);
		at = end;
	}
	return r < 0 ? r : 0;
}

static ssize_t read_full(int fd, char *to, size_t want, uint64_t at)
{
	size_t have = 0;

	while (have < want) {
		ssize_t n = pread(fd, to + have, want - have, (off_t)(at + have));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		have += (size_t)n;
	}
	return (ssize_t)have;
}

int out_same(int a, int b, uint64_t size, const int *stop, char *buf)
{
	uint64_t at = 0;

	while (at < size) {
		uint64_t from_a = size, from_b = size, end;
		size_t want;
		ssize_t n, m;
		int r = next_data(a, at, size, &from_a, &end);

		if (r >= 0)
			r = next_data(b, at, size, &from_b, &end);
		if (r < 0)
			return r;
		/* Where both files have a hole they are equal. */
		at = from_a < from_b ? from_a : from_b;
		if (at >= size)
			return 1;
		if (stopped(stop))
			return -ECANCELED;
		want = size - at < DIFF_BUF ? (size_t)(size - at) : DIFF_BUF;
		n = read_full(a, buf, want, at);
		m = n < 0 ? n : read_full(b, buf + DIFF_BUF, want, at);
		if (n < 0 || m < 0)
			return (int)(n < 0 ? n : m);
		if (n != m || memcmp(buf, buf + DIFF_BUF, (size_t)n))
			return 0;
		if (n == 0)
			return 1;
		at += (uint64_t)n;
	}
	return 1;
}
