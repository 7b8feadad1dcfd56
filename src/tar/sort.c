/*
 * Sorting without asking the kernel: for longer arrays the C library's qsort() wants to know how much memory the machine has,
 * and the filter of this process ends it for that.
 */
#include "tar/tar.h"
#include "base/base.h"

static void swap(uint8_t *a, uint8_t *b, size_t size)
{
	for (size_t i = 0; i < size; i++) {
		uint8_t x = a[i];

		a[i] = b[i];
		b[i] = x;
	}
}

/* Moves the item at @at down in the heap of @n. */
static void sift(uint8_t *base, size_t at, size_t n, size_t size, int (*order)(const void *a, const void *b))
{
	for (;;) {
		size_t child = 2 * at + 1;

		if (child >= n)
			return;
		if (child + 1 < n && order(base + child * size, base + (child + 1) * size) < 0)
			child++;
		if (order(base + at * size, base + child * size) >= 0)
			return;
		swap(base + at * size, base + child * size, size);
		at = child;
	}
}

void sort(void *items, size_t n, size_t size, int (*order)(const void *a, const void *b))
{
	uint8_t *base = items;

	for (size_t i = n / 2; i-- > 0;)
		sift(base, i, n, size, order);
	for (size_t i = n; i-- > 1;) {
		swap(base, base + i * size, size);
		sift(base, 0, i, size, order);
	}
}
