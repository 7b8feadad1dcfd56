/* Memory that was assembled from a template's and some layers': a few are kept for a while, for the next clones. */
#include "base/base.h"
#include "base/clock.h"
#include "vm/host/host.h"

#define IDLE_NS (300ULL * 1000000000ULL)

int vm_flat_find(struct vms *v, const char *layer)
{
	for (unsigned i = 0; i < VM_FLATS; i++) {
		if (v->flat[i].ram < 0 || strcmp(v->flat[i].layer, layer))
			continue;
		v->flat[i].used = clock_mono_ns();
		return v->flat[i].ram;
	}
	return -1;
}

void vm_flat_put(struct vms *v, const char *layer, int ram)
{
	struct vm_flat *to = &v->flat[0];

	for (unsigned i = 1; i < VM_FLATS; i++)
		if (v->flat[i].used < to->used)
			to = &v->flat[i];
	fd_close(to->ram);
	memcpy(to->layer, layer, ID_SIZE);
	to->ram = ram;
	to->used = clock_mono_ns();
}

void vm_flats_idle(struct vms *v, uint64_t now)
{
	for (unsigned i = 0; i < VM_FLATS; i++) {
		if (v->flat[i].ram < 0 || now < v->flat[i].used + IDLE_NS)
			continue;
		fd_close(TAKE_FD(v->flat[i].ram));
		v->flat[i].used = 0;
	}
}
