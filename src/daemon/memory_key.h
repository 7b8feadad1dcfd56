/* The keys that memory images are encrypted with (encrypt_memory), for the warden: made of the key of secrets. */
#pragma once
#include "daemon/identity.h"
#include "service/secret/vault.h"

/*
 * Returns a file in memory with the keys. A child with the ids of @who derives them, since it reads the files of the key
 * as that user: `secrets.key` is made when there is no other key.
 */
int memory_keys_get(const struct vault_opts *o, const struct identity *who, int *ret_fd, struct err *e);
