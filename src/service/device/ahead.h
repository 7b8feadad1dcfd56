/*
 * What cloche-devices says for a create, asked in a worker before the create begins: the loop does not wait for it. One request is
 * asked for at a time, since the workers also sync the audit log.
 */
#pragma once
#include "service/device/list.h"
#include "service/sandbox/part.h"

struct device_found {
	const struct sandbox_request *request; /* that is being created now */
	struct device_names asked;
	bool listed; /* false: nothing could be asked */
	struct device_list list; /* of ->asked, unless ->list_r says that it failed */
	int list_r;
	struct err list_e;
	unsigned nplanned; /* 0: nothing was asked about their plan */
	char planned[DEVICE_NAMES][DEVICE_NAME];
	struct device_plan plan; /* of ->planned, likewise */
	int plan_r;
	struct err plan_e;
};

/* Of a sandbox_part: see ->ahead there. */
bool device_ahead(struct service *s, const struct who *who, struct sandbox_request *w,
		  const struct sandbox_creation *c);
