/*
 * cloche-client: the commands that talk to a daemon.
 *
 * Theory of operation. `cloche` becomes this program for every command it does not know itself; argv[0] stays "cloche",
 * argv[1] is the command. It runs as the user, holds no privilege, and speaks HTTP and WebSocket to the daemon it finds
 * (client/conn.h). What the daemon says, and even more what a sandbox says through it, is not trusted: it is escaped
 * before it reaches the terminal, files are unpacked only below their destination, and every buffer has an end. The
 * output of an exec is passed on as it is: that is what was asked for.
 */
#include "base/base.h"
#include "client/client.h"
#include "client/show.h"
#include "client/text.h"

#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

static void print_error(const struct err *e)
{
	AUTO(buf_done) struct buf b = BUF_INIT(16 * KIB);

	text_escape(&b, e->msg, strlen(e->msg));
	if (e->remedy[0] && buf_adds(&b, "; ") == 0)
		text_escape(&b, e->remedy, strlen(e->remedy));
	fprintf(stderr, "cloche: %s\n", buf_str(&b));
}

/* What was printed has arrived, or the exit code says so. */
static int finish(int code)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return code;
	if (errno != EPIPE)
		fprintf(stderr, "cloche: write to stdout: %s\n", strerror(errno));
	return EXIT_OURS;
}

static bool reader_left(void)
{
	struct pollfd p = { .fd = STDOUT_FILENO };

	return poll(&p, 1, 0) == 1 && (p.revents & POLLERR);
}

/* `cloche` has a `run` of its own, and comes here with `run` for a stored image, and with `run-code` for --language. */
static const struct command *find(const char *name)
{
	for (size_t i = 0; commands[i]; i++)
		if (!strcmp(name, commands[i]->name))
			return commands[i];
	if (!strcmp(name, "run-code"))
		return &cmd_run_code;
	return strcmp(name, cmd_run.name) ? NULL : &cmd_run;
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "";
	const struct command *command;
	struct err e = { 0 };
	struct args a;
	int r;

	/* For the width of characters; in a locale without UTF-8 they are shown as their bytes. */
	setlocale(LC_CTYPE, "");
	signal(SIGPIPE, SIG_IGN);
	command = find(name);
	if (command) {
		argc--;
		argv++;
		command = args_verb(command, &argc, &argv);
		args_init(&a, command, argc, argv);
		r = command->run(&a, &e);
		if (r >= 0)
			return finish(a.help ? 0 : r);
		/* The reader has closed the pipe, as in `cloche events | head -1`. */
		if (e.errnum == EPIPE && reader_left())
			return EXIT_OURS;
		if (a.json)
			show_error(&e);
		fflush(stdout);
		print_error(&e);
		return a.error_code ? a.error_code : EXIT_OURS;
	}
	fprintf(stderr, "cloche: unknown command '%.60s'; see `cloche --help`\n", name);
	return EXIT_OURS;
}
