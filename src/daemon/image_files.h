/* The files of the configuration that say how registries of images are talked to. Read by root: logins are in one. */
#pragma once
#include "daemon/daemon.h"

#define IMAGE_FILE_MAX (96U * 1024U) /* each is passed on in the environment of a program */

struct image_files { /* "" = none */
	char auth[IMAGE_FILE_MAX + 1], ca[IMAGE_FILE_MAX + 1], registries[IMAGE_FILE_MAX + 1];
};

int image_files_read(const struct daemon_config *c, struct image_files *ret, struct err *e);
