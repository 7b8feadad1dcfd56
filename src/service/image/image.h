/*
 * Images: names of a tenant, each with a configuration and a chain of layers. Chains are shared by all tenants. See
 * docs/design/0018-images.md.
 */
#pragma once
#include <jansson.h>

#include "oci/config.h"
#include "oci/name.h"
#include "service/service.h"

#define IMAGE_SOURCE_MAX 4096

struct image_chain;
struct image;

int image_book_new(struct service *s, struct err *e);
int images_load(struct service *s, struct err *e);
struct sandbox_spec;
/* Copies those layers of @of that belong to an image into @ret: all others were changed in a sandbox. */
void image_layers_of(struct service *s, const struct sandbox_spec *of, struct sandbox_spec *ret);
struct sandbox_request;
/*
 * Replaces the image's name in @w, if a stored image has it: by its layers, and by its configuration where @w has no
 * value.
 */
int image_resolve(struct service *s, const struct tenant *t, struct sandbox_request *w, struct err *e);

/* --- chains --- */
struct image_chain *image_chain_find(struct service *s, const char *id); /* NULL: there is none; also for "" */
/* Keeps it, and those below, until the same number of image_chain_unpin(). */
void image_chain_pin(struct image_chain *c);
void image_chain_unpin(struct image_chain *c);
/* Makes a layer that was just sealed a chain: stored with this turn. Pinned once, for the caller. */
struct sandbox_spec;
struct image_chain_new {
	const char *parent, *diff, *blob;
	uint64_t blob_size, size, files;
	const struct sandbox_spec *spec; /* ->layers and ->layer */
};
int image_chain_put(struct service *s, const struct image_chain_new *n, struct image_chain **ret, struct err *e);
/*
 * Removes unused chains: those without an image, a cached step, or work under way. Returns how many bytes that will
 * free.
 */
struct image_freed {
	uint64_t chains, bytes;
};
void image_sweep(struct service *s, struct image_freed *ret);
uint64_t image_chain_bytes(struct service *s, const char *id); /* including lower ones */

/* --- images --- */
/*
 * By its name, or the digest of its manifest (or at least its first 12 digits), among the tenant's and public ones.
 * ERR_NOT_FOUND.
 */
struct image *image_find(struct service *s, const struct tenant *t, const char *text, struct err *e);
/* The digest of the stored image that @name means now, or @name itself. What is kept of a sandbox of an image is kept under it. */
const char *image_current(struct service *s, const struct tenant *t, const char *name);
/* What @i says stays until as many image_unref(), though it may be removed or replaced meanwhile. */
struct image *image_ref(struct image *i);
void image_unref(struct image *i); /* NULL: nothing */
bool image_visible(const struct image *i, const struct tenant *t);
bool image_is_public(const struct image *i);
/* Images visible to @t, by name; NULL: all. The list is the caller's to free. */
void images_list(struct service *s, const struct tenant *t, struct image ***ret, size_t *ret_n);

struct image_new {
	const struct oci_name *name;
	const char *digest, *chain, *user;
	const struct oci_config *config;
	const char *source; /* JSON */
};
/* Stored with this turn. Replaces an image of that name. */
int image_put(struct service *s, const struct who *who, const struct image_new *n, struct image **ret, struct err *e);
/* Adds another name. */
int image_tag(struct image *i, const struct who *who, const char *name, struct image **ret, struct err *e);
int image_publish(struct image *i, const struct who *who, bool public, struct err *e);
/* Sandboxes made from it stay, and keep its layers. */
int image_remove(struct image *i, const struct who *who, struct err *e);
/* The tenant was removed: so are its images, and the steps of its builds. One that is called so later finds none of them. */
void images_forget(struct service *s, const struct who *who, const struct tenant *t);
void image_write(const struct image *i, struct json *j); /* as one object, as callers see it */
/* the fields `image` and `digest` of an operation's result */
void image_write_result(const struct image *i, struct json *j);
