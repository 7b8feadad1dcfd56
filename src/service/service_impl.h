/* Between service.c, adopt.c and exec_find.c. */
#pragma once
#include "service/service.h"

void service_ticks(struct service *s);
void adopt_free(struct service *s); /* behind the link to the warden */
void spool_sweep(struct service *s); /* files of execs nobody knows any more */
