/* A sandbox's oom_score_adj (base/score.h). */
#pragma once
#include "base/err.h"
#include "engine/blank/blank.h"

/*
 * Once its agent has spoken, and before it has children, which inherit it. Not earlier: a process that still runs on our
 * memory shares ours. The agent cannot do it, since its files in /proc are the host's root's.
 */
int score_set(const struct blank *s, struct err *e);
