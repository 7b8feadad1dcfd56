/*
 * Devices of sandboxes: which a tenant may have, which GPUs `gpus` means, which sandbox has them, and what programs must know of them
 * (docs/design/0021-devices.md). The warden decides again what may be had at all, and finds out by itself what a name means.
 */
#pragma once
#include "engine/spec.h"
#include "service/device/list.h"
#include "service/sandbox/part.h"

struct service;
struct tenant;

extern const struct sandbox_part device_part;
/* `allow_device = NAME` is for all tenants, `allow_device = TENANT:NAME` for one. */
bool device_may(const struct service_opts *o, const char *tenant, const char *name);
/* For ahead.c. Whether cloche-devices has to be asked for @w, which may have what it asks for. */
bool devices_asked(const struct service *s, const struct tenant *t, struct sandbox_request *w);
/* All names that this request and other sandboxes use: a GPU has several. */
int devices_need(struct service *s, const struct sandbox_request *w, struct device_names *ret, struct err *e);
struct devices_from devices_source(const struct service *s, const struct sandbox_request *w);
/* What `gpus` means now, and whether all devices of @w may be had and are free. */
int devices_pick(struct service *s, const struct tenant *t, const struct device_list *l, struct sandbox_request *w,
		 struct err *e);
/* Why the processes of a sandbox with devices cannot be saved: ERR_REFUSED; 0: it has none. */
int devices_refuse_memory(const struct sandbox *b, struct err *e);
