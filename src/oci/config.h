/* An image's configuration: defaults for its programs, and the list of its layers. Hostile input. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "oci/digest.h"
#include "oci/manifest.h"

#define OCI_CONFIG_MAX (4U << 20)
#define OCI_LIST_MAX 4096U /* entries of a list: variables, words of a command, labels, history */

struct oci_list {
	char **item;
	unsigned n;
};

struct oci_history {
	char *created, *by, *comment, *author; /* NULL: not given */
	bool empty; /* this step made no layer */
};

struct oci_healthcheck {
	struct oci_list test;
	uint64_t interval, timeout, start_period, start_interval; /* nanoseconds; 0: not given */
	unsigned retries;
};

struct oci_config {
	char *architecture, *os, *variant, *created, *author; /* NULL: not given, as below */
	char *user, *workdir, *stop_signal;
	struct oci_list env; /* NAME=VALUE */
	bool has_entrypoint, has_cmd; /* set also for empty lists */
	struct oci_list entrypoint, cmd, shell, onbuild;
	struct oci_list labels; /* NAME=VALUE; a name contains no '=' */
	struct oci_list ports, volumes; /* such as "80/tcp"; paths */
	bool args_escaped;
	struct oci_healthcheck *health; /* or NULL */
	struct oci_history *history;
	unsigned nhistory;
	char (*diff)[OCI_DIGEST_SIZE]; /* diff ids, from the lowest on */
	unsigned ndiff;
};

void oci_config_init(struct oci_config *c);
void oci_config_done(struct oci_config *c);
static inline void oci_config_donep(struct oci_config *c)
{
	oci_config_done(c);
}
/* Initializes @ret, also on an error. */
int oci_config_parse(const char *text, size_t len, struct oci_config *ret, struct err *e);
/* Writes JSON that every reader of OCI images accepts. */
int oci_config_write(const struct oci_config *c, struct buf *out, struct err *e);
int oci_config_copy(const struct oci_config *from, struct oci_config *ret, struct err *e);

int oci_list_add(struct oci_list *l, const char *text); /* 0, -ENOMEM, or -E2BIG */
size_t oci_config_bytes(const struct oci_config *c); /* of its texts, about */
void oci_list_done(struct oci_list *l);
/* Adds NAME=VALUE, replacing one with the same name. */
int oci_list_put(struct oci_list *l, const char *assignment);
/* The value of @name (of @len bytes), NULL when there is none. */
const char *oci_list_get(const struct oci_list *l, const char *name, size_t len);
