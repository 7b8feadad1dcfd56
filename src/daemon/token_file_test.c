#include "daemon/token_file.h"
#include "base/base.h"
#include "base/test.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[64], path[96], text[TOKEN_FILE_SIZE];
static struct err e;

static bool begin(void)
{
	snprintf(dir, sizeof(dir), "/tmp/cloche-token-XXXXXX");
	if (!mkdtemp(dir))
		return false;
	snprintf(path, sizeof(path), "%s/token", dir);
	memset(text, 0, sizeof(text));
	e = (struct err){ 0 };
	return true;
}

static void end(void)
{
	unlink(path);
	rmdir(dir); /* fails when anything else was left there: the next check sees it */
}

static void put(const char *content, size_t len, mode_t mode)
{
	AUTO_CLOSE int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	CHECK(fd >= 0);
	CHECK_EQ(fd_write_all(fd, content, len), 0);
	CHECK_EQ(fchmod(fd, mode), 0);
}

TEST(a_new_token_has_its_form_and_is_never_the_same)
{
	char other[TOKEN_FILE_SIZE];

	CHECK_EQ(token_new(text, &e), 0);
	CHECK_EQ(token_new(other, &e), 0);
	CHECK_EQ(strlen(text), 50);
	CHECK_EQ(strncmp(text, "cloche_", 7), 0);
	CHECK_EQ(strspn(text + 7, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"), 43);
	CHECK(strcmp(text, other) != 0);
	/* 256 bits end in the middle of a symbol: its last two bits are zeros. */
	CHECK(strchr("AEIMQUYcgkosw048", text[49]));
}

TEST(a_missing_file_is_made_closed_to_others_and_read_the_next_time)
{
	char again[TOKEN_FILE_SIZE];
	struct stat st;
	mode_t old = umask(0);

	CHECK(begin());
	CHECK_EQ(token_file_get(path, text, &e), 0);
	umask(old);
	CHECK_EQ(stat(path, &st), 0);
	CHECK_EQ(st.st_mode & 07777, 0600);
	CHECK_EQ(st.st_size, 51);
	CHECK_EQ(token_file_get(path, again, &e), 0);
	CHECK_STR(again, text);
	end();
	CHECK(access(dir, F_OK) < 0);
}

TEST(the_first_line_is_the_token)
{
	CHECK(begin());
	put("0123456789abcdef\r\nand more\n", 27, 0400);
	CHECK_EQ(token_file_get(path, text, &e), 0);
	CHECK_STR(text, "0123456789abcdef");
	end();
}

TEST(what_is_no_token_is_refused)
{
	char longest[TOKEN_FILE_SIZE];

	CHECK(begin());
	put("", 0, 0600);
	CHECK_EQ(token_file_get(path, text, &e), -EINVAL);
	put("short\n", 6, 0600);
	CHECK_EQ(token_file_get(path, text, &e), -EINVAL);
	put("0123456789 abcdef\n", 18, 0600);
	CHECK_EQ(token_file_get(path, text, &e), -EINVAL);
	put("0123456789abcdef\0x\n", 19, 0600);
	CHECK_EQ(token_file_get(path, text, &e), -EINVAL);
	memset(longest, 'x', sizeof(longest));
	put(longest, 129, 0600);
	CHECK_EQ(token_file_get(path, text, &e), -EINVAL);
	CHECK_STR(text, "");
	put(longest, 128, 0600);
	CHECK_EQ(token_file_get(path, text, &e), 0);
	end();
}

TEST(a_file_that_others_may_read_or_write_is_refused)
{
	static const mode_t bad[] = { 0604, 0640, 0620, 0602 };

	CHECK(begin());
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		put("0123456789abcdef\n", 17, bad[i]);
		CHECK_EQ(token_file_get(path, text, &e), -EACCES);
		CHECK_STR(e.remedy, "chmod 600");
	}
	end();
}

TEST(only_a_regular_file_with_one_name_will_do)
{
	char other[96];

	CHECK(begin());
	CHECK_EQ(symlink("/etc/hostname", path), 0);
	CHECK_EQ(token_file_get(path, text, &e), -ELOOP);
	unlink(path);
	CHECK_EQ(mkfifo(path, 0600), 0);
	CHECK_EQ(token_file_get(path, text, &e), -EINVAL);
	CHECK_CONTAINS(e.msg, "not a regular file");
	unlink(path);
	CHECK_EQ(mkdir(path, 0700), 0);
	CHECK_EQ(token_file_get(path, text, &e), -EINVAL);
	rmdir(path);
	put("0123456789abcdef\n", 17, 0600);
	snprintf(other, sizeof(other), "%s/other", dir);
	CHECK_EQ(link(path, other), 0);
	CHECK_EQ(token_file_get(path, text, &e), -EMLINK);
	unlink(other);
	end();
}

TEST(a_missing_folder_is_an_error)
{
	CHECK_EQ(token_file_get("/nowhere/at/all", text, &e), -ENOENT);
	CHECK_CONTAINS(e.msg, "token file '/nowhere/at/all': open its parent folder");
}
