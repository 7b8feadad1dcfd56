#include "base/base.h"
#include "base/test.h"
#include "service/sandbox/internal.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define STATES (SANDBOX_ENDING + 1)

/* All that may happen, a row for each state: what is not here may not. */
static const char *const may[STATES][STATES + 1] = {
	[SANDBOX_MAKING] = { "running", "ending" },
	[SANDBOX_RUNNING] = { "making", "running", "paused", "stopped", "hibernated", "lost", "ending" },
	[SANDBOX_PAUSED] = { "running", "paused", "stopped", "hibernated", "lost", "ending" },
	[SANDBOX_STOPPED] = { "running", "lost", "ending" },
	[SANDBOX_HIBERNATED] = { "running", "ending" },
	[SANDBOX_LOST] = { "running", "ending" },
	[SANDBOX_ENDING] = { NULL },
};

static bool is_allowed(enum sandbox_state from, enum sandbox_state to)
{
	for (size_t i = 0; may[from][i]; i++)
		if (!strcmp(may[from][i], sandbox_state_name(to)))
			return true;
	return false;
}

/* In a process of its own: what is forbidden ends it. */
static int signal_of_change(enum sandbox_state from, enum sandbox_state to)
{
	struct sandbox b = { .state = from };
	const struct rlimit no_core = { 0, 0 };
	int status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		setrlimit(RLIMIT_CORE, &no_core);
		close(2);
		_exit(sandbox_set_state(&b, to) && b.state == to ? 0 : 1);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return -1;
	return WIFSIGNALED(status) ? WTERMSIG(status) : -WEXITSTATUS(status);
}

TEST(every_change_of_state_that_is_allowed_is_made_and_every_other_aborts)
{
	unsigned allowed = 0;

	for (enum sandbox_state from = 0; from < STATES; from++)
		for (enum sandbox_state to = 0; to < STATES; to++) {
			CHECK_EQ(sandbox_may_become(from, to), is_allowed(from, to));
			CHECK_EQ(signal_of_change(from, to), is_allowed(from, to) ? 0 : SIGABRT);
			allowed += is_allowed(from, to);
		}
	CHECK_EQ(allowed, 22);
}

TEST(states_of_rows_are_read_and_all_others_are_running)
{
	static const char *const names[] = { "running", "paused", "stopped", "hibernated", "lost" };
	struct sandbox b = { 0 };

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		CHECK_STR(sandbox_state_name(sandbox_load_state(&b, names[i])), names[i]);
	CHECK_EQ(sandbox_load_state(&b, "pooled"), SANDBOX_RUNNING);
	CHECK_EQ(sandbox_load_state(&b, "making"), SANDBOX_RUNNING);
	CHECK_EQ(sandbox_load_state(&b, "ending"), SANDBOX_RUNNING);
}
