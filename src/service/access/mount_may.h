/*
 * Which folders of the host a tenant may have mounted: `allow_mount = /folder` is for all, `allow_mount = TENANT:/folder`
 * for that one alone. The warden bounds what can be mounted at all, and follows no links; this says who may.
 */
#pragma once
#include "engine/spec.h"
#include "service/service.h"

/* ERR_DENIED names the first that @t may not have. */
int mounts_may(const struct service_opts *o, const struct tenant *t, const struct sandbox_spec *spec, struct err *e);
