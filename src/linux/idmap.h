/* User namespaces made only to be the map of an idmapped mount. */
#pragma once
#include <stdint.h>

#include "base/err.h"

/* On disk @uid:@gid, in the mount @to_uid:@to_gid, and nobody else. Returns the namespace's descriptor or -errno. */
int idmap_new(uint32_t uid, uint32_t to_uid, uint32_t gid, uint32_t to_gid, struct err *e);
/* On disk the @n ids from @from on, in the mount those from @to on; root stays root, and nobody else is there. Likewise. */
int idmap_move(uint32_t from, uint32_t to, uint32_t n, struct err *e);
