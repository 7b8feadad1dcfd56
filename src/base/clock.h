#pragma once
#include <stdint.h>

uint64_t clock_mono_ns(void);
uint64_t clock_real_ns(void);
/* When this machine was started: moves when the clock is set. */
uint64_t clock_booted_s(void);
/* The wall clock less the time since the machine was started, to the nanosecond: changes when the clock is set. */
int64_t clock_ahead_ns(void);
/* "2026-11-15T03:41:24.123Z"; @buf holds at least 32 bytes. */
void clock_iso(uint64_t real_ns, char *buf);
