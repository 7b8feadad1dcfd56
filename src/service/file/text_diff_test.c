#include "service/file/text_diff.h"
#include "base/base.h"
#include "base/test.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static struct buf out = BUF_INIT(64 << 20);

static const char *differ(const char *a, const char *b)
{
	buf_clear(&out);
	return text_diff(a, strlen(a), b, strlen(b), &out) == 0 ? buf_str(&out) : "?";
}

TEST(what_is_the_same_says_nothing)
{
	CHECK_STR(differ("", ""), "");
	CHECK_STR(differ("a\nb", "a\nb"), "");
}

TEST(changes_are_told_with_three_lines_around)
{
	CHECK_STR(differ("1\n2\n3\n4\n5\n6\n7\n8\n9\n", "1\n2\n3\n4\nfive\n6\n7\n8\n9\n"),
		  "@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n");
	CHECK_STR(differ("", "a\n"), "@@ -0,0 +1 @@\n+a\n");
	CHECK_STR(differ("a\n", ""), "@@ -1 +0,0 @@\n-a\n");
	CHECK_STR(differ("a\n", "a"), "@@ -1 +1 @@\n-a\n+a\n\\ No newline at end of file\n");
	CHECK_STR(differ("a\nb\nc\n", "b\nc\nd\n"), "@@ -1,3 +1,3 @@\n-a\n b\n c\n+d\n");
	/* Six lines between two changes are one hunk, seven two. */
	CHECK_STR(differ("x\n1\n2\n3\n4\n5\n6\ny\n", "X\n1\n2\n3\n4\n5\n6\nY\n"),
		  "@@ -1,8 +1,8 @@\n-x\n+X\n 1\n 2\n 3\n 4\n 5\n 6\n-y\n+Y\n");
	CHECK_STR(differ("x\n1\n2\n3\n4\n5\n6\n7\ny\n", "X\n1\n2\n3\n4\n5\n6\n7\nY\n"),
		  "@@ -1,4 +1,4 @@\n-x\n+X\n 1\n 2\n 3\n@@ -6,4 +6,4 @@\n 5\n 6\n 7\n-y\n+Y\n");
}

static bool shell(const char *script)
{
	pid_t pid = fork();
	int status = -1;

	if (pid == 0) {
		execl("/bin/sh", "sh", "-c", script, NULL);
		_exit(127);
	}
	waitpid(pid, &status, 0);
	return status == 0;
}

/* What patch(1) makes of it. */
static bool patches(const char *a, size_t alen, const char *b, size_t blen)
{
	char dir[] = "/tmp/cloche-text-diff-XXXXXX", cmd[400], path[64];
	FILE *f;
	bool ok;

	buf_clear(&out);
	if (text_diff(a, alen, b, blen, &out) < 0 || !mkdtemp(dir))
		return false;
	snprintf(path, sizeof(path), "%s/a", dir);
	f = fopen(path, "w");
	ok = f && fwrite(a, 1, alen, f) == alen;
	if (f)
		fclose(f);
	snprintf(path, sizeof(path), "%s/b", dir);
	f = fopen(path, "w");
	ok = ok && f && fwrite(b, 1, blen, f) == blen;
	if (f)
		fclose(f);
	snprintf(path, sizeof(path), "%s/p", dir);
	f = fopen(path, "w");
	ok = ok && f && fprintf(f, "--- a\n+++ a\n") > 0 && fwrite(buf_str(&out), 1, out.len, f) == out.len;
	if (f)
		fclose(f);
	snprintf(cmd, sizeof(cmd), "cd %s && { [ $(wc -c < p) = 12 ] || patch -s -u a p >&2; } && cmp a b >&2", dir);
	ok = ok && shell(cmd);
	snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	return shell(cmd) && ok;
}

static size_t random_text(char *to, size_t lines, unsigned kinds)
{
	size_t n = 0;

	for (size_t i = 0; i < lines; i++)
		n += (size_t)snprintf(to + n, 8, "%u\n", (unsigned)rand() % kinds);
	if (n && rand() % 2)
		n--;
	return n;
}

TEST(patch_makes_one_of_the_other)
{
	static char a[4096], b[4096];

	srand(7);
	for (int i = 0; i < 60; i++) {
		size_t n = random_text(a, (size_t)(rand() % 60), 1 + (unsigned)rand() % 20), m;

		if (i % 3) {
			m = random_text(b, (size_t)(rand() % 60), 1 + (unsigned)rand() % 20);
		} else { /* a few bytes changed */
			memcpy(b, a, n);
			m = n;
			for (int k = 0; m && k < 3; k++)
				b[(size_t)rand() % m] = "x\n"[rand() % 2];
		}
		CHECK(patches(a, n, b, m));
	}
}

TEST(what_differs_everywhere_has_a_bounded_cost_and_is_still_right)
{
	size_t n = 0, m = 0;
	char *a = malloc(1 << 20), *b = malloc(1 << 20);

	srand(8);
	for (size_t i = 0; i < 100000; i++) {
		a[n++] = (char)('a' + rand() % 20);
		a[n++] = '\n';
		b[m++] = (char)('a' + rand() % 20);
		b[m++] = '\n';
	}
	CHECK(patches(a, n, b, m));
	free(a);
	free(b);
}

TEST(bytes_that_are_no_text_are_known)
{
	CHECK(text_is("", 0) && text_is("abc\n\t", 5) && text_is("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", 9));
	CHECK(!text_is("a\0b", 3) && !text_is("\xff", 1) && !text_is("\xc3", 1) && !text_is("\xe0\x80\x80", 3));
	CHECK(!text_is("\xed\xa0\x80", 3) && !text_is("\xf4\x90\x80\x80", 4) && !text_is("\xc0\x80", 2));
}

TEST(an_answer_that_is_full_is_an_error)
{
	struct buf small = BUF_INIT(10);

	CHECK_EQ(text_diff("a\nb\nc\n", 6, "", 0, &small), -E2BIG);
	buf_done(&small);
}
