/* Reads the head of META. */
#include "vm/vmm/meta.h"
#include "base/base.h"

#include <unistd.h>

int meta_damaged(const char *what, struct err *e)
{
	return err_advise(e, WHY_DAMAGED, -EBADMSG, "it cannot be used; make another state",
			  "the virtual machine's state is damaged: %s", what);
}

int meta_read(int fd, void *data, size_t len, off_t at)
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
	int r = meta_read(fd, &m, sizeof(m), 0);

	if (r < 0 && r != -ENODATA)
		return err_sys(e, ERR_INTERNAL, r, "read the state of a virtual machine");
	if (r < 0 || m.magic != META_MAGIC)
		return meta_damaged("it has no head", e);
	if (m.version != META_VERSION || m.size != sizeof(m))
		return err_advise(e, WHY_DAMAGED, -EPROTO, "use the version that made it",
				  "the virtual machine's state was made by another version of cloche");
	if (!ended(m.qemu, sizeof(m.qemu)) || !ended(m.machine, sizeof(m.machine)) || m.carry_len > META_CARRY_MAX ||
	    m.state_len > META_STATE_MAX)
		return meta_damaged("its head is invalid", e);
	*ret = m;
	return 0;
}
