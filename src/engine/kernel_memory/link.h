/*
 * Lets cloche-watch look at sandboxes: a child for the warden's life. When it ends, it is started again and gets all
 * sandboxes, with what was known of them.When it is silent for WATCH_SILENT_MS, it is ended. When sandboxes were not
 * looked at for WATCH_BLIND_MS, or when it ended often in a short time, all that is watched is ended
 * (kernel_sink.blind): no sandbox runs without its limits.
 */
#pragma once
#include "engine/kernel_memory/looker.h"

#define WATCH_SILENT_MS 10000
#define WATCH_BLIND_MS 2000
#define WATCH_LIVES 20 /* how many may end in WATCH_LIVES_MS */
#define WATCH_LIVES_MS 10000

extern const struct kernel_looker kernel_looker_process;
