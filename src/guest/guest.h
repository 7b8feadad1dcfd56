/* PID 1 of a virtual machine, and its parts. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define GUEST_AGENT "/cloche-agent"
#define GUEST_IMAGE "/image"
#define GUEST_DISK "/disk" /* also there with image `host`: its skeleton needs a filesystem that can be given other ids */

struct guest_places {
	int port; /* the serial port to the host, not blocking */
	char disk[32]; /* the device for changes */
};

/*
 * From the kernel's first process in an initramfs to a root that a sandbox can be made in: modules, /proc, /sys, /dev,
 * control groups, the image, the port. What is opened stays until the machine ends.
 */
int boot(struct guest_places *ret, struct err *e);
/* Image `host`: the machine's own /usr and /etc become those of the host. */
int boot_host(const struct guest_places *p, struct err *e);
/* The time, and what no two machines may have in common. */
int boot_fresh(uint64_t real_ns, const uint8_t seed[32], struct err *e);
/* Memory that is not in use, in bytes. */
uint64_t boot_memory_left(void);
