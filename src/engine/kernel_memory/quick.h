/* Threads that must run while the processes that fill memory keep all processors busy. */
#pragma once
#include <stdbool.h>

/* Runs the calling thread before all others, or normally again. Without the right to do so, it runs normally. */
void kernel_quick(bool quick);
