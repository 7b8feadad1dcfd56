/* Takes and gives back slots, by locks on a file. */
#include "engine/blank/slot.h"
#include "base/base.h"
#include "base/sys.h"

#include <unistd.h>

static int lock(int fd, uint32_t slot, short type)
{
	struct flock l = { .l_type = type, .l_whence = SEEK_SET, .l_start = slot, .l_len = 1 };

	return sys_fcntl(fd, F_OFD_SETLK, (long)&l);
}

int slots_open(struct slots *ret, const char *path, struct err *e)
{
	struct slots s = { .fd = -1 };

	s.fd = sys_openat(AT_FDCWD, path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (s.fd < 0)
		return err_sys(e, ERR_INTERNAL, s.fd, "open %s", path);
	s.mine = calloc(1, SLOT_COUNT / 8);
	if (!s.mine) {
		fd_close(s.fd);
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for slots");
	}
	/* Neighbours start far from each other, so that they rarely ask for the same byte. */
	pthread_mutex_init(&s.lock, NULL);
	s.next = (uint32_t)getpid() * 61U % SLOT_COUNT;
	*ret = s;
	return 0;
}

void slots_done(struct slots *s)
{
	fd_close(s->fd);
	s->fd = -1;
	free(s->mine);
	s->mine = NULL;
}

static int take(struct slots *s, int fd, uint32_t *ret, struct err *e)
{
	for (uint32_t tried = 0; tried < SLOT_COUNT; tried++) {
		uint32_t slot = s->next;
		int r;

		s->next = (s->next + 1) % SLOT_COUNT;
		if (s->mine[slot / 8] & (1U << (slot % 8)))
			continue;
		r = lock(fd, slot, F_WRLCK);
		if (r == 0) {
			s->mine[slot / 8] |= (uint8_t)(1U << (slot % 8));
			*ret = slot;
			return 0;
		}
		if (r != -EAGAIN && r != -EACCES)
			return err_sys(e, ERR_INTERNAL, r, "lock slot %u", slot);
	}
	return err_advise(e, ERR_EXHAUSTED, -EAGAIN, "end sandboxes that are no longer needed",
			  "all %u sandbox slots of this host are in use", SLOT_COUNT);
}

int slots_take(struct slots *s, uint32_t *ret, struct err *e)
{
	int r;

	pthread_mutex_lock(&s->lock);
	r = take(s, s->fd, ret, e);
	pthread_mutex_unlock(&s->lock);
	return r;
}

int slots_again(const struct slots *s)
{
	char path[32];

	/*
	 * The file is opened through its descriptor, since a process that makes sandboxes may not see the host's
	 * folders any more.
	 */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", s->fd);
	return sys_openat(AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);
}

int slots_take_own(struct slots *s, uint32_t *ret, int *ret_fd, struct err *e)
{
	AUTO_CLOSE int fd = slots_again(s);
	int r;

	if (fd < 0)
		return err_sys(e, ERR_INTERNAL, fd, "reopen the file of slots");
	pthread_mutex_lock(&s->lock);
	r = take(s, fd, ret, e);
	/* A read lock excludes other owners, who take write locks, and can be shared by slots_share(). */
	if (r == 0) {
		r = lock(fd, *ret, F_RDLCK);
		if (r < 0) {
			s->mine[*ret / 8] &= (uint8_t) ~(1U << (*ret % 8));
			err_sys(e, ERR_INTERNAL, r, "lock slot %u", *ret);
		}
	}
	pthread_mutex_unlock(&s->lock);
	if (r == 0)
		*ret_fd = TAKE_FD(fd);
	return r;
}

int slots_share(int fd, uint32_t slot)
{
	return lock(fd, slot, F_RDLCK);
}

int slots_adopt(struct slots *s, uint32_t slot)
{
	const uint8_t bit = (uint8_t)(1U << (slot % 8));
	int r = -EAGAIN;

	pthread_mutex_lock(&s->lock);
	if (!(s->mine[slot / 8] & bit)) {
		s->mine[slot / 8] |= bit;
		r = 0;
	}
	pthread_mutex_unlock(&s->lock);
	return r;
}

int slots_claim(struct slots *s, uint32_t slot)
{
	int r = -EALREADY;

	pthread_mutex_lock(&s->lock);
	if (!(s->mine[slot / 8] & (1U << (slot % 8)))) {
		r = lock(s->fd, slot, F_WRLCK);
		if (r == 0)
			s->mine[slot / 8] |= (uint8_t)(1U << (slot % 8));
	}
	pthread_mutex_unlock(&s->lock);
	return r;
}

void slots_give(struct slots *s, uint32_t slot, int fd)
{
	pthread_mutex_lock(&s->lock);
	lock(fd >= 0 ? fd : s->fd, slot, F_UNLCK);
	s->mine[slot / 8] &= (uint8_t) ~(1U << (slot % 8));
	pthread_mutex_unlock(&s->lock);
	fd_close(fd);
}
