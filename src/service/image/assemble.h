/*
 * The last part of everything that makes an image: its layers are made from the lowest on, its user is looked up, and
 * it is stored under its name. The caller provides the bytes of the layers.
 */
#pragma once
#include "oci/config.h"
#include "service/image/image.h"

struct assembly;

struct assembly_layer {
	int fd; /* read from its offset; -1: the layer must exist already */
	uint64_t size; /* 0: up to the end */
	char digest[OCI_DIGEST_SIZE]; /* "": any */
	bool compressed;
};

struct assembly_plan {
	const struct oci_name *name;
	const char *digest; /* of the manifest; NULL: that of a manifest that is written here */
	const struct oci_config *config; /* copied; with one diff id per layer, or with none */
	const char *source; /* JSON */
	/*
	 * Opens the bytes of layer @n, which does not exist yet: called just before they are read. Takes over *ret's
	 * descriptor.
	 */
	int (*open)(void *arg, unsigned n, struct assembly_layer *ret, struct err *e);
	unsigned layers;
	void (*progress)(void *arg, unsigned n); /* @n layers exist; may be NULL */
	void (*done)(void *arg, struct image *i, const struct err *e); /* called once, later, unless it was cancelled */
	void *arg;
};

int assemble(struct service *s, const struct who *who, const struct assembly_plan *p, struct assembly **ret,
	     struct err *e);
void assembly_cancel(struct assembly *a);
