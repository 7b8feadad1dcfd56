/* Switches the terminal to raw mode and back. */
#include "client/tty.h"
#include "base/base.h"

#include <sys/ioctl.h>
#include <unistd.h>

int tty_size(int fd, unsigned *ret_rows, unsigned *ret_columns)
{
	struct winsize w;

	if (!isatty(fd) || ioctl(fd, TIOCGWINSZ, &w) < 0)
		return -ENOTTY;
	/* A serial line does not know. */
	*ret_rows = w.ws_row ? w.ws_row : 24;
	*ret_columns = w.ws_col ? w.ws_col : 80;
	return 0;
}

static int change(struct tty *t, int fd, void (*how)(struct termios *))
{
	struct termios now;

	if (!t->raw && tcgetattr(fd, &t->saved) < 0)
		return -errno;
	now = t->saved;
	how(&now);
	if (tcsetattr(fd, TCSADRAIN, &now) < 0)
		return -errno;
	t->fd = fd;
	t->raw = true;
	return 0;
}

static void quiet(struct termios *now)
{
	now->c_lflag &= ~(tcflag_t)(ICANON | ECHO);
	now->c_cc[VMIN] = 1;
	now->c_cc[VTIME] = 0;
}

int tty_raw(struct tty *t, int fd)
{
	return change(t, fd, cfmakeraw);
}

static void keys(struct termios *now)
{
	cfmakeraw(now);
	now->c_oflag |= OPOST;
}

int tty_keys(struct tty *t, int fd)
{
	return change(t, fd, keys);
}

int tty_quiet(struct tty *t, int fd)
{
	return change(t, fd, quiet);
}

void tty_restore(struct tty *t)
{
	if (!t->raw)
		return;
	t->raw = false;
	tcsetattr(t->fd, TCSADRAIN, &t->saved);
}
