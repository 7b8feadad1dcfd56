/*
 * What programs read about processors and network devices: /proc/cpuinfo and stat, and below /sys: lscpu, Java, Node, hwloc, ip. A
 * sandbox has no sysfs of its own. Its processors are shown as cores of one socket, one thread each, with the caches of the host's
 * first one. Its only network device is the loopback.
 */
#pragma once

/* Fills the empty folder @dir: cpuinfo, stat, sys/. 0 or -errno. */
int cpu_files_fill(int dir, unsigned cpus);
