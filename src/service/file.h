/* Files of a sandbox, worked on by a process inside of it (src/agent/files.c) over proto/file.h. */
#pragma once
#include "service/box.h"

/* Idle workers of a box that goes. */
void file_workers_drop(struct box *b);
