/*
 * cloche: the command line.
 *
 * Theory of operation. `run` and `doctor` need no daemon: the engine is inside this program. As root it makes
 * sandboxes directly; without root it first becomes root of a user namespace of its own. A sandbox is a child process
 * (cloche-agent, PID 1 of its namespaces) that is spoken to over a socket; the command's output comes through pipes
 * this process holds. When this process ends, however it ends, the socket closes and the sandbox ends with it.
 */
#include "base/base.h"
#include "cli/commands.h"
#include "config.h"

#include <fcntl.h>
#include <unistd.h>

static const struct command {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *text;
} commands[] = {
	{ "run", cmd_run, "run a command in a sandbox of its own" },
	{ "doctor", cmd_doctor, "check what this host can enforce; --attack tries to break out" },
};

static void usage(FILE *to)
{
	fputs("usage: cloche COMMAND [options]\n\n", to);
	for (size_t i = 0; i < ARRAY_LEN(commands); i++)
		fprintf(to, "  %-8s %s\n", commands[i].name, commands[i].text);
	fputs("\n`cloche COMMAND --help` tells more.\n", to);
}

/* With one of 0 to 2 closed, the next thing opened would take its place, and be read or written as our stdio. */
static void open_stdio(void)
{
	for (int fd = 0; fd < 3; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 0 ? O_RDONLY : O_WRONLY) != fd)
			_exit(125);
}

int main(int argc, char **argv)
{
	open_stdio();
	if (argc < 2) {
		usage(stderr);
		return 125;
	}
	if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "version")) {
		puts("cloche " CLOCHE_VERSION);
		return 0;
	}
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
		usage(stdout);
		return 0;
	}
	for (size_t i = 0; i < ARRAY_LEN(commands); i++)
		if (!strcmp(argv[1], commands[i].name))
			return commands[i].run(argc - 1, argv + 1);
	fprintf(stderr, "cloche: unknown command '%.60s'; see `cloche --help`\n", argv[1]);
	return 125;
}
