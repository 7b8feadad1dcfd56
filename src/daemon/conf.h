/*
 * The daemon's configuration: built-in values, then a file of `key = value` lines, then options. docs/config.md lists the
 * keys; a test compares it with the table here. Strict: an unknown key, a duplicate key that is not a list, or an
 * invalid value is an error that names file and line.
 */
#pragma once
#include <stddef.h>
#include <stdio.h>

#include "base/err.h"
#include "daemon/daemon.h"

#define CONF_FILE "/etc/cloche/serve.conf"
#define CONF_DATA "/var/lib/cloche"
#define CONF_LISTEN "127.0.0.1:7070"
#define CONF_FILE_MAX (256UL * 1024)

/* The built-in values, without any listener: conf_finish() adds the default one. */
void conf_init(struct daemon_config *c);

/*
 * Sets one key, or adds to it when it is a list. Paths must be absolute. ERR_INVALID with a message that names the key.
 */
int conf_set(struct daemon_config *c, const char *key, const char *value, struct err *e);
/* Forgets a list, so that options can take the place of what the file said. Anything else is left alone. */
void conf_clear(struct daemon_config *c, const char *key);

/* @name is for messages. The text may hold anything. On an error @c is half-filled: throw it away. */
int conf_parse(struct daemon_config *c, const char *name, const char *text, size_t len, struct err *e);
int conf_read(struct daemon_config *c, const char *path, struct err *e);

/* Fills in what is left, and checks what only shows when all is known. Looks at no file. */
int conf_finish(struct daemon_config *c, struct err *e);
/* Whether the files and folders it names are there. */
int conf_check_files(const struct daemon_config *c, struct err *e);

/* The n-th key's name, NULL behind the last. */
const char *conf_key(size_t n);
