#include "daemon/identity.h"
#include "base/base.h"
#include "base/test.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct identity who;
static struct err e;

TEST(numbers_and_names_are_found)
{
	CHECK_EQ(identity_find("1234", &who, &e), 0);
	CHECK(who.uid == 1234 && who.gid == 1234);
	CHECK_EQ(identity_find("12:34", &who, &e), 0);
	CHECK(who.uid == 12 && who.gid == 34);
	CHECK_EQ(identity_find("daemon", &who, &e), 0);
	CHECK_EQ(who.uid, 1);
}

TEST(the_default_works_where_nobody_made_a_user)
{
	CHECK_EQ(identity_find("cloche", &who, &e), 0);
	CHECK(who.uid != 0 && who.gid != 0);
}

TEST(root_and_nonsense_are_refused)
{
	static const char *const bad[] = {
		"0", "root", "5:0", "0:5", "4294967295", "1:", "1:2:3", "1x", "99999999999999999999"
	};

	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		if (identity_find(bad[i], &who, &e) >= 0)
			TEST_FAIL("'%s' was taken", bad[i]);
	CHECK_EQ(identity_find("nobody-of-that-name", &who, &e), -ENOENT);
	CHECK_CONTAINS(e.remedy, "useradd");
}

TEST(behind_sudo_the_owner_is_who_typed_it)
{
	if (getuid() != 0)
		SKIP("needs root");
	unsetenv("SUDO_UID");
	CHECK_EQ(identity_owner(), 0);
	setenv("SUDO_UID", "1000", 1);
	CHECK_EQ(identity_owner(), 1000);
	setenv("SUDO_UID", "-1", 1);
	CHECK_EQ(identity_owner(), 0);
	unsetenv("SUDO_UID");
}

/* The child's exit code says how far it came. */
static int become(void)
{
	pid_t parent = getpid(), pid = fork();
	int status = 0;

	if (pid == 0) {
		if (identity_become(&(struct identity){ 4321, 4322 }, parent, &e) < 0)
			_exit(1);
		if (getuid() != 4321 || getegid() != 4322 || setuid(0) == 0 ||
		    open("/etc/shadow", O_RDONLY | O_CLOEXEC) >= 0)
			_exit(2);
		if (identity_become(&(struct identity){ 5, 5 }, parent, &e) == 0)
			_exit(3);
		_exit(42);
	}
	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(there_is_no_way_back)
{
	if (getuid() != 0)
		SKIP("needs root");
	CHECK_EQ(become(), 42);
}

TEST(files_are_touched_as_somebody_else_without_roots_rights)
{
	const struct identity other = { 4321, 4322 };
	char dir[] = "/tmp/cloche-identity-XXXXXX", path[64];
	AUTO_CLOSE int fd = -1;
	struct stat st;
	int secret;

	if (getuid() != 0)
		SKIP("needs root");
	CHECK(mkdtemp(dir));
	CHECK_EQ(chown(dir, 4321, 4322), 0);
	snprintf(path, sizeof(path), "%s/f", dir);
	CHECK_EQ(identity_files_as(&other, &e), 0);
	fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	secret = open("/etc/shadow", O_RDONLY | O_CLOEXEC);
	identity_files_back();
	CHECK(fd >= 0);
	CHECK_EQ(secret, -1);
	CHECK_EQ(fstat(fd, &st), 0);
	CHECK(st.st_uid == 4321 && st.st_gid == 4322);
	secret = open("/etc/shadow", O_RDONLY | O_CLOEXEC);
	CHECK(secret >= 0);
	fd_close(secret);
	unlink(path);
	rmdir(dir);
}
