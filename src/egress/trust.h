/* Whether a server is who it says: TLS 1.2 or later, a certificate for that very name, an authority we know. */
#pragma once
#include "base/err.h"

typedef struct ssl_st SSL;
struct trust;

/* The authorities of that PEM file; "": the host's own. An error (no file, nothing in it): nobody can be verified. */
int trust_new(const char *ca_file, struct trust **ret, struct err *e);
void trust_free(struct trust *t);
/* A client's SSL for a connection to @name, HTTP/1.1 only; the caller gives it a socket. NULL: no memory. */
SSL *trust_connect(const struct trust *t, const char *name);
/* Why its handshake failed, as one line. */
void trust_why(SSL *ssl, const char *name, char *out, unsigned size);
