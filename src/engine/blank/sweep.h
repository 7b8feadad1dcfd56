/* What a warden that was killed left behind. */
#pragma once
#include "engine/blank/env.h"

/*
 * Removes groups whose slot is free and which have no members. A group with members is left alone: its sandbox runs,
 * with a client at its agent's socket, or it is ending: for that it waits `ms` at most.
 */
void sweep_groups(struct env *v, unsigned ms);
