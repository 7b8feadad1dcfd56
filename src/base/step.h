/*
 * Named steps of what takes several, for tests that kill a process between two of them. Only programs of build/faulty have
 * them: there a process that comes to the step that the file $CLOCHE_STEP names waits until a test has killed what it wants to
 * (tests/crash/test_steps.py).
 */
#pragma once

#ifdef CLOCHE_FAULTS
void step_reached(const char *name);
#define STEP(name) step_reached(name)
#else
#define STEP(name) ((void)0)
#endif
