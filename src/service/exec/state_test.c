#include "base/base.h"
#include "base/test.h"
#include "service/exec/internal.h"
#include "service/state/event.h"

#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define STATES (EXEC_ORPHANED + 1)

/* All that may happen, a row for each state: what is not here may not. */
static const char *const may[STATES][STATES + 1] = {
	[EXEC_WAITING] = { "started", "exited", "orphaned" },
	[EXEC_FOUND] = { "started", "exited", "orphaned" },
	[EXEC_STARTED] = { "started", "exited", "orphaned" },
	[EXEC_EXITED] = { "judging", "ending", "orphaned" },
	[EXEC_JUDGING] = { "ending", "orphaned" },
	[EXEC_ENDING] = { "ended", "orphaned" },
	[EXEC_ENDED] = { "orphaned" },
	[EXEC_ORPHANED] = { "orphaned" },
};

static struct {
	struct service service;
	struct tenant tenant;
	struct sandbox sandbox;
	struct exec_request request;
	char *argv[2], path[64];
} k;

static bool open_service(void)
{
	struct err e = { 0 };
	int fd;

	snprintf(k.path, sizeof(k.path), "/tmp/cloche-exec-state-XXXXXX");
	fd = mkstemp(k.path);
	if (fd < 0 || close(fd) < 0 || unlink(k.path) < 0)
		return false;
	k.argv[0] = (char[]){ "true" };
	k.request.argv = k.argv;
	k.request.argc = 1;
	snprintf(k.tenant.id, sizeof(k.tenant.id), "t");
	snprintf(k.sandbox.id, sizeof(k.sandbox.id), "a-sandbox");
	k.sandbox.service = &k.service;
	k.sandbox.tenant = &k.tenant;
	return audit_open(k.path, &k.service.audit, &e) == 0 &&
	       (k.service.events || events_new(&k.service.events, &e) == 0);
}

static struct exec an_exec(enum exec_state state)
{
	struct exec x = { .sandbox = &k.sandbox, .request = &k.request, .who.tenant = &k.tenant, .state = state };

	snprintf(x.id, sizeof(x.id), "an-exec");
	x.stream[EXEC_OUT].digest.bad = x.stream[EXEC_ERR].digest.bad = true;
	return x;
}

static bool is_allowed(enum exec_state from, enum exec_state to)
{
	for (size_t i = 0; may[from][i]; i++)
		if (!strcmp(may[from][i], exec_state_name(to)))
			return true;
	return false;
}

/* In a process of its own: what is forbidden ends it. */
static int signal_of_change(enum exec_state from, enum exec_state to)
{
	const struct rlimit no_core = { 0, 0 };
	struct exec x = an_exec(from);
	int status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		setrlimit(RLIMIT_CORE, &no_core);
		close(2);
		_exit(exec_set_state(&x, to) && x.state == to && x.started == (to == EXEC_STARTED) ? 0 : 1);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return -1;
	return WIFSIGNALED(status) ? WTERMSIG(status) : -WEXITSTATUS(status);
}

TEST(every_change_of_state_that_is_allowed_is_made_and_every_other_aborts)
{
	unsigned allowed = 0;

	CHECK(open_service());
	for (enum exec_state from = 0; from < STATES; from++)
		for (enum exec_state to = 0; to < STATES; to++) {
			CHECK_EQ(exec_may_become(from, to), is_allowed(from, to));
			CHECK_EQ(signal_of_change(from, to), is_allowed(from, to) ? 0 : SIGABRT);
			allowed += is_allowed(from, to);
		}
	CHECK_EQ(allowed, 18);
	audit_close(k.service.audit);
	unlink(k.path);
}

static void count_event(void *arg, const struct event *ev)
{
	unsigned *n = arg;

	*n += !strcmp(ev->kind, "exec.ended") && strstr(ev->json, "\"exec\":\"an-exec\"");
}

static int count_record(void *arg, uint64_t seq, const char *line, size_t len)
{
	unsigned *n = arg;

	(void)seq;
	*n += memmem(line, len, "\"exec.end\"", 10) && memmem(line, len, "\"an-exec\"", 9);
	return 0;
}

TEST(the_audit_record_and_the_event_of_its_end_are_made_once_by_the_change_to_ending)
{
	static const enum exec_state way[] = { EXEC_STARTED, EXEC_EXITED, EXEC_JUDGING, EXEC_ENDING, EXEC_ENDED };
	unsigned events = 0, records = 0;
	uint64_t last = 0;
	struct err e = { 0 };
	struct exec x;

	CHECK(open_service());
	x = an_exec(EXEC_WAITING);
	for (size_t i = 0; i < ARRAY_LEN(way); i++) {
		CHECK(exec_set_state(&x, way[i]));
		events = 0;
		event_replay(&k.service, 0, count_event, &events);
		CHECK_EQ(events, way[i] >= EXEC_ENDING);
	}
	CHECK_EQ(audit_flush(k.service.audit, &e), 0);
	CHECK_EQ(audit_read(k.service.audit, 0, 100, NULL, count_record, &records, &last, &e), 0);
	CHECK_EQ(records, 1);
	audit_close(k.service.audit);
	unlink(k.path);
}
