/* Any bytes as what a machine's jail has written: the warden, which is root, refuses them or stays inside the memory. */
#include "vm/vmm/meta.h"
#include "base/base.h"
#include "base/sys.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define RAM (16 * 4096)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	AUTO_CLOSE int fd = sys_memfd_create("fuzz", MFD_CLOEXEC), ram = sys_memfd_create("ram", MFD_CLOEXEC);
	AUTO_FREE uint8_t *rest = NULL;
	struct vm_meta m;
	struct stat st;

	if (fd < 0 || ram < 0 || sys_ftruncate(ram, RAM) < 0 || fd_write_all(fd, data, size) < 0)
		abort();
	meta_load(fd, &m, &rest, NULL);
	pages_apply(fd, ram, RAM, NULL);
	/* With a size that fits its table, the table decides. */
	if (size >= sizeof(struct pages_head)) {
		struct pages_head h;

		memcpy(&h, data, sizeof(h));
		if (h.runs <= 16 && h.pages <= 16 &&
		    sys_ftruncate(fd, (off_t)(sizeof(h) + h.runs * sizeof(struct pages_run) + h.pages * 4096)) == 0)
			pages_apply(fd, ram, RAM, NULL);
	}
	if (fstat(ram, &st) < 0 || st.st_size != RAM)
		abort();
	return 0;
}
