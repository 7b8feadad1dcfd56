/* Reads and writes the records of sandboxes. */
#include "engine/blank/record.h"
#include "base/base.h"
#include "base/sys.h"
#include "engine/file_lock.h"
#include "layers/layers.h"

#include <sys/stat.h>
#include <unistd.h>

#define START_FIELD 22

int records_open(struct records *ret, const char *dir, struct err *e)
{
	AUTO_CLOSE int folder = layers_open_dir(dir, e), fd = -1;
	struct records x = { .fd = -1 };
	ssize_t n;
	int r;

	if (folder < 0)
		return folder;
	n = fd_get(AT_FDCWD, "/proc/sys/kernel/random/boot_id", x.boot, sizeof(x.boot));
	if (n < 0)
		return err_sys(e, ERR_INTERNAL, (int)n, "read the boot's id");
	fd = sys_openat(folder, "boxes", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_sys(e, ERR_INTERNAL, fd, "open %s/boxes", dir);
	r = file_lock(fd);
	if (r == -EAGAIN || r == -EACCES)
		return err_set(e, ERR_CONFLICT, -EBUSY, "'%s': another warden uses it", dir);
	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "lock %s/boxes", dir);
	x.fd = TAKE_FD(fd);
	*ret = x;
	return 0;
}

void records_done(struct records *r)
{
	fd_close(r->fd);
	r->fd = -1;
}

static off_t place(uint32_t slot)
{
	return (off_t)slot * (off_t)sizeof(struct record);
}

/* @data at place @at of the record. */
static int put(const struct records *r, uint32_t slot, size_t at, const void *data, size_t size)
{
	ssize_t n = pwrite(r->fd, data, size, place(slot) + (off_t)at);

	return n == (ssize_t)size ? 0 : n < 0 ? -errno : -ENOSPC;
}

int records_write(const struct records *r, struct record *x)
{
	x->version = RECORD_VERSION;
	memcpy(x->boot, r->boot, sizeof(x->boot));
	return put(r, x->slot, 0, x, sizeof(*x));
}

int records_read(const struct records *r, uint32_t slot, struct record *ret)
{
	struct record x;
	ssize_t n = pread(r->fd, &x, sizeof(x), place(slot));

	if (n < 0)
		return -errno;
	if (n != (ssize_t)sizeof(x) || x.version != RECORD_VERSION || x.slot != slot || !x.handle || !x.pid ||
	    x.pid > INT32_MAX || memcmp(x.boot, r->boot, sizeof(x.boot)) != 0 || x.layers > SPEC_LAYERS)
		return 0;
	x.image[sizeof(x.image) - 1] = '\0';
	for (uint32_t i = 0; i < SPEC_LAYERS; i++)
		x.layer[i][ID_LEN] = '\0';
	*ret = x;
	return 1;
}

int records_clear(const struct records *r, uint32_t slot)
{
	static const struct record none;

	return put(r, slot, 0, &none, sizeof(none));
}

int records_flag(const struct records *r, uint32_t slot, uint32_t flags)
{
	return put(r, slot, offsetof(struct record, flags), &flags, sizeof(flags));
}

int records_spec_flags(const struct records *r, uint32_t slot, uint32_t flags)
{
	return put(r, slot, offsetof(struct record, spec_flags), &flags, sizeof(flags));
}

int records_limits(const struct records *r, uint32_t slot, uint64_t memory, uint32_t pids, uint32_t cpu_milli)
{
	const uint32_t numbers[2] = { pids, cpu_milli };
	int n = put(r, slot, offsetof(struct record, pids), numbers, sizeof(numbers));

	return n < 0 ? n : put(r, slot, offsetof(struct record, memory), &memory, sizeof(memory));
}

int records_vm(const struct records *r, uint32_t slot, const struct record_vm *vm)
{
	return put(r, slot, offsetof(struct record, vm), vm, sizeof(*vm));
}

uint32_t records_end(const struct records *r)
{
	struct stat st;
	uint64_t n;

	if (fstat(r->fd, &st) < 0)
		return 0;
	n = (uint64_t)st.st_size / sizeof(struct record);
	return n < SLOT_COUNT ? (uint32_t)n : SLOT_COUNT;
}

int record_start(pid_t pid, uint64_t *ret)
{
	char path[48], text[1024], *at, *end;
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	n = fd_get(AT_FDCWD, path, text, sizeof(text));
	if (n < 0)
		return (int)n;
	/* The second field is a name in brackets, and may hold anything. */
	at = strrchr(text, ')');
	for (unsigned field = 2; at && field < START_FIELD; field++)
		at = strchr(at + 1, ' ');
	if (!at)
		return -EBADMSG;
	*ret = strtoull(at + 1, &end, 10);
	return end == at + 1 ? -EBADMSG : 0;
}
