/*
 * skopeo's configuration for one registry: login, trusted authorities, and host name. It gets the credentials of that
 * registry alone.
 */
#pragma once
#include <stdbool.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "oci/name.h"
#include "service/service.h"

#define REGISTRY_HOST 300U

struct registry_conf {
	char host[REGISTRY_HOST]; /* with its port, in skopeo's form; one on loopback is NET_LOOPBACK_NAME there */
	bool loopback; /* on loopback, plain HTTP and self-signed certificates are accepted */
	char *auth; /* a file in skopeo's format */
	const char *ca, *registries; /* PEM, and a registries.conf; "" = none. They belong to the options */
};

/* @login: the caller's base64 of USER:PASSWORD, NULL: from the administrator's file, if it has one. */
int registry_conf_make(const struct service_opts *o, const struct oci_name *name, const char *login,
		       struct registry_conf *ret, struct err *e);
void registry_conf_done(struct registry_conf *c);
