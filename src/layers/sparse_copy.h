/* Copies large files with holes: disks and memory of machines. */
#pragma once

/*
 * Copies all of @from into the empty file @to, with the same size; pages of zeros become holes. 0 or -errno; -ECANCELED
 * once *stop is set.
 */
int vm_copy(int from, int to, const int *stop);
