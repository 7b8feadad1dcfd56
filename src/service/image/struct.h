/* The members of an image and of a chain: for the folders of service/. Other code uses the functions of image.h. */
#pragma once
#include "engine/spec.h"
#include "service/image/image.h"

/* A chain of layers in the warden's store. In a map of the service, by its chain id. */
struct image_chain {
	struct service *service;
	char id[OCI_DIGEST_SIZE];
	char parent[OCI_DIGEST_SIZE]; /* "" = none */
	char diff[OCI_DIGEST_SIZE]; /* of its uppermost layer, as the next two members */
	char blob[OCI_DIGEST_SIZE]; /* "" = the archive was not compressed */
	uint64_t blob_size, size, files, created_ns; /* ->size: bytes of its uppermost layer in the store */
	uint32_t layers;
	char layer[SPEC_LAYERS][ID_SIZE]; /* from the lowest on; the warden may have joined some */
	unsigned pins; /* uses by work under way, which keep it */
	bool marked; /* marked by the present sweep */
	bool going; /* its row is deleted */
};

struct image {
	struct service *service;
	struct tenant *tenant;
	char name[OCI_NAME_MAX]; /* the complete form: "docker.io/library/python:3.12" */
	char digest[OCI_DIGEST_SIZE]; /* of its manifest */
	char chain[OCI_DIGEST_SIZE]; /* "" = no layers */
	struct oci_config config;
	size_t config_bytes;
	char user[24]; /* "UID:GID" of its user; "" = its files do not have that user */
	char *source; /* JSON */
	unsigned refs; /* it is freed with the last: its name's, and those of work under way */
	bool public; /* other tenants may use it */
	uint64_t size, created_ns; /* ->size: of all its layers */
};
