/*
 * Packages of a run: installed once, in a hidden sandbox with the network that the request gives, or with the administrator's set
 * `packages`; its files are kept as a layer, from which every run with the same list starts. Nothing is stored: after a restart of
 * the daemon a list is installed again.
 */
#pragma once
#include "service/checkpoint/checkpoint.h"
#include "service/state/turn.h"

struct package_set;
struct run_request;

#define PACKAGES_MAX 64U

struct package_waiter { /* all zeros at first */
	struct package_waiter *next;
	struct package_set *set; /* NULL: it waits for none */
	/* Once. @c is good during the call; NULL: *e says why. */
	void (*fn)(void *arg, struct checkpoint *c, const struct err *e);
	void *arg;
	struct turn_wait wait;
};
/* ERR_INVALID: what is no list of names, or a language that has none. */
int packages_check(const json_t *packages, const char *language, struct err *e);
/* ->fn is called later. -errno: it is not, and *e says why. */
int packages_get(struct service *s, const struct who *who, const struct run_request *q, struct package_waiter *w,
		 struct err *e);
void packages_leave(struct package_waiter *w); /* also one that waits for none */
/* The tenant's go; NULL: all of them. */
void packages_drop(struct service *s, const struct tenant *t);
