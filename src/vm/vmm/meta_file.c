/* Writes and reads all of META. */
#include "vm/vmm/meta.h"
#include "base/base.h"
#include "base/sha256.h"
#include "base/sys.h"

#include <unistd.h>

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
	r = meta_read(fd, rest, m.carry_len + m.state_len, sizeof(m));
	if (r == -ENODATA)
		return meta_damaged("it is too short", e);
	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "read the state of a virtual machine");
	sum_of(&m, rest, rest + m.carry_len, sum);
	if (memcmp(sum, m.sum, sizeof(sum)))
		return meta_damaged("its checksum is wrong", e);
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
