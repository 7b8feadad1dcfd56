/* One function per command; argv[0] is the command's name. Each returns the process's exit code. */
#pragma once
#include "cli/doctor.h"

int cmd_run(int argc, char **argv);
int cmd_image(int argc, char **argv);
int cmd_client(int argc, char **argv); /* becomes cloche-client */
