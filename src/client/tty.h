/* The user's terminal: its size, and raw mode that is always taken back. */
#pragma once
#include <stdbool.h>
#include <termios.h>

struct tty {
	int fd;
	bool raw;
	struct termios saved;
};

#define TTY_INIT                                                                                                       \
	{                                                                                                              \
		.fd = -1                                                                                               \
	}

/* Columns and rows of the terminal at @fd, or -ENOTTY. */
int tty_size(int fd, unsigned *ret_rows, unsigned *ret_columns);
/* Every key comes as it is typed, none is acted upon. 0 or -errno. */
int tty_raw(struct tty *t, int fd);
/* As tty_raw(), but lines that are written end as ever. */
int tty_keys(struct tty *t, int fd);
/* As tty_raw(), but signals by keys and output stay as they are: for a live display. */
int tty_quiet(struct tty *t, int fd);
void tty_restore(struct tty *t);
static inline void tty_restorep(struct tty *t)
{
	tty_restore(t);
}
