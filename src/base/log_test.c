#include "base/log.h"
#include "base/base.h"
#include "base/sys.h"
#include "base/test.h"

#include <unistd.h>

/* Runs @fn with stderr in a file and returns what it wrote. */
static void capture(void (*fn)(void), char *buf, size_t size)
{
	AUTO_CLOSE int fd = sys_memfd_create("log", 0);
	AUTO_CLOSE int saved = dup(STDERR_FILENO);
	ssize_t n;

	dup2(fd, STDERR_FILENO);
	fn();
	dup2(saved, STDERR_FILENO);
	n = pread(fd, buf, size - 1, 0);
	buf[n < 0 ? 0 : n] = '\0';
}

static void say_hostile(void)
{
	log_warn("no image '%s'", "a\nfake: line\x1b[2J\x7f\t");
}

static void say_all(void)
{
	log_error("e");
	log_warn("w");
	log_info("i %d", 1);
	log_debug("d");
}

static void say_much(void)
{
	char text[5000];

	memset(text, '\x01', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	log_error("%s", text);
}

TEST(a_message_is_one_line_with_control_bytes_escaped)
{
	char out[2000], want[2000];

	capture(say_hostile, out, sizeof(out));
	snprintf(want, sizeof(want), "%s: warning: no image 'a\\nfake: line\\x1b[2J\\x7f\\x09'\n",
		 program_invocation_short_name);
	CHECK_STR(out, want);
}

TEST(messages_above_the_level_are_dropped)
{
	char out[2000];

	capture(say_all, out, sizeof(out));
	CHECK_CONTAINS(out, ": error: e\n");
	CHECK_CONTAINS(out, ": warning: w\n");
	CHECK(!strstr(out, "i 1"));
	log_set_level(LOG_LEVEL_DEBUG);
	capture(say_all, out, sizeof(out));
	CHECK_CONTAINS(out, ": i 1\n");
	CHECK_CONTAINS(out, ": debug: d\n");
	log_set_level(LOG_LEVEL_ERROR);
	capture(say_all, out, sizeof(out));
	CHECK(!strstr(out, "warning"));
	log_set_level(LOG_LEVEL_WARN);
}

TEST(a_long_message_is_cut_and_still_a_line)
{
	char out[8000];
	size_t n;

	capture(say_much, out, sizeof(out));
	n = strlen(out);
	CHECK(n > 1000 && n < 1500);
	CHECK(out[n - 1] == '\n');
	CHECK(out[n - 2] != '\\');
	CHECK(strchr(out, '\n') == out + n - 1);
}

TEST(errno_is_kept)
{
	char out[200];

	errno = EXDEV;
	capture(say_all, out, sizeof(out));
	errno = EXDEV;
	log_debug("dropped");
	CHECK_EQ(errno, EXDEV);
}
