/* Chains of layers, for this folder. The other functions are in image.h. */
#pragma once
#include "service/image/image.h"

struct image_layer_row;
struct sandbox_spec;
/* The highest chain that the list of layers begins with; NULL: none. */
struct image_chain *image_chain_of(struct service *s, const struct sandbox_spec *spec);
/* Whether an image with @more layers above @c (NULL: nothing) has at most OCI_LAYERS_MAX. ERR_TOO_LARGE. */
int image_chain_room(const struct image_chain *c, unsigned more, struct err *e);
int image_chain_load(struct service *s, const struct image_layer_row *row); /* always 0: errors are logged */
