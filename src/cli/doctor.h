/* `cloche doctor`: can sandboxes run on this host, and what would make it better. With --attack: do they hold. */
#pragma once

/* Returns the exit status: 0 when sandboxes can run (or nothing was open), 1 otherwise, 125 for bad usage. */
int cmd_doctor(int argc, char **argv);
