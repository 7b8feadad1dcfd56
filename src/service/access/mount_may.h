/*
 * Which folders of the host a tenant may mount: `allow_mount = /folder` is for all tenants, `allow_mount =
 * TENANT:/folder` for one. The warden bounds what can be mounted at all, and follows no links; this decides by
 * tenant.
 */
#pragma once
#include "engine/spec.h"
#include "service/service.h"

/* ERR_DENIED names the first that @t may not have. */
int mounts_may(const struct service_opts *o, const struct tenant *t, const struct sandbox_spec *spec, struct err *e);
