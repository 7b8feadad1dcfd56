/* The line on the terminal that says what is awaited while a sandbox is made, such as the first VM of an image. */
#include "base/base.h"
#include "base/clock.h"
#include "cli/run.h"

#include <signal.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define FIRST_NS 700000000ULL
#define SECOND_NS 1000000000ULL

static void erase(struct run *r)
{
	if (r->waits_line[0])
		fputs("\r\033[K", stderr);
	r->waits_line[0] = '\0';
	r->waits_ns = 0;
}

static void draw(struct run *r, const char *doing, uint64_t ns)
{
	struct winsize ws = { .ws_col = 80 };
	char line[sizeof(r->waits_line)];

	snprintf(line, sizeof(line), "cloche: %s (%llu s)", doing, (unsigned long long)(ns / SECOND_NS));
	/* An image's name is the user's, and part of it. */
	for (char *p = line; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			*p = '?';
	if (!strcmp(line, r->waits_line))
		return;
	if (ioctl(STDERR_FILENO, TIOCGWINSZ, &ws) < 0 || ws.ws_col < 20)
		ws.ws_col = 80;
	fprintf(stderr, "\r%.*s\033[K", (int)ws.ws_col - 1, line);
	fflush(stderr);
	memcpy(r->waits_line, line, sizeof(line));
}

/* No command runs yet that could receive the signal, so it ends this program. */
static int signals(struct run *r, struct err *e)
{
	struct signalfd_siginfo si;

	while (read(r->signals, &si, sizeof(si)) == sizeof(si)) {
		if (si.ssi_signo == SIGWINCH || si.ssi_signo == SIGUSR1 || si.ssi_signo == SIGUSR2)
			continue;
		r->ended_by = (int)si.ssi_signo;
		return err_set(e, ERR_CONFLICT, -EINTR, "ended by signal %d before the command started", r->ended_by);
	}
	return 0;
}

int wait_tell(void *arg, const char *doing, struct err *e)
{
	struct run *r = arg;
	const uint64_t now = clock_mono_ns();

	if (!doing) {
		erase(r);
		return 0;
	}
	if (!r->waits_ns)
		r->waits_ns = now;
	if (doing[0] && !r->o.json && now - r->waits_ns > FIRST_NS && isatty(STDERR_FILENO))
		draw(r, doing, now - r->waits_ns);
	return signals(r, e);
}
