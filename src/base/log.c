/* Writes log messages to stderr, one line each. */
#include "base/log.h"
#include "base/base.h"

#include <stdarg.h>
#include <unistd.h>

static enum log_level max_level = LOG_LEVEL_WARN;

void log_set_level(enum log_level level)
{
	max_level = level;
}

/* Copies @text to @dst with control bytes as \xNN; a newline as \n. Returns the length; stops before @size. */
static size_t escape(char *dst, size_t size, const char *text)
{
	size_t n = 0;

	for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
		char one[8];
		size_t len;

		if (*p == '\n')
			len = (size_t)snprintf(one, sizeof(one), "\\n");
		else if (*p < 0x20 || *p == 0x7f)
			len = (size_t)snprintf(one, sizeof(one), "\\x%02x", *p);
		else
			len = (size_t)snprintf(one, sizeof(one), "%c", *p);
		if (n + len >= size)
			break;
		memcpy(dst + n, one, len);
		n += len;
	}
	return n;
}

__attribute__((format(printf, 2, 0))) static void put(enum log_level level, const char *fmt, va_list ap)
{
	static const char *const prefix[] = {
		[LOG_LEVEL_ERROR] = "error: ",
		[LOG_LEVEL_WARN] = "warning: ",
		[LOG_LEVEL_INFO] = "",
		[LOG_LEVEL_DEBUG] = "debug: ",
	};
	int saved = errno;
	char text[1024], line[1400];
	ssize_t written;
	size_t n;

	if (level > max_level)
		return;
	vsnprintf(text, sizeof(text), fmt, ap);
	n = (size_t)snprintf(line, sizeof(line), "%.60s: %s", program_invocation_short_name, prefix[level]);
	n += escape(line + n, sizeof(line) - n - 1, text);
	line[n++] = '\n';
	/* Not through base/sys.h: an injected fault must not suppress the line that reports it. */
	written = write(STDERR_FILENO, line, n);
	(void)written;
	errno = saved;
}

#define DEFINE_LOG(name, level)                                                                                        \
	void name(const char *fmt, ...)                                                                                \
	{                                                                                                              \
		va_list ap;                                                                                            \
                                                                                                                       \
		va_start(ap, fmt);                                                                                     \
		put(level, fmt, ap);                                                                                   \
		va_end(ap);                                                                                            \
	}

DEFINE_LOG(log_error, LOG_LEVEL_ERROR)
DEFINE_LOG(log_warn, LOG_LEVEL_WARN)
DEFINE_LOG(log_info, LOG_LEVEL_INFO)
DEFINE_LOG(log_debug, LOG_LEVEL_DEBUG)
