#include "vm/vmm/meta.h"
#include "base/base.h"
#include "base/sha256.h"
#include "base/sys.h"

#include <unistd.h>

static int damaged(const char *what, struct err *e)
{
	err_set(e, ERR_REFUSED, -EBADMSG, "the virtual machine's state is damaged: %s", what);
	err_remedy(e, "it cannot be used; make another state");
	return -EBADMSG;
}

static int read_at(int fd, void *data, size_t len, off_t at)
{
	while (len) {
		ssize_t n = pread(fd, data, len, at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -ENODATA;
		data = (uint8_t *)data + n;
		at += n;
		len -= (size_t)n;
	}
	return 0;
}

static bool ended(const char *text, size_t size)
{
	return memchr(text, 0, size);
}

int meta_head(int fd, struct vm_meta *ret, struct err *e)
{
	struct vm_meta m;
	int r = read_at(fd, &m, sizeof(m), 0);

	if (r < 0 && r != -ENODATA)
		return err_sys(e, ERR_INTERNAL, r, "read the state of a virtual machine");
	if (r < 0 || m.magic != META_MAGIC)
		return damaged("it has no head", e);
	if (m.version != META_VERSION || m.size != sizeof(m)) {
		err_set(e, ERR_REFUSED, -EPROTO, "the virtual machine's state was made by another version of cloche");
		err_remedy(e, "use the version that made it");
		return -EPROTO;
	}
	if (!ended(m.qemu, sizeof(m.qemu)) || !ended(m.machine, sizeof(m.machine)) || m.carry_len > META_CARRY_MAX ||
	    m.state_len > META_STATE_MAX)
		return damaged("its head is invalid", e);
	*ret = m;
	return 0;
}

static void sum_of(const struct vm_meta *m, const void *carry, const void *state, uint8_t ret[32])
{
	struct vm_meta head = *m;
	struct sha256 s;

	memset(head.sum, 0, sizeof(head.sum));
	sha256_init(&s);
	sha256_add(&s, &head, sizeof(head));
	sha256_add(&s, carry, m->carry_len);
	sha256_add(&s, state, m->state_len);
	sha256_end(&s, ret);
}

int meta_load(int fd, struct vm_meta *ret, uint8_t **ret_rest, struct err *e)
{
	AUTO_FREE uint8_t *rest = NULL;
	struct vm_meta m;
	uint8_t sum[32];
	int r = meta_head(fd, &m, e);

	if (r < 0)
		return r;
	rest = malloc(m.carry_len + m.state_len + 1);
	if (!rest)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for the state of a virtual machine");
	r = read_at(fd, rest, m.carry_len + m.state_len, sizeof(m));
	if (r == -ENODATA)
		return damaged("it is too short", e);
	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "read the state of a virtual machine");
	sum_of(&m, rest, rest + m.carry_len, sum);
	if (memcmp(sum, m.sum, sizeof(sum)))
		return damaged("its checksum is wrong", e);
	*ret = m;
	*ret_rest = rest;
	rest = NULL;
	return 0;
}

int meta_save(int fd, struct vm_meta *m, const void *carry, const void *state, struct err *e)
{
	int r;

	m->magic = META_MAGIC;
	m->version = META_VERSION;
	m->size = sizeof(*m);
	sum_of(m, carry, state, m->sum);
	r = sys_ftruncate(fd, 0);
	if (r == 0 && lseek(fd, 0, SEEK_SET) < 0)
		r = -errno;
	if (r == 0)
		r = fd_write_all(fd, m, sizeof(*m));
	if (r == 0)
		r = fd_write_all(fd, carry, m->carry_len);
	if (r == 0)
		r = fd_write_all(fd, state, m->state_len);
	return r < 0 ? err_sys(e, ERR_EXHAUSTED, r, "write the virtual machine's state") : 0;
}
