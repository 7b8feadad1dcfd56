#include "client/client.h"
#include "base/base.h"
#include "client/thing.h"

static const char help[] = "usage: cloche inspect SANDBOX…\n"
			   "\n"
			   "Shows everything known about sandboxes, as JSON; several become one array.\n"
			   "\n";

static int run(struct args *a, struct err *e)
{
	return thing_inspect(a, &thing_sandbox, e);
}

const struct command cmd_inspect = {
	.name = "inspect",
	.text = "everything about a sandbox",
	.help = help,
	.complete = COMPLETE_NAMES,
	.names = "sandbox",
	.run = run,
};
