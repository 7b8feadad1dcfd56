/* The options shared by `run` and, later, `create`. Collected first, applied once. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "cli/network.h"
#include "proto/exec.h"

struct options {
	struct sandbox_spec spec;
	const char *seccomp; /* a profile's path */
	struct network_want network;
	bool json, help;
	enum { TTY_AUTO, TTY_YES, TTY_NO } tty;
	uint64_t nofile, timeout_ms, cpu_ms, output;
	const char *user; /* name for USER */
	const char *name; /* of a user that is looked up inside, or NULL */
	const char *home;
	bool workdir_given, storage_disk;
	const char **env; /* NAME=VALUE, as given */
	uint32_t nenv;
	const char *const *device_env; /* what devices set unless ->env does */
	uint32_t ndevice_env;
	const char *cdi; /* folders of specifications, or NULL */
	char **argv; /* the command */
	uint32_t argc;
};

/* Whether --image names an image of a daemon: then the command is run by that (src/client/run.c). */
bool options_stored_image(int argc, char *const *argv);
/* Whether --language is given: then a daemon runs the code (src/client/run_code.c). */
bool options_language(int argc, char *const *argv);
/* @argv[0] is the command's name. Strings stay the caller's. */
int options_parse(int argc, char **argv, struct options *ret, struct err *e);
void options_done(struct options *o);
void options_help(void);
/* The environment inside: PATH, HOME, USER, LANG, TERM on a terminal, then what was given. NULL when out of memory. */
const char **options_env(const struct options *o, bool tty, uint32_t *ret_n);
