/* Files with logins at registries, as `skopeo login --authfile FILE` and `docker login` write them. */
#pragma once
#include <jansson.h>
#include <stdbool.h>

/* Whether @registry ("localhost:5000") is on this machine; *ret_port begins with the colon, or is empty. */
bool oci_registry_is_loopback(const char *registry, const char **ret_port);
/*
 * The entry of the parsed @file that fits a repository most closely, or NULL. Its `auth` is base64 of USER:PASSWORD. A key of
 * the file is a registry, as in names of images or as a URL, or a registry and the first folders of a repository, which are
 * all that its login is for.
 */
const json_t *oci_login_find(const json_t *file, const char *registry, const char *repository);
