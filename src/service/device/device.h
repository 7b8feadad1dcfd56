/*
 * Devices of sandboxes: which a tenant may have, which GPUs `gpus` means, which sandbox has them, and what programs must know of them
 * (docs/design/0021-devices.md). The warden decides again what may be had at all, and finds out by itself what a name means.
 */
#pragma once
#include "engine/spec.h"
#include "service/sandbox/part.h"

struct service;
struct tenant;

extern const struct sandbox_part device_part;
/* `allow_device = NAME` is for all tenants, `allow_device = TENANT:NAME` for one. */
bool device_may(const struct service_opts *o, const char *tenant, const char *name);
/* Why the processes of a sandbox with devices cannot be saved: ERR_REFUSED; 0: it has none. */
int devices_refuse_memory(const struct sandbox *b, struct err *e);
