/* Between the parts of service/. */
#pragma once
#include "service/struct.h"

/* Something has a time now, or is to be tried again: the next look is at most a quarter of a second away. */
#define SERVICE_SOON_MS 250
void service_soon(struct service *s);
/* Whether a row could not be read, or all of them have not been yet: what it has is not known. */
static inline bool service_unread(const struct service *s)
{
	return !s->unread || s->unread->count;
}
void spool_sweep(struct service *s); /* removes files of execs that are not known any more */
