/* A machine's disks, each on the one before: what machine.c needs of them. The rest is in vm/vmm/machine.h. */
#pragma once
#include "vm/vmm/machine.h"

/* Of what QEMU is started with. */
void chain_begin(struct machine *m);
/* Makes empty @disk one that hides nothing of what is below it. */
int chain_format(const struct machine *m, int disk, struct err *e);
uint32_t chain_set(struct machine *m); /* a number for a descriptor that goes to QEMU */
