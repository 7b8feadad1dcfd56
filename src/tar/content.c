/* The content of a file in the archive that is read. */
#include "tar/tar.h"
#include "base/base.h"

#include <archive.h>
#include <archive_entry.h>

struct content content_of(struct archive_entry *n)
{
	const la_int64_t size = archive_entry_size(n);

	return (struct content){ .size = size > 0 ? (uint64_t)size : 0 };
}

/* The library fills holes, but says 0 once before the last one when the data ends at the end of what was asked for. */
ssize_t content_read(struct content *c, struct archive *a, uint8_t *buf, size_t room)
{
	la_ssize_t n = c->over ? 0 : archive_read_data(a, buf, room);

	if (n == 0 && !c->over && c->at < c->size) {
		n = archive_read_data(a, buf, room);
		c->over = n == 0;
	}
	if (n == 0 && c->at < c->size) {
		n = (la_ssize_t)(c->size - c->at < room ? c->size - c->at : room);
		memset(buf, 0, (size_t)n);
	}
	if (n > 0)
		c->at += (uint64_t)n;
	return n < 0 ? -1 : (ssize_t)n;
}
