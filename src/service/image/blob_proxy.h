/*
 * Blobs of one image from its registry: skopeo as a server in a sandbox, asked over a socket that is its stdin
 * (`experimental-image-proxy`). One request at a time; the answer is the reading end of a pipe, from which a thread
 * moves the bytes into a file. The caller checks the digest.
 */
#pragma once
#include "service/image/registry_conf.h"
#include "service/sandbox/sandbox.h"

#define BLOBS_AT_ONCE 4U

struct blob_proxy;

/* Called once, not from within the call: the whole blob, with the expected size, is in the file. */
typedef void blob_fn(void *arg, int r, const struct err *e);

struct blob_plan {
	const char *digest; /* "sha256:…" */
	uint64_t size;
	int fd; /* written to; stays the caller's, and open until the callback */
};

/* @image: in skopeo's form, "docker://HOST/REPOSITORY@DIGEST"; @what: for messages. */
int blob_proxy_new(struct sandbox *b, const struct who *who, const struct registry_conf *conf, const char *image,
		   const char *what, struct blob_proxy **ret, struct err *e);
/* At most BLOBS_AT_ONCE at a time: -EAGAIN. */
int blob_proxy_fetch(struct blob_proxy *p, const struct blob_plan *plan, blob_fn *fn, void *arg, struct err *e);
uint64_t blob_proxy_bytes(const struct blob_proxy *p); /* moved so far, by all blobs */
/* No callback follows. @done: the files are not written to any more. NULL: only calls @done, at once. */
void blob_proxy_free(struct blob_proxy *p, void (*done)(void *arg), void *arg);
