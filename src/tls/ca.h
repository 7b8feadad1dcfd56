/*
 * A certificate authority for one sandbox, trusted only inside it: where egress injects a secret into TLS it shows the
 * sandbox a certificate of that name made by this CA. P-256; the CA's key never enters the sandbox.
 */
#pragma once
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

#define CA_PEM_MAX 4096U

typedef struct ssl_ctx_st SSL_CTX;
struct ca;

/* A new one for the sandbox with that id, good for @days: both PEM texts are appended. The key's buffer is to be
 * cleaned by the caller (ca_wipe). */
int ca_make(const char *id, unsigned days, struct buf *ret_cert, struct buf *ret_key, struct err *e);
/*
 * A bundle for use inside: what @theirs holds (PEM text, the host's or the image's own bundle; may be "") and @cert
 * behind it. Appended to @out.
 */
int ca_bundle(const char *theirs, const char *cert, struct buf *out, struct err *e);
/* The host's own bundle as text, from where distributions keep it; @file not NULL or "": that one. -ENOENT. */
int ca_system(const char *file, struct buf *out, struct err *e);
void ca_wipe(struct buf *b); /* zeroes and frees */

/* From PEM texts. ERR_INVALID: they make no sense, or do not belong together. */
int ca_open(const char *cert_pem, const char *key_pem, struct ca **ret, struct err *e);
void ca_close(struct ca *ca);
/* A server's context for @name: made when asked first, good for a day, kept (64 names) and owned by @ca; the caller's
 * SSL objects keep it alive. HTTP/1.1 only, TLS 1.2 or later. */
int ca_context(struct ca *ca, const char *name, SSL_CTX **ret, struct err *e);
