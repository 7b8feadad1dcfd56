#pragma once
#include "base/err.h"

/*
 * No capabilities, no_new_privs, not dumpable, no cores, Landlock and a filter: streams and datagrams of the network,
 * files read only (the resolver's configuration, authorities), no new programs, nothing of other processes. What fails
 * is fatal.
 */
int confine(struct err *e);
/* Not even those any more, where the kernel has Landlock: once the configuration is read. */
int confine_files(struct err *e);
