#include "vm/vmm/qmp.h"
#include "base/base.h"
#include "base/test.h"

#include <sys/socket.h>
#include <unistd.h>

#define GREETING                                                                                                           \
	"{\"QMP\": {\"version\": {\"qemu\": {\"micro\": 22, \"minor\": 2, \"major\": 7}, \"package\": \"Debian 1:7.2\"}, " \
	"\"capabilities\": [\"oob\"]}}\r\n"

static struct qmp open_qmp(int ret[2])
{
	struct qmp q;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ret) < 0 || qmp_init(&q, ret[0]) < 0)
		abort();
	return q;
}

static void say(int fd, const char *text)
{
	CHECK_EQ(fd_write_all(fd, text, strlen(text)), 0);
}

static void close_qmp(struct qmp *q, int fd[2])
{
	qmp_done(q);
	close(fd[0]);
	close(fd[1]);
}

TEST(members_are_found_at_their_own_depth_only)
{
	static const char text[] = "{\"a\": {\"b\": \"}\\\"\", \"c\": [1, {\"d\": 2}]}, \"d\" : -3 , \"e\":\"x\"}";
	const char *at;

	CHECK_EQ(qmp_member(text, sizeof(text) - 1, "d", &at), 3);
	CHECK(!memcmp(at, "-3 ", 3));
	CHECK_EQ(qmp_member(text, sizeof(text) - 1, "e", &at), 3);
	CHECK_EQ(qmp_member(text, sizeof(text) - 1, "b", &at), 0);
	for (size_t n = 0; n < sizeof(text) - 1; n++) /* cut anywhere: no overrun, and the last member is not there */
		CHECK_EQ(qmp_member(text, n, "e", &at) * (n < sizeof(text) - 3), 0);
}

TEST(a_greeting_tells_the_version_and_commands_their_answers)
{
	char version[QMP_VERSION];
	struct err e = { 0 };
	int fd[2];
	struct qmp q = open_qmp(fd);

	say(fd[1], GREETING "{\"return\": {}, \"id\": 1}\r\n");
	CHECK_EQ(qmp_greet(&q, version, &e), 0);
	CHECK_STR(version, "7.2.22 Debian 1:7.2");
	say(fd[1],
	    "{\"timestamp\": {\"seconds\": 1}, \"event\": \"MIGRATION\", \"data\": {\"status\": \"completed\"}}\r\n"
	    "{\"id\": 2, \"error\": {\"class\": \"GenericError\", \"desc\": \"no \\\"such\\\" thing\"}}\r\n");
	CHECK_EQ(qmp_do(&q, -1, "stop", &e, "%s", ""), -EIO);
	CHECK(strstr(e.msg, "'stop': no \"such\" thing"));
	CHECK_EQ(qmp_wait_migration(&q, &e), 0);
	close_qmp(&q, fd);
}

TEST(who_stops_and_goes_on_is_remembered_also_when_it_was_not_asked)
{
	struct err e = { 0 };
	int fd[2];
	struct qmp q = open_qmp(fd);

	CHECK(!q.stopped);
	say(fd[1], "{\"event\": \"STOP\", \"timestamp\": {\"seconds\": 1}}\r\n{\"return\": {}, \"id\": 1}\r\n");
	CHECK_EQ(qmp_do(&q, -1, "stop", &e, "%s", ""), 0);
	CHECK(q.stopped);
	say(fd[1], "{\"event\": \"RESUME\"}\r\n{\"return\": {}, \"id\": 2}\r\n");
	CHECK_EQ(qmp_do(&q, -1, "cont", &e, "%s", ""), 0);
	CHECK(!q.stopped);
	say(fd[1], "{\"event\": \"STOP\"}\r\n");
	CHECK_EQ(qmp_drain(&q), 0);
	CHECK(q.stopped);
	close_qmp(&q, fd);
}

TEST(a_job_is_over_when_that_is_told_also_in_the_middle_of_another_answer)
{
	struct err e = { 0 };
	int fd[2];
	struct qmp q = open_qmp(fd);

	say(fd[1],
	    "{\"event\": \"JOB_STATUS_CHANGE\", \"data\": {\"status\": \"running\", \"id\": \"join\"}}\r\n{\"return\": {}, \"id\": 1}\r\n");
	CHECK_EQ(qmp_do(&q, -1, "block-stream", &e, "%s", ""), 0);
	CHECK_EQ(q.job, 0);
	say(fd[1],
	    "{\"event\": \"BLOCK_JOB_COMPLETED\", \"data\": {\"device\": \"join\", \"len\": 8}}\r\n{\"return\": {}, \"id\": 2}\r\n");
	CHECK_EQ(qmp_do(&q, -1, "remove-fd", &e, "%s", ""), 0);
	CHECK_EQ(q.job, 1);
	/* Behind an answer it is not lost, and needs nothing more to come. */
	q.job = 0;
	say(fd[1],
	    "{\"return\": {}, \"id\": 3}\r\n{\"event\": \"BLOCK_JOB_COMPLETED\", \"data\": {\"device\": \"join\"}}\r\n");
	CHECK_EQ(qmp_do(&q, -1, "block-stream", &e, "%s", ""), 0);
	CHECK_EQ(q.job, 0);
	CHECK_EQ(qmp_drain(&q), 0);
	CHECK_EQ(q.job, 1);
	say(fd[1],
	    "{\"event\": \"BLOCK_JOB_COMPLETED\", \"data\": {\"device\": \"join\", \"error\": \"No space left on device\"}}\r\n");
	CHECK_EQ(qmp_drain(&q), 0);
	CHECK_EQ(q.job, -1);
	CHECK_STR(q.job_why, "No space left on device");
	close_qmp(&q, fd);
}

TEST(an_answer_to_another_question_a_line_without_end_and_silence_are_its_end)
{
	static char flood[QMP_LINE];
	struct err e = { 0 };
	int fd[2];
	struct qmp q = open_qmp(fd);

	say(fd[1], "{\"return\": {}, \"id\": 7}\r\n");
	CHECK_EQ(qmp_do(&q, -1, "cont", &e, "%s", ""), -EBADMSG);
	close_qmp(&q, fd);
	q = open_qmp(fd);
	memset(flood, 'x', sizeof(flood));
	CHECK_EQ(fd_write_all(fd[1], flood, sizeof(flood)), 0);
	CHECK_EQ(qmp_drain(&q), -EBADMSG);
	close_qmp(&q, fd);
	q = open_qmp(fd);
	CHECK_EQ(qmp_drain(&q), 0);
	CHECK_EQ(shutdown(fd[1], SHUT_RDWR), 0);
	CHECK_EQ(qmp_drain(&q), -EPIPE);
	close_qmp(&q, fd);
}
