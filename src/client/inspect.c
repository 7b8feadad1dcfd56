/* `cloche inspect`. */
#include "client/client.h"
#include "base/base.h"
#include "client/thing.h"

static const char help[] = "usage: cloche inspect SANDBOX…\n"
			   "\n"
			   "Prints all details of sandboxes as JSON; an array when there are several.\n"
			   "\n";

const struct command cmd_inspect = {
	.name = "inspect",
	.text = "print all details of a sandbox",
	.help = help,
	.complete = COMPLETE_NAMES,
	.names = "sandbox",
	.thing = &thing_sandbox,
	.run = thing_inspect,
};
