/* Verifies servers: TLS 1.2 or later, a certificate for the expected name, signed by a trusted authority. */
#pragma once
#include "base/err.h"

typedef struct ssl_st SSL;
struct trust;

/* Loads the authorities of that PEM file; "": those of the host. After an error no server can be verified. */
int trust_new(const char *ca_file, struct trust **ret, struct err *e);
void trust_free(struct trust *t);
/* A client's SSL for a connection to @name, HTTP/1.1 only; the caller gives it a socket. NULL: no memory. */
SSL *trust_connect(const struct trust *t, const char *name);
/* Why its handshake failed, as one line. */
void trust_why(SSL *ssl, const char *name, char *out, unsigned size);
