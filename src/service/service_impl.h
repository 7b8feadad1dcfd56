/* Between service.c and adopt.c. */
#pragma once
#include "service/service.h"

void service_ticks(struct service *s);
