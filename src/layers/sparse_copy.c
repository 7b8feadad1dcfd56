/* Copies files of machines without their holes and zeros. */
#include "layers/sparse_copy.h"
#include "base/base.h"
#include "base/sys.h"

#include <sys/stat.h>
#include <unistd.h>

#define STRETCH (1U << 20)
#define PAGE 4096U

static bool zeros(const char *p, size_t n)
{
	return n == 0 || (p[0] == 0 && memcmp(p, p + 1, n - 1) == 0);
}

/* Writes runs of pages that are not zeros. */
static int put(int to, const char *buf, size_t len, off_t at)
{
	for (size_t i = 0; i < len;) {
		size_t from = i, n;

		while (i < len && !zeros(buf + i, len - i < PAGE ? len - i : PAGE))
			i += PAGE;
		n = (i < len ? i : len) - from;
		for (size_t done = 0; done < n;) {
			ssize_t w = pwrite(to, buf + from + done, n - done, at + (off_t)(from + done));

			if (w < 0)
				return -errno;
			done += (size_t)w;
		}
		i += n < len - from ? PAGE : 0;
	}
	return 0;
}

/* If the filesystem does not support holes, all of it is data. */
static off_t next_data(int fd, off_t at, off_t size)
{
	off_t r = lseek(fd, at, SEEK_DATA);

	return r >= 0 ? r : errno == ENXIO ? size : errno == EINVAL ? at : -errno;
}

static off_t next_hole(int fd, off_t at, off_t size)
{
	off_t r = lseek(fd, at, SEEK_HOLE);

	return r >= 0 ? r : errno == ENXIO || errno == EINVAL ? size : -errno;
}

int vm_copy(int from, int to, const int *stop)
{
	AUTO_FREE char *buf = malloc(STRETCH);
	struct stat st;
	off_t at = 0;
	int r;

	if (!buf)
		return -ENOMEM;
	if (fstat(from, &st) < 0)
		return -errno;
	r = sys_ftruncate(to, st.st_size);
	while (r == 0 && at < st.st_size) {
		off_t end;

		at = next_data(from, at, st.st_size);
		end = at < 0 ? at : next_hole(from, at, st.st_size);
		if (end < 0)
			return (int)end;
		while (r == 0 && at < end) {
			size_t want = end - at < (off_t)STRETCH ? (size_t)(end - at) : STRETCH;
			ssize_t n = pread(from, buf, want, at);

			if (n < 0)
				return -errno;
			if (n == 0)
				return -EIO; /* the file became shorter */
			if (__atomic_load_n(stop, __ATOMIC_RELAXED))
				return -ECANCELED;
			r = put(to, buf, (size_t)n, at);
			at += n;
		}
	}
	return r;
}
