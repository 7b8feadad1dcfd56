/*
 * What programs read about processors and network devices below /sys: lscpu, Java, Node, hwloc, ip. A sandbox has no sysfs of its
 * own. Its processors are shown as cores of one socket, one thread each, with the caches of the host's first one. Its only network
 * device is the loopback.
 */
#pragma once

/* Below the folder @sys of the cache, which has class and devices/system/cpu already. 0 or -errno. */
int cpu_files_put(int sys, unsigned cpus);
