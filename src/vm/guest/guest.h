/* PID 1 of a virtual machine, and its parts. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/sandbox/sandbox.h"
#include "vm/vmm/carry.h"

#define GUEST_AGENT "/cloche-agent"
#define GUEST_LAYERS "/cloche-layers"
#define GUEST_IMAGE "/image"
/* also mounted with image `host`, whose skeleton needs a filesystem that can be idmapped */
#define GUEST_DISK "/disk"

struct guest_places {
	int port; /* the serial port to the host, not blocking */
	char disk[32]; /* the device for changes */
};

/* The host's key of an exec group, and the warden's number of it. */
struct guest_group {
	uint32_t key, number;
};

struct guest_net;

/* State of squeeze.c, which notices that the sandbox's memory is too full to work. */
struct guest_squeeze {
	uint64_t again; /* count of file pages that were read again, at the last check; 0: memory was not full */
	unsigned seconds; /* for how many seconds in a row memory was too full */
	uint64_t kills;
};

struct guest {
	struct guest_places places;
	struct carry carry;
	struct warden *warden;
	struct warden_sandbox *sandbox;
	const struct sandbox_spec *spec; /* the spec of the sandbox */
	struct guest_group *group;
	size_t ngroup;
	struct guest_net *net; /* its network; NULL: none */
	uint64_t limit, used; /* of the sandbox's memory */
	struct guest_squeeze squeeze;
	bool host; /* the image is the host's, which has /etc/resolv.conf already */
	bool watch; /* something may run, so the host gets the usage every second */
	uint64_t stat_ns; /* when the host last got it */
	bool look; /* a connection may have been refused that was not reported yet */
	struct err e;
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

/*
 * Gives a machine that continues from another's state its own identity, while its sandbox is frozen: random numbers and
 * clock, then, with MUX_RESUME_DROP, the end of all its processes; host name, machine-id and generation. Returns
 * FRAME_RESTORED_*, what was made anew.
 */
int resume_as(struct guest *g, const struct mux_resume *who, struct err *e);
/* Each process of the sandbox but the agent. */
int resume_each(const struct guest *g, void (*fn)(void *arg, pid_t pid), void *arg);
/* Writes the sandbox's /etc/resolv.conf. 0 or -errno. */
int resume_resolver(const struct guest *g);

/* Frames between the host and the agent, as they pass (hooks of the carry). */
int frames_to_agent(void *arg, struct carry_frame *f);
int frames_from_agent(void *arg, struct carry_frame *f);
int frames_group(struct guest *g, const struct mux *m); /* MUX_GROUP */
/* Only in build/faulty, on a test's request: sends other changes than the real ones. */
bool lie_changes(const struct guest *g, int fd);
/* Every second, while something runs: @used bytes of its memory are. */
void squeeze_look(struct guest *g, uint64_t used);
/* Sends the usage to the host. */
int guest_say_stat(struct guest *g);

/*
 * The sandbox's way out: what it connects to and asks, as channels. MUX_STEER: given, changed, or taken away. What cannot be done
 * leaves it with less than it may have, and is said on the console: here nothing is decided.
 */
int net_steer(struct guest *g, const struct mux *m);
/* Takes the sockets of a sandbox that was made with a network. */
int net_open(struct guest *g, struct err *e);
int net_poll(const struct guest *g); /* a descriptor to poll for reading; -1: none now */
int net_serve(struct guest *g);
/* The process of the sandbox that has a channel's socket; -errno: none has. */
int net_who(struct guest *g, uint32_t channel, struct socket_owner *ret);
/* Reports to the host what was refused here since the last call. */
int net_denied(struct guest *g);
