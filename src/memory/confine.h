#pragma once
#include "base/err.h"

/* For good, after the last privilege was given up. Needs no_new_privs. */
int confine(struct err *e);
