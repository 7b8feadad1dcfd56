/* Digests of content, "sha256:" and 64 hexadecimal digits, and what is computed from them. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/sha256.h"

#define OCI_DIGEST_PREFIX "sha256:"
#define OCI_DIGEST_LEN 71U
#define OCI_DIGEST_SIZE 72U /* including the NUL */

bool oci_digest_ok(const char *text);
void oci_digest_text(const uint8_t sum[SHA256_SIZE], char ret[OCI_DIGEST_SIZE]);
void oci_digest_of(const void *data, size_t len, char ret[OCI_DIGEST_SIZE]);
/* The identity of the layer @diff_id above the chain @parent ("" for the lowest layer). */
void oci_chain_id(const char *parent, const char *diff_id, char ret[OCI_DIGEST_SIZE]);
