/* All devices, as JSON. */
#pragma once
#include "devices/plan.h"

/*
 * {"devices": [{"name", "file", "unit", "gpu", "problem"?, "notes": […]}], "problems": [{"file", "problem"}]}. unit: the nodes that make it
 * this device and no other, for those who count: the same for two names of one GPU. @more: names that may mean something without being in a file.
 */
int list_print(struct catalog *c, const struct plan_opts *o, const char *const *more, unsigned n, int fd,
	       struct err *e);
/* The same for people: a paragraph of `cloche doctor`. */
int list_text(struct catalog *c, const struct plan_opts *o, int fd, struct err *e);
