/* The pool's own view of the host. */
#pragma once
#include "base/err.h"
#include "engine/blank/env.h"

/*
 * Takes the calling thread into a mount namespace with nothing in it but /proc, a place to step on and what image
 * `host` is made of, and the layers, since every new sandbox first copies it. The real tree is out of reach from there. Only mounts of
 * the own namespace can be copied, so the image's come along: *ret.
 */
int minimal_mntns_enter(const struct env *v, struct image_host *ret, struct err *e);
