/*
 * skopeo's configuration for one registry: logins, trusted authorities, and host name. It gets the credentials of that
 * registry alone, and those of the mirrors that the administrator names for it.
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
	char *registries; /* a registries.conf; "" = none */
	const char *ca; /* PEM; "" = none. It belongs to the options */
};

/* @login: the caller's base64 of USER:PASSWORD, NULL: from the administrator's file, if it has one. */
int registry_conf_make(const struct service_opts *o, const struct oci_name *name, const char *login,
		       struct registry_conf *ret, struct err *e);
/* Overwrites its logins and passwords in @text: what a registry sends back is shown to tenants. */
void registry_conf_hide(const struct registry_conf *c, char *text);
void registry_conf_done(struct registry_conf *c);
