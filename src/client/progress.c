/* Prints the progress of a transfer. */
#include "client/progress.h"
#include "base/base.h"
#include "base/buf.h"
#include "base/clock.h"
#include "client/text.h"
#include "client/tty.h"

#include <unistd.h>

#define FIRST_NS 500000000ULL
#define WAIT_NS 2000000000ULL
#define NEXT_NS 100000000ULL
#define BAR 24U

void progress_init(struct progress *p, const char *what, uint64_t total)
{
	*p = (struct progress){
		.what = what, .total = total, .start_ns = clock_mono_ns(), .on = isatty(STDERR_FILENO)
	};
}

static void draw(struct progress *p, uint64_t now)
{
	AUTO(buf_done) struct buf b = BUF_INIT(16 * KIB), name = BUF_INIT(8 * KIB);
	uint64_t ms = (now - p->start_ns) / 1000000;
	unsigned rows, columns = 80;
	char size[32], total[32], rate[32];

	text_escape(&name, p->what, strlen(p->what));
	tty_size(STDERR_FILENO, &rows, &columns);
	text_size(p->done, size, sizeof(size));
	text_size(p->done * 1000 / (ms ? ms : 1), rate, sizeof(rate));
	if (p->total) {
		uint64_t done = p->done < p->total ? p->done : p->total;
		unsigned full = (unsigned)((double)done / (double)p->total * BAR);

		buf_addf(&b, "%3u%% [", (unsigned)((double)done / (double)p->total * 100));
		for (unsigned i = 0; i < BAR; i++)
			buf_addc(&b, i < full ? '=' : i == full ? '>' : ' ');
		buf_addf(&b, "] %s of %s, %s/s  %s", size, text_size(p->total, total, sizeof(total)), rate,
			 buf_str(&name));
	} else {
		buf_addf(&b, "%s, %s/s  %s", size, rate, buf_str(&name));
	}
	buf_cut(&b, text_cut(buf_str(&b), columns - 1));
	fprintf(stderr, "\r%s\x1b[K", buf_str(&b));
	fflush(stderr);
	p->drawn = true;
	p->drawn_ns = now;
}

void progress_wait(struct progress *p)
{
	const uint64_t now = clock_mono_ns();
	unsigned rows, columns = 80;
	char line[160];

	if (!p->on || now - p->start_ns < WAIT_NS)
		return;
	tty_size(STDERR_FILENO, &rows, &columns);
	snprintf(line, sizeof(line), "%s (%llu s)", p->what, (unsigned long long)((now - p->start_ns) / 1000000000ULL));
	fprintf(stderr, "\r%.*s\x1b[K", (int)columns - 1, line);
	fflush(stderr);
	p->drawn = true;
}

void progress_add(struct progress *p, uint64_t bytes)
{
	uint64_t now;

	p->done += bytes;
	if (!p->on)
		return;
	now = clock_mono_ns();
	if (now - p->start_ns > FIRST_NS && now - p->drawn_ns > NEXT_NS)
		draw(p, now);
}

void progress_done(struct progress *p)
{
	if (p->drawn)
		fputs("\r\x1b[K", stderr);
	p->drawn = p->on = false;
}
