/* What a warden that was killed left behind. */
#pragma once
#include "engine/blank/env.h"

/*
 * Removes groups whose slot nobody holds and in which nothing runs. A group in which something runs is left alone: its
 * sandbox goes on, spoken to by whoever holds its agent's socket, or it is dying: for that it waits `ms` at most.
 */
void sweep_groups(struct env *v, unsigned ms);
