/* For tests: an engine whose sandboxes are made by a warden in another process. */
#pragma once
#include "driver/driver.h"
#include "warden/client/client.h"

/* @fd, a socket to that warden, is taken over whatever happens. */
int remote_open(int fd, struct engine **ret, struct err *e);
/* To ask it other things. */
struct client *remote_client(const struct engine *g);
