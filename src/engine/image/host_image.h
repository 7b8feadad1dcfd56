/* Filling the skeleton of image `host`. */
#pragma once
#include <stdbool.h>

#include "base/err.h"

/* To be raised when what is made changes, so that an older cache is not used. */
#define HOST_IMAGE_VERSION 41U

/* Fills the empty folder @dir: root/, base/, and dev/ when @devices. */
int host_image_fill(int dir, bool devices, struct err *e);
