/* User namespaces made only to be the map of an idmapped mount. */
#pragma once
#include <stdint.h>

#include "base/err.h"

/* Maps only @uid:@gid on disk, to @to_uid:@to_gid in the mount. Returns the namespace's descriptor or -errno. */
int idmap_new(uint32_t uid, uint32_t to_uid, uint32_t gid, uint32_t to_gid, struct err *e);
/* Maps the @n ids from @from on to those from @to on, and root to root; other ids are not mapped. Likewise. */
int idmap_move(uint32_t from, uint32_t to, uint32_t n, struct err *e);
