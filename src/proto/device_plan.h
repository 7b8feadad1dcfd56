/*
 * What devices a sandbox gets: names that were asked for, and what cloche-devices makes of them for the warden and for `cloche run`.
 * Records of one machine and one version, of fixed size.
 */
#pragma once
#include <stdint.h>

#include "base/err.h"

#define DEVICE_NAMES 16
#define DEVICE_NAME 96 /* nvidia.com/gpu=0, /dev/fuse */
#define DEVICE_NODES 40
#define DEVICE_MOUNTS 100
#define DEVICE_ENV 4096
#define DEVICE_PATH 192
#define DEVICE_NO_ID UINT32_MAX

#define DEVICE_READ 1U
#define DEVICE_WRITE 2U

struct device_node {
	char from[DEVICE_PATH]; /* on the host */
	char to[DEVICE_PATH]; /* below /dev/, without that */
	uint32_t block; /* 0: a character device */
	uint32_t major, minor;
	uint32_t may; /* DEVICE_READ, DEVICE_WRITE */
	uint32_t mode, uid, gid; /* DEVICE_NO_ID: not said */
};

struct device_mount {
	char from[DEVICE_PATH], to[DEVICE_PATH];
};

struct device_plan {
	int32_t result; /* below 0: ->e says why, and the rest is empty */
	uint32_t nnodes, nmounts, env_len;
	struct err e;
	struct device_node node[DEVICE_NODES];
	struct device_mount mount[DEVICE_MOUNTS];
	char env[DEVICE_ENV]; /* NAME=VALUE, each with a NUL */
};

/* -EBADMSG: a count, text, path or id is not what it must be. What is at the paths is for the caller to see. */
int device_plan_check(const struct device_plan *p);
