/* The settings of a sandbox as options: what `create`, `restore` and `template set` have in common. */
#pragma once
#include <getopt.h>
#include <jansson.h>

#include "base/err.h"

extern const struct option want_options[]; /* values from 512 on, and 'e' */
extern const char want_help[];
/* One of them, into the request's body. The error names the option. */
int want_apply(json_t *body, int opt, const char *arg, struct err *e);
