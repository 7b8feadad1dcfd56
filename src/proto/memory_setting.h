/*
 * Settings of a thread that only it can ask for and set, by one call each. cloche-dump asks by this table and refuses a
 * value that cannot be set again; the agent sets by the same table.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#define MEM_SETTINGS_MAX 12 /* places in struct mem_thread; more than there are settings */

struct mem_setting {
	const char *name; /* as in a refusal: "has …" */
	uint32_t get_nr, set_nr; /* system calls; 0: cannot be set, and only ->normal is carried */
	uint64_t get[2], set[3];
	int8_t pointer; /* the argument of the first call that is a pointer to a u32, -1: the value is the result */
	int8_t place; /* the argument of the second call that is the value */
	bool optional; /* a kernel without it returns an error, which means ->normal */
	uint64_t ignored; /* bits of the value that another setting is about */
	uint64_t normal; /* not set again when it is this */
	uint64_t most; /* the highest value that can be set again */
};

extern const struct mem_setting mem_settings[];
extern const uint32_t mem_settings_n;

/* Registrations for membarrier(): the bit of the command that asks, and the one that registers. */
struct mem_barrier {
	uint32_t use, enrol; /* use 0: there is no command that fails without it */
};
#define MEM_BARRIERS 4U
extern const struct mem_barrier mem_barriers[MEM_BARRIERS];
#define MEM_BARRIER_LIST 512U /* MEMBARRIER_CMD_GET_REGISTRATIONS, since 6.3 */
