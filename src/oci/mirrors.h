/*
 * Where a registries.conf sends a repository: its mirrors, and another location. This reads the tables [[registry]] and
 * [[registry.mirror]] with their `prefix` and `location`, one key a line; whatever else such a file may have is skipped.
 */
#pragma once
#include "base/buf.h"

#define OCI_MIRRORS_MAX 16U
#define OCI_PLACE_MAX 512U

/*
 * @ref: "registry.example/team/app". Fills @ret with the places that it is looked for at, "mirror.example:5000/copies/app", its
 * own one left out, and returns how many; further ones and longer ones are left out.
 */
unsigned oci_mirrors(const char *conf, const char *ref, char ret[OCI_MIRRORS_MAX][OCI_PLACE_MAX]);
/* A copy of the file in which locations and prefixes on this machine ("localhost:5000", "127.0.0.1:5000/x") have the host @name. */
int oci_mirrors_rename_loopback(const char *conf, const char *name, struct buf *ret);
