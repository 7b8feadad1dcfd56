/* User namespaces made only to be the map of an idmapped mount. */
#pragma once
#include <stdint.h>

#include "base/err.h"

/* On disk @uid:@gid, in the mount @to_uid:@to_gid, and nobody else. Returns the namespace's descriptor or -errno. */
int idmap_new(uint32_t uid, uint32_t to_uid, uint32_t gid, uint32_t to_gid, struct err *e);
