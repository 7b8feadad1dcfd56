/*
 * Named steps of an operation, for tests that kill a process between two of them. Only programs of build/faulty have
 * them: a process that comes to the step named in the file $CLOCHE_STEP waits there until the test has killed its
 * target (tests/crash/test_steps.py).
 */
#pragma once

#ifdef CLOCHE_FAULTS
void step_reached(const char *name);
#define STEP(name) step_reached(name)
#else
#define STEP(name) ((void)0)
#endif
