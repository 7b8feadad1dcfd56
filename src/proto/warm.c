/* Checks messages between the agent and a warm process. */
#include "proto/warm.h"
#include "base/base.h"

static const char runner[] = {
#include <src/proto/runner.inc>
	0
};

const char *warm_runner_python(void)
{
	return runner;
}
