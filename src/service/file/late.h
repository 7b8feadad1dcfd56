/* Between the parts of service/file/: workers that wait for a writable /usr. */
#pragma once
#include "service/sandbox/sandbox.h"

/* One for @user on @fd, which is copied, as soon as it can start. */
int file_late_add(struct sandbox *b, const struct user_request *user, int fd, struct err *e);
/* It can now; r < 0: never. */
void file_late_start(struct sandbox *b, int r);
