/* Many sandboxes and streams: how long it takes, what it costs, and whether one can harm another. */
#include "egress/egress_test.h"

#include <sys/resource.h>

#define CELLS 100
#define EACH 20

static struct world w;
static struct cell cell[CELLS];
static int server;
static uint16_t port;

static bool begin(unsigned cells)
{
	static const struct egress_config config = {
		.resolver = "127.0.0.1:1", .hosts = 1, .host = { "server.test 127.0.0.1" }, .ca_file = ""
	};
	struct rlimit most;

	getrlimit(RLIMIT_NOFILE, &most);
	most.rlim_cur = most.rlim_max;
	setrlimit(RLIMIT_NOFILE, &most);
	port = 0;
	server = server_begin("127.0.0.1", &port);
	if (server < 0 || !world_begin(&w, &config))
		return false;
	for (unsigned i = 0; i < cells; i++) {
		struct egress_sandbox b = { .mode = EGRESS_ALLOW,
					    .rules = 1,
					    .rule = { "server.test:*" },
					    .privates = 1,
					    .private = { "127.0.0.1:*" } };

		if (!cell_begin(&w, &cell[i], &b))
			return false;
	}
	return true;
}

static bool finish(unsigned cells)
{
	close(server);
	for (unsigned i = 0; i < cells; i++)
		cell_end(&cell[i]);
	return world_end(&w);
}

/* Memory of its own that egress has, in kB. */
static long memory(void)
{
	char path[64], line[256];
	long kb = -1;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", w.pid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "Private_Dirty: %ld", &kb) == 1)
			break;
	if (f)
		fclose(f);
	return kb;
}

TEST(two_thousand_streams_of_a_hundred_sandboxes_come_up_quickly_and_cost_little)
{
	static int client[CELLS][EACH], far[CELLS * EACH];
	long before, sandboxes, streams;
	uint64_t start, ms;
	char addr[64];

	CHECK(begin(1));
	CHECK_EQ(cell_ask(&w, &cell[0], "server.test", 1, addr), 0);
	before = memory();
	for (unsigned i = 1; i < CELLS; i++) {
		struct egress_sandbox b = { .mode = EGRESS_ALLOW,
					    .rules = 1,
					    .rule = { "server.test:*" },
					    .privates = 1,
					    .private = { "127.0.0.1:*" } };

		CHECK(cell_begin(&w, &cell[i], &b));
		CHECK_EQ(cell_ask(&w, &cell[i], "server.test", 1, addr), 0);
	}
	sandboxes = memory();
	for (unsigned i = 0; i < CELLS; i++)
		for (unsigned k = 0; k < EACH; k++)
			client[i][k] = cell_socket(&w, &cell[i], AF_INET, SOCK_STREAM | SOCK_NONBLOCK);
	start = clock_mono_ns();
	for (unsigned k = 0; k < EACH; k++)
		for (unsigned i = 0; i < CELLS; i++) {
			struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(port) };

			inet_pton(AF_INET, addr, &to.sin_addr);
			CHECK(!connect(client[i][k], (struct sockaddr *)&to, sizeof(to)) || errno == EINPROGRESS);
		}
	for (unsigned i = 0; i < CELLS * EACH; i++) {
		far[i] = server_accept(server);
		CHECK(far[i] >= 0);
	}
	ms = (clock_mono_ns() - start) / 1000000;
	streams = memory();
	printf("# %d streams of %d sandboxes in %llu ms; %.1f kB a sandbox, %.2f kB a stream\n", CELLS * EACH, CELLS,
	       (unsigned long long)ms, (double)(sandboxes - before) / (CELLS - 1),
	       (double)(streams - sandboxes) / (CELLS * EACH));
#ifndef TEST_SANITIZED
	CHECK(sandboxes - before <= 5 * (CELLS - 1));
	CHECK(streams - sandboxes <= CELLS * EACH);
	CHECK(ms < 5000);
#endif
	for (unsigned i = 0; i < CELLS; i++)
		for (unsigned k = 0; k < EACH; k++)
			CHECK(says(client[i][k], "\x01"));
	for (unsigned i = 0; i < CELLS * EACH; i++) {
		CHECK(arrives(far[i], "\x01"));
		close(far[i]);
	}
	for (unsigned i = 0; i < CELLS; i++)
		for (unsigned k = 0; k < EACH; k++)
			close(client[i][k]);
	CHECK(finish(CELLS));
}

static int by_size(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* The median of connect and one byte there and back, in ns; 0: failed. */
static uint64_t round_trip(const struct cell *from, const char *addr)
{
	enum { TIMES = 200 };
	uint64_t took[TIMES];

	for (int i = 0; i < TIMES; i++) {
		uint64_t start = clock_mono_ns();
		int client = cell_dial(&w, from, addr, port), far = server_accept(server);

		if (client < 0 || far < 0 || !says(client, "\x01") || !arrives(far, "\x01") || !says(far, "x") ||
		    !arrives(client, "x"))
			return 0;
		took[i] = clock_mono_ns() - start;
		close(client);
		close(far);
	}
	qsort(took, TIMES, sizeof(took[0]), by_size);
	return took[TIMES / 2];
}

TEST(a_sandbox_that_floods_leaves_its_neighbours_alone)
{
	char addr[64];
	uint64_t alone, flooded;
	uint16_t sink_port = 0;
	int sink;
	pid_t pid[2];

	CHECK(begin(2));
	sink = server_begin("127.0.0.1", &sink_port);
	CHECK(sink >= 0);
	CHECK_EQ(cell_ask(&w, &cell[0], "server.test", 1, addr), 0);
	CHECK_EQ(cell_ask(&w, &cell[1], "server.test", 1, addr), 0);
	alone = round_trip(&cell[0], addr);
	/* One sandbox opens connections as fast as it can, to a server that never answers. */
	pid[0] = fork();
	if (pid[0] == 0) {
		if (setns(cell[1].netns, CLONE_NEWNET) < 0)
			_exit(1);
		for (;;) {
			struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(sink_port) };
			int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

			inet_pton(AF_INET, addr, &to.sin_addr);
			if (connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0)
				send(fd, "\x01", 1, MSG_NOSIGNAL);
			close(fd);
		}
	}
	pid[1] = fork();
	if (pid[1] == 0)
		for (;;)
			close(accept4(sink, NULL, NULL, SOCK_CLOEXEC));
	flooded = round_trip(&cell[0], addr);
	for (int i = 0; i < 2; i++) {
		kill(pid[i], SIGKILL);
		waitpid(pid[i], NULL, 0);
	}
	printf("# connect and a byte there and back: %llu us alone, %llu us beside a flood\n",
	       (unsigned long long)alone / 1000, (unsigned long long)flooded / 1000);
	CHECK(alone && flooded);
	/* Three processes more on two processors: that alone doubles it. The bench measures, this sees nothing worse. */
	CHECK(flooded < alone * 12 + 20000000);
	close(sink);
	CHECK(finish(2));
}
