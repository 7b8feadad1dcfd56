/* On any host: the trial's result is true, it leaves no process, and other devices do not pass for KVM. */
#include "linux/kvm.h"
#include "base/base.h"
#include "base/sys.h"
#include "base/test.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

TEST(what_is_no_kvm_is_not_taken_for_one)
{
	struct kvm_trial t;

	kvm_try_device("/dev/no-such-thing", &t);
	CHECK_EQ(t.state, KVM_ABSENT);
	CHECK_STR(t.why, "/dev/kvm does not exist");
	CHECK(t.remedy[0]);
	kvm_try_device("/dev/null", &t);
	CHECK_EQ(t.state, KVM_ABSENT);
	CHECK_STR(t.why, "/dev/kvm has no driver");
	kvm_try_device("/proc/self/fd/1000", &t);
	CHECK_EQ(t.state, KVM_ABSENT);
}

TEST(who_may_not_open_it_is_told_so)
{
	char path[] = "/tmp/cloche-kvm-XXXXXX";
	AUTO_CLOSE int fd = mkstemp(path);
	int status = -1;
	pid_t pid;

	CHECK(fd >= 0 && fchmod(fd, 0) == 0);
	pid = fork();
	if (pid == 0) {
		struct kvm_trial t;

		if (geteuid() == 0 && (setgid(65534) < 0 || setuid(65534) < 0))
			_exit(2);
		kvm_try_device(path, &t);
		_exit(t.state == KVM_DENIED && strstr(t.why, "cannot be opened") && strstr(t.remedy, "group kvm") ? 0 :
														    1);
	}
	waitpid(pid, &status, 0);
	unlink(path);
	CHECK_EQ(status, 0);
}

TEST(the_trial_says_one_thing_and_leaves_nothing)
{
	struct kvm_trial a, b;

	kvm_try(&a);
	kvm_try(&b);
	CHECK_EQ(a.state, b.state);
	CHECK(a.why[0]);
	CHECK_EQ(a.state == KVM_WORKS, !a.remedy[0]);
	CHECK_EQ(waitpid(-1, NULL, WNOHANG), -1); /* no child */
	printf("# here: %s\n", a.why);
}
