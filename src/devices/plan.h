/* From names of devices to what a sandbox gets. */
#pragma once
#include "devices/catalog.h"
#include "proto/device_plan.h"

#define PLAN_LIBRARIES "/opt/cloche/gpu/lib" /* inside: drivers' libraries by the names that programs load them by */
#define PLAN_PROGRAMS                                                                                                  \
	"/opt/cloche/bin" /* inside, of image `host`: what cannot be put into /usr, which is the host's own */

struct plan_opts {
	const char *root; /* as in struct catalog_opts */
	bool host; /* the image is `host`: its /usr is this machine's */
	struct buf *notes; /* lines about what is left out; NULL: not kept */
};

/* @name: one of CDI, or a node below /dev. All of @n together; the result is checked again by who uses it. */
int plan_make(const struct catalog *c, const char *const *name, unsigned n, const struct plan_opts *o,
	      struct device_plan *ret, struct err *e);
/* The name that a library has for the dynamic linker: -ENOENT when @fd is none, or has none. */
int elf_soname(int fd, char *ret, size_t size);
/* hooks.c: what a hook of NVIDIA's toolkit does to files, done as mounts. */
struct plan_job {
	const struct catalog *c;
	const struct plan_opts *o;
	struct device_plan *plan;
	char folder[8][DEVICE_PATH]; /* whose libraries the linker is to know */
	unsigned folders;
	bool libraries; /* there are some at PLAN_LIBRARIES */
	struct err *e;
};
int plan_hook(struct plan_job *j, const struct tree *hook);
int plan_links(struct plan_job *j, const struct tree *edits); /* when all mounts are known */
int plan_add_mount(struct plan_job *j, const char *from, const char *to);
void plan_note(struct plan_job *j, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
