#include "linux/features.h"
#include "base/base.h"
#include "base/test.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct feature *find(const struct feature *f, size_t n, const char *id)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(f[i].id, id))
			return &f[i];
	return NULL;
}

static size_t count_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	size_t n = 0;

	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
}

TEST(every_feature_says_what_was_found_and_what_to_do)
{
	struct feature f[FEATURES_MAX];
	size_t n = features_check(f, ARRAY_LEN(f));

	CHECK(n > 10 && n <= FEATURES_MAX);
	for (size_t i = 0; i < n; i++) {
		CHECK(f[i].id && f[i].name);
		CHECK(f[i].detail[0]);
		CHECK((f[i].state == FEATURE_OK) == !f[i].remedy[0]);
		for (size_t k = 0; k < i; k++)
			CHECK(strcmp(f[i].id, f[k].id) != 0);
	}
}

TEST(a_short_array_is_filled_and_no_more)
{
	struct feature f[3] = { 0 };

	f[2].id = "untouched";
	CHECK(features_check(f, 2) > 2);
	CHECK(f[0].id && f[1].id);
	CHECK(!strcmp(f[2].id, "untouched"));
}

TEST(nothing_is_left_behind)
{
	static char before[256 * 1024], after[256 * 1024];
	struct feature f[FEATURES_MAX];
	size_t fds;

	features_check(f, ARRAY_LEN(f)); /* the engine's own groups exist from now on */
	fds = count_fds();
	CHECK(fd_get(AT_FDCWD, "/proc/self/mountinfo", before, sizeof(before)) > 0);
	features_check(f, ARRAY_LEN(f));
	CHECK(fd_get(AT_FDCWD, "/proc/self/mountinfo", after, sizeof(after)) > 0);
	CHECK(!strcmp(before, after));
	CHECK_EQ(count_fds(), fds);
	CHECK(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD);
}

/* In a child, since a lowered limit or identity does not come back. */
static int as_nobody(const char *id, enum feature_state *ret)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		struct feature f[FEATURES_MAX];
		size_t n;

		/* As a process that was never another user: with its own /proc/self. */
		if (setgid(65534) < 0 || setuid(65534) < 0 || prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0)
			_exit(100);
		n = features_check(f, ARRAY_LEN(f));
		_exit((int)find(f, n, id)->state);
	}
	if (waitpid(pid, &status, 0) < 0 || !WIFEXITED(status) || WEXITSTATUS(status) == 100)
		return -EIO;
	*ret = (enum feature_state)WEXITSTATUS(status);
	return 0;
}

TEST(an_ordinary_user_lacks_root_s_power_and_idmapped_mounts)
{
	enum feature_state s;

	if (geteuid() != 0)
		SKIP("needs root");
	CHECK_EQ(as_nobody("admin", &s), 0);
	CHECK_EQ(s, FEATURE_OPTIONAL_MISSING);
	CHECK_EQ(as_nobody("idmap", &s), 0);
	CHECK_EQ(s, FEATURE_OPTIONAL_MISSING);
}

TEST(a_sandboxs_network_works_here_for_root_and_for_others)
{
	struct feature f[FEATURES_MAX];
	size_t n = features_check(f, ARRAY_LEN(f));
	const struct feature *x = find(f, n, "steer");
	enum feature_state s;

	CHECK(x);
	if (x->state != FEATURE_OK)
		TEST_FAIL("%s; %s", x->detail, x->remedy);
	if (geteuid() != 0)
		SKIP("needs root");
	CHECK_EQ(as_nobody("steer", &s), 0);
	CHECK_EQ(s, FEATURE_OK);
}

TEST(a_folder_of_proc_cannot_be_idmapped)
{
	AUTO_CLOSE int fd = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);

	CHECK(fd >= 0);
	CHECK(feature_idmap(fd) < 0);
}
