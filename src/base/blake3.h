/*
 * BLAKE3, by its specification: its hash of up to 32 bytes, without keys. As hard to fool as SHA-256, and several parts of
 * an input are taken at once: what is long takes half the time that the CPU's own instructions for SHA-256 do.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

#define BLAKE3_SIZE 32
#define BLAKE3_MOST (128U << 10) /* bytes of one input */

void blake3(const void *data, size_t len, uint8_t ret[BLAKE3_SIZE]);
/* As blake3, without what only some CPUs have. */
void blake3_plain(const void *data, size_t len, uint8_t ret[BLAKE3_SIZE]);
