/* Reads and sets the settings of a thread. */
#include "proto/memory_setting.h"
#include "base/base.h"

#include <linux/prctl.h>
#include <sys/syscall.h>

#ifndef PR_GET_TAGGED_ADDR_CTRL
#define PR_GET_TAGGED_ADDR_CTRL 56
#endif
#define KEEP_CAPS 16U /* SECBIT_KEEP_CAPS: PR_SET_KEEPCAPS needs no privilege, the other bits do */
/* SECBIT_NO_CAP_AMBIENT_RAISE and its lock: every process of a sandbox has them (agent/blank.c) */
#define NO_AMBIENT 192U
#define PER_LINUX32 8U
#define ARCH_GET_CPUID 0x1011

/* clang-format off */
const struct mem_setting mem_settings[] = {
	{ .name = "a timer slack", .get_nr = SYS_prctl, .get = { PR_GET_TIMERSLACK }, .pointer = -1, .set_nr = SYS_prctl,
	  .set = { PR_SET_TIMERSLACK }, .place = 1, .normal = 0, .most = INT32_MAX },
	{ .name = "a signal for its parent's end", .get_nr = SYS_prctl, .get = { PR_GET_PDEATHSIG }, .pointer = 1, .set_nr = SYS_prctl,
	  .set = { PR_SET_PDEATHSIG }, .place = 1, .normal = 0, .most = 64 },
	{ .name = "capabilities that it keeps (PR_SET_KEEPCAPS)", .get_nr = SYS_prctl, .get = { PR_GET_KEEPCAPS }, .pointer = -1,
	  .set_nr = SYS_prctl, .set = { PR_SET_KEEPCAPS }, .place = 1, .normal = 0, .most = 1 },
	{ .name = "secure bits", .get_nr = SYS_prctl, .get = { PR_GET_SECUREBITS }, .pointer = -1, .ignored = KEEP_CAPS | NO_AMBIENT },
	{ .name = "a policy for memory errors (PR_MCE_KILL)", .get_nr = SYS_prctl, .get = { PR_MCE_KILL_GET }, .pointer = -1,
	  .optional = true, .set_nr = SYS_prctl, .set = { PR_MCE_KILL, PR_MCE_KILL_SET }, .place = 2, .normal = PR_MCE_KILL_DEFAULT,
	  .most = PR_MCE_KILL_DEFAULT },
	{ .name = "an I/O priority", .get_nr = SYS_ioprio_get, .get = { 1 }, .pointer = -1, .optional = true,
	  .set_nr = SYS_ioprio_set, .set = { 1 }, .place = 2, .normal = 0, .most = UINT16_MAX },
	{ .name = "a personality", .get_nr = SYS_personality, .get = { UINT32_MAX }, .pointer = -1, .set_nr = SYS_personality,
	  .place = 0, .normal = 0, .most = PER_LINUX32 },
	{ .name = "tagged addresses", .get_nr = SYS_prctl, .get = { PR_GET_TAGGED_ADDR_CTRL }, .pointer = -1, .optional = true },
#ifdef __x86_64__
	{ .name = "no right to read the CPU's clock (PR_SET_TSC)", .get_nr = SYS_prctl, .get = { PR_GET_TSC }, .pointer = 1,
	  .normal = PR_TSC_ENABLE },
	{ .name = "no right to ask for the CPU's features (ARCH_SET_CPUID)", .get_nr = SYS_arch_prctl, .get = { ARCH_GET_CPUID },
	  .pointer = -1, .optional = true, .normal = 1 },
#endif
};
/* clang-format on */
const uint32_t mem_settings_n = ARRAY_LEN(mem_settings);
static_assert(ARRAY_LEN(mem_settings) <= MEM_SETTINGS_MAX, "a place for each");

const struct mem_barrier mem_barriers[MEM_BARRIERS] = {
	{ 8, 16 }, /* PRIVATE_EXPEDITED */
	{ 32, 64 }, /* its SYNC_CORE */
	{ 128, 256 }, /* its RSEQ */
	{ 0, 4 }, /* GLOBAL_EXPEDITED */
};
