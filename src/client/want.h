/* The settings of a sandbox as options: what `create`, `restore` and `template set` have in common. */
#pragma once
#include <getopt.h>
#include <jansson.h>

#include "base/err.h"

extern const struct option want_options[]; /* values from 512 on, and 'e' */
extern const char want_help[];
/* One of them, into the request's body. The error names the option. */
int want_apply(json_t *body, int opt, const char *arg, struct err *e);

/* Of the object "network": one more rule, with mode allow when none is named; and one amount of "budget" or "tree_budget". */
int want_allow(json_t *net, const char *arg, struct err *e);
int want_budget(json_t *net, const char *which, const char *arg, struct err *e);
