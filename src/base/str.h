/*
 * Text a user typed, turned into numbers. Strict: the whole text must be one number with its unit, no signs, no spaces,
 * no overflow. Each returns 0, or -EINVAL or -ERANGE with a message that quotes the text; *ret is written on success.
 */
#pragma once
#include <stdint.h>

#include "base/err.h"

int parse_u64(const char *text, uint64_t *ret, struct err *e);
/* Bytes: "4096", "100k", "512M", "1G", "2T", binary units in either case, "iB" allowed behind ("512MiB"). */
int parse_size(const char *text, uint64_t *ret_bytes, struct err *e);
/* Milliseconds: "250ms", "30s", "1.5s", "5m", "1h", "2d"; a plain number is seconds. */
int parse_duration(const char *text, uint64_t *ret_ms, struct err *e);
/* Thousandths of a core: "2", "0.5", "1.25". */
int parse_cpus(const char *text, uint32_t *ret_milli, struct err *e);
