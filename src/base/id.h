/*
 * Ids of sandboxes, execs, checkpoints: lower-case letters and digits, four for the node that made it ("0000" on a
 * single machine), then 100 random bits, so that an id cannot be guessed.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#define ID_NODE_LEN 4
#define ID_LEN 24
#define ID_SIZE (ID_LEN + 1)

/* Writes an id and its NUL. -ENOSPC when @size is below ID_SIZE, or getrandom's error. */
int id_new(char *buf, size_t size);
/* Whether @text has the form of an id: what comes from outside is checked before it names a folder. */
bool id_valid(const char *text);
