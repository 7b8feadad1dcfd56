/* The administrator's way to the key of all secrets: a command that writes it to its standard output (a KMS, a TPM, a file). */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define KEY_COMMAND_MS 10000U

/*
 * Runs `/bin/sh -c @command` with the caller's ids, and returns its output: at most @size bytes. ERR_REFUSED when it
 * fails, prints nothing or too much; ERR_TIMEOUT when it takes longer than @ms; then all its processes are killed.
 */
int key_command_run(const char *command, unsigned ms, uint8_t *ret, size_t size, size_t *ret_len, struct err *e);
