#pragma once
#include <stddef.h>

/* Writes the text and its NUL: 4 characters for each 3 bytes. -ENOSPC when @size is too small. */
int base64_encode(const void *data, size_t len, char *ret, size_t size);
