#pragma once
#include "base/err.h"

/* Installs the filter, which cannot be removed. Call it after the last privilege was given up. Needs no_new_privs. */
int confine(struct err *e);
