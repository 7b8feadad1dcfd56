/* Devices, for `cloche run` and `cloche doctor`. */
#pragma once
#include "base/buf.h"
#include "cli/options.h"

/* The environment that the devices of ->spec ask for: into ->device_env. Says early what is wrong with their names. */
int devices_env(struct options *o, struct err *e);
/* All that there are: @how is "list" (one JSON object) or "text". */
int devices_list(const char *how, struct buf *ret);
