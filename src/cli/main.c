/*
 * cloche: the command line.
 *
 * Theory of operation. `run` and `doctor` need no daemon: the engine is inside this program. As root it makes sandboxes
 * directly; without root it first becomes root of a user namespace of its own. A sandbox is a child process
 * (cloche-agent, PID 1 of its namespaces) that is controlled over a socket; the command's output comes through pipes of
 * this process. When this process ends, by any cause, the socket closes and the sandbox ends with it.
 *
 * `serve` and the commands that call a daemon need libraries that this program does without: it becomes cloche-serve or
 * cloche-client, which are beside it or in the libexec folder.
 */
#include "base/base.h"
#include "base/near.h"
#include "base/sys.h"
#include "cli/commands.h"
#include "config.h"
#include "engine/program.h"

#include <fcntl.h>
#include <unistd.h>

/* Those of cloche-client get their own name as the first argument, since it has many. */
static int become(const char *program, char **argv)
{
	struct err e = { 0 };
	char path[512];
	int r = program_path(program, path, sizeof(path), &e);

	if (r == 0) {
		r = sys_execve(path, argv, environ);
		err_sys(&e, ERR_INTERNAL, r, "start %s", path);
	}
	fprintf(stderr, "cloche: %s%s%s\n", e.msg, e.remedy[0] ? "; " : "", e.remedy);
	return 125;
}

static int cmd_serve(int argc, char **argv)
{
	(void)argc;
	argv[0] = (char[]){ "cloche-serve" };
	return become("cloche-serve", argv);
}

static int cmd_quarantine(int argc, char **argv)
{
	(void)argc;
	argv[-1] = (char[]){ "cloche-serve" }; /* there is one before: our own */
	return become("cloche-serve", argv - 1);
}

int cmd_client(int argc, char **argv)
{
	(void)argc;
	argv[-1] = (char[]){ "cloche-client" }; /* there is one before: our own */
	return become("cloche-client", argv - 1);
}

static const struct command {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *text;
} commands[] = {
	{ "run", cmd_run, "run a command in a new sandbox" },
	{ "doctor", cmd_doctor, "check what this host can enforce; --attack tries to break out" },
	{ "image", cmd_image, "manage images, with a daemon; download the kernel for virtual machines" },
	{ "serve", cmd_serve, "run the daemon: sandboxes over HTTP" },
	{ "quarantine", cmd_quarantine, "list and remove what a daemon put into quarantine" },
	{ "create", cmd_client, "make a sandbox" },
	{ "exec", cmd_client, "run a command in a sandbox" },
	{ "shell", cmd_client, "open a terminal in a sandbox" },
	{ "repl", cmd_client, "run code as you type it" },
	{ "cp", cmd_client, "copy files into and out of a sandbox" },
	{ "ls", cmd_client, "list sandboxes" },
	{ "inspect", cmd_client, "show everything about a sandbox" },
	{ "rm", cmd_client, "delete sandboxes" },
	{ "kill", cmd_client, "end a command in a sandbox" },
	{ "extend", cmd_client, "set when a sandbox is removed" },
	{ "rename", cmd_client, "give a sandbox another name" },
	{ "update", cmd_client, "change limits of a sandbox" },
	{ "checkpoint", cmd_client, "save the state of a sandbox; list, export, remove checkpoints" },
	{ "restore", cmd_client, "go back to a checkpoint, or make sandboxes from it" },
	{ "fork", cmd_client, "copy a running sandbox" },
	{ "diff", cmd_client, "list changed files" },
	{ "promote", cmd_client, "bring the changes of a fork back" },
	{ "pause", cmd_client, "freeze a sandbox" },
	{ "start", cmd_client, "start stopped sandboxes again" },
	{ "stop", cmd_client, "end all processes of a sandbox, and keep its disk" },
	{ "resume", cmd_client, "continue a frozen sandbox" },
	{ "hibernate", cmd_client, "save a sandbox to disk until it is needed" },
	{ "wake", cmd_client, "wake a hibernated sandbox" },
	{ "template", cmd_client, "manage templates for new sandboxes" },
	{ "pool", cmd_client, "manage pools of ready sandboxes" },
	{ "secret", cmd_client, "manage secrets" },
	{ "network", cmd_client, "show what a sandbox may reach, and what it used" },
	{ "why", cmd_client, "list refused connections, and how to allow them" },
	{ "port", cmd_client, "control access to servers inside a sandbox" },
	{ "port-forward", cmd_client, "forward local ports to servers inside a sandbox" },
	{ "logs", cmd_client, "show the output of an exec" },
	{ "stats", cmd_client, "show what a sandbox uses" },
	{ "top", cmd_client, "show what all sandboxes use, live" },
	{ "events", cmd_client, "show events as they happen" },
	{ "audit", cmd_client, "read or verify the audit log" },
	{ "token", cmd_client, "make, list and remove tokens" },
	{ "tenant", cmd_client, "manage tenants and their quotas" },
	{ "completion", cmd_client, "print a completion script for bash, zsh or fish" },
};

/* What others call it. */
static const struct {
	const char *name, *ours;
} synonyms[] = {
	{ "ps", "ls" },
	{ "list", "ls" },
	{ "new", "create" },
	{ "delete", "rm" },
	{ "remove", "rm" },
	{ "destroy", "rm" },
	{ "copy", "cp" },
	{ "mv", "rename" },
	{ "ssh", "shell" },
	{ "attach", "shell" },
	{ "clone", "fork" },
	{ "save", "checkpoint" },
	{ "snapshot", "checkpoint" },
	{ "export", "checkpoint export" },
	{ "import", "checkpoint import" },
	{ "daemon", "serve" },
	{ "sandbox", "ls" },
	{ "unpause", "resume" },
	{ "connect", "shell" },
	{ "images", "image ls" },
	{ "pull", "image pull" },
	{ "build", "image build" },
	{ "tag", "image tag" },
	{ "rmi", "image rm" },
	{ "commit", "image commit" },
	{ "load", "image import" },
	{ "info", "doctor" },
};

static const char *meant(const char *name)
{
	const char *known[ARRAY_LEN(commands)];

	for (size_t i = 0; i < ARRAY_LEN(synonyms); i++)
		if (!strcmp(name, synonyms[i].name))
			return synonyms[i].ours;
	for (size_t i = 0; i < ARRAY_LEN(commands); i++)
		known[i] = commands[i].name;
	return near_word(name, known, ARRAY_LEN(commands));
}

static void usage(FILE *to)
{
	fputs("usage: cloche COMMAND [options]\n\n", to);
	for (size_t i = 0; i < ARRAY_LEN(commands); i++) {
		if (commands[i].run == cmd_client && commands[i - 1].run != cmd_client)
			fputs("\nwith a daemon:\n", to);
		fprintf(to, "  %-12s %s\n", commands[i].name, commands[i].text);
	}
	fputs("\n"
	      "`cloche help COMMAND` describes a command.\n",
	      to);
}

/* `cloche help COMMAND [VERB]` becomes `cloche COMMAND [VERB] --help`. */
static void help_of(int argc, char **argv)
{
	static char option[] = "--help";

	memmove(&argv[1], &argv[2], (size_t)(argc - 2) * sizeof(*argv));
	argv[argc - 1] = option;
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
	const char *ours;

	open_stdio();
	if (argc < 2) {
		usage(stderr);
		return 125;
	}
	if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "version")) {
		puts("cloche " CLOCHE_VERSION);
		return 0;
	}
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || (!strcmp(argv[1], "help") && argc < 3)) {
		usage(stdout);
		return 0;
	}
	if (!strcmp(argv[1], "help"))
		help_of(argc, argv);
	for (size_t i = 0; i < ARRAY_LEN(commands); i++)
		if (!strcmp(argv[1], commands[i].name))
			return commands[i].run(argc - 1, argv + 1);
	if (argv[1][0] == '-') {
		fprintf(stderr, "cloche: unknown option %.60s; options follow a command, as in `cloche ls --json`\n",
			argv[1]);
		return 125;
	}
	ours = meant(argv[1]);
	fprintf(stderr,
		ours ? "cloche: unknown command '%.60s'; did you mean `cloche %s`?\n" :
		       "cloche: unknown command '%.60s'; see `cloche %s`\n",
		argv[1], ours ? ours : "--help");
	return 125;
}
