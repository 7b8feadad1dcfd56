/*
 * A sandbox whose user may not change /usr gets one that can be changed when somebody comes who may (SPEC_SYSTEM_LATER,
 * engine/sandbox/system.c): most never do, and are cheaper for it.
 */
#pragma once
#include "service/sandbox/sandbox.h"

struct sandbox_late; /* a file worker that waits for it */

/* Whether something of @user's can start now. If not the warden was asked: exec_system_came() tells. */
bool sandbox_system_ready(struct sandbox *b, const struct user_request *user);
/* A file worker for @user on @fd, which is copied, as soon as it can start. */
int sandbox_system_put_off(struct sandbox *b, const struct user_request *user, int fd, struct err *e);
/* The sandbox goes. */
void sandbox_system_drop(struct sandbox *b);
