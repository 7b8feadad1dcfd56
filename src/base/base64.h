/* Base64 of RFC 4648. */
#pragma once
#include <stddef.h>
#include <sys/types.h>

#define BASE64_SIZE(n) (((n) + 2) / 3 * 4 + 1) /* of the text for @n bytes, with its NUL */

/* Writes the text and its NUL, BASE64_SIZE(@len) bytes in all. Returns its length. */
size_t base64_encode(const void *data, size_t len, char *ret);
/* Both alphabets; what fills up the end may be missing. -EINVAL for what is none. @ret has room for three quarters of @len. */
ssize_t base64_decode(const char *text, size_t len, char *ret);
