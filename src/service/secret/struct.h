/* The members of a secret: for the rooms of service/. Others use the functions of secret.h. */
#pragma once
#include "service/secret/secret.h"
#include "service/struct.h"

/* As it is stored. */
struct secret_value {
	struct secret_value *next; /* older */
	uint64_t version;
	size_t len;
	uint8_t sealed[];
};

struct secret {
	struct service *service;
	struct tenant *tenant;
	char name[NAME_MAX_LEN + 1];
	char *description; /* NULL = none */
	uint64_t version;
	bool gone; /* deleted: no sandbox gets it any more; its values are masked where they may still appear */
	uint64_t created_ns, updated_ns;
	struct secret_value *values; /* newest first */
};

/* As secret_read(), of an older value. */
int secret_read_version(const struct secret *c, const struct secret_value *v, struct buf *ret, struct err *e);
