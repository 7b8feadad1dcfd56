/* What cloche-devices lists, as the API process needs it. */
#pragma once
#include "engine/image/devices.h"
#include "service/service.h"

#define DEVICE_UNITS (DEVICE_NODES * 25 + 1) /* " c4294967295:4294967295 " is the longest of each node */

struct device_item {
	char name[DEVICE_NAME];
	/* the nodes that make it this one: "c195:0 c195:1", the same for other names of one GPU */
	char units[DEVICE_UNITS];
	char problem[200]; /* "": it can be used */
	bool gpu, listed; /* listed: of a specification, not another name of one */
};

struct device_list {
	struct device_item *item;
	unsigned n;
};

/* Each once. */
struct device_names {
	char (*name)[DEVICE_NAME];
	unsigned n;
};

bool device_names_within(const struct device_names *some, const struct device_names *all);
int device_names_add(struct device_names *to, const char *name, struct err *e);
static inline void device_names_donep(struct device_names *d)
{
	free(d->name);
}

/* All that this machine has, and @names, where they are names of something. Some milliseconds. */
int device_list_load(const struct service_opts *o, const struct device_names *names, struct device_list *ret,
		     struct err *e);
void device_list_done(struct device_list *l);
static inline void device_list_donep(struct device_list *l)
{
	device_list_done(l);
}
const struct device_item *device_list_find(const struct device_list *l, const char *name);
bool device_items_meet(const struct device_item *a, const struct device_item *b); /* they have a node in common */
/* How many nodes of GPUs the @n devices have together, by whatever names. */
unsigned device_list_gpus(const struct device_list *l, char (*name)[DEVICE_NAME], unsigned n);
