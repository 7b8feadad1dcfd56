/*
 * Names of images as users type them: "python:3.12-slim", "registry.example:5000/team/app@sha256:…". Missing parts get
 * the usual defaults: docker.io, library/, and the tag latest if there is no digest.
 */
#pragma once
#include "base/err.h"

#define OCI_REGISTRY "docker.io"
#define OCI_LIBRARY "library/"
#define OCI_TAG "latest"
#define OCI_REGISTRY_MAX 128
#define OCI_REPOSITORY_MAX 256
#define OCI_TAG_MAX 129 /* including the NUL, as the others */
#define OCI_DIGEST_MAX 80
#define OCI_NAME_MAX (OCI_REGISTRY_MAX + OCI_REPOSITORY_MAX + OCI_TAG_MAX + OCI_DIGEST_MAX)

struct oci_name {
	char registry[OCI_REGISTRY_MAX]; /* "docker.io", "localhost:5000" */
	char repository[OCI_REPOSITORY_MAX]; /* "library/python" */
	char tag[OCI_TAG_MAX]; /* "" = none, since there is a digest */
	char digest[OCI_DIGEST_MAX]; /* "sha256:…", or "" */
};

int oci_name_parse(const char *text, struct oci_name *ret, struct err *e);
/* The complete name: "docker.io/library/python:3.12-slim". */
void oci_name_full(const struct oci_name *n, char ret[OCI_NAME_MAX]);
/* The short form: without docker.io and library/. It is parsed to the same name again. */
void oci_name_short(const struct oci_name *n, char ret[OCI_NAME_MAX]);
