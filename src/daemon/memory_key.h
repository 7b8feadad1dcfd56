/* The keys that memory images are encrypted with (encrypt_memory), for the warden: made of the key of secrets. */
#pragma once
#include "daemon/identity.h"
#include "service/secret/vault.h"

/*
 * A file in memory with them. They are made by a child that is @who, as whom the files of the key are read: `secrets.key` is
 * made when there is no other key.
 */
int memory_keys_get(const struct vault_opts *o, const struct identity *who, int *ret_fd, struct err *e);
