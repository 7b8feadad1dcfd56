/* A file of the Container Device Interface: whether it is one, in its version. https://github.com/cncf-tags/container-device-interface */
#pragma once
#include "devices/tree.h"

#define CDI_VERSIONS                                                                                                   \
	{                                                                                                              \
		"0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0"                                 \
	}

/* All of it, also what is not asked for: unknown fields, wrong types, fields that its version does not have. */
int cdi_check(const struct tree *root, struct err *e);
/* vendor.com/class=name; *ret_kind: how much of it is vendor and class. */
int cdi_check_name(const char *name, size_t *ret_kind, struct err *e);
/* @t, or NULL for what counts as absent. */
const struct tree *cdi_field(const struct tree *map, const char *key);
