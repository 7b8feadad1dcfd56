/* A machine's disks, each on the one before: what machine.c needs of them. The rest is in vm/vmm/machine.h. */
#pragma once
#include "vm/vmm/machine.h"

/* Fills in the chain with the disks that QEMU is started with. */
void chain_begin(struct machine *m);
/* Writes the header of an empty disk, through which all that is below it is visible. */
int chain_format(const struct machine *m, int disk, struct err *e);
uint32_t chain_set(struct machine *m); /* a new number for a descriptor set of QEMU */
