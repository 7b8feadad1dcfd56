/* What the API process can still do once it is set up: serve, and start cloche-tar. */
#pragma once
#include "base/err.h"

/*
 * no_new_privs, not dumpable, no core files, and a filter that lets through what such a process needs; the rest is
 * EPERM. Inherited by children. A failure is fatal to the caller.
 */
int confine(struct err *e);
