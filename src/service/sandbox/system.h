/*
 * A sandbox whose user may not change /usr gets a writable one when a user comes that may (SPEC_SYSTEM_LATER,
 * engine/sandbox/system.c): for most this never happens, and they are cheaper for it.
 */
#pragma once
#include "service/sandbox/sandbox.h"

/* Whether a process of @user can start now. If not, the warden was asked, and the parts are told (`writable`). */
bool sandbox_system_ready(struct sandbox *b, const struct user_request *user);
