/* The first admin token: made, or taken from a file of the admin's. */
#pragma once
#include <stddef.h>

#include "base/err.h"

#define TOKEN_FILE_MIN 16
#define TOKEN_FILE_MAX 128
#define TOKEN_FILE_SIZE 160 /* as in struct daemon_start */

/* "cloche_" and 43 characters that encode 32 random bytes. */
int token_new(char text[TOKEN_FILE_SIZE], struct err *e);

/*
 * Reads the first line of @path. It must be a regular file, not a link, that only its owner may read. When it does not
 * exist, a new token is made and written there, mode 0600: completely, or not at all.
 */
int token_file_get(const char *path, char text[TOKEN_FILE_SIZE], struct err *e);
