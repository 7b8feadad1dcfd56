/* What waiting streams hold in egress is bounded for each sandbox, and active streams still make progress. */
#include "egress/egress_test.h"
#include "egress/room.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>

#define STREAMS 48 /* what each of them may hold for itself would be several MiB */
#define SPARE (2U << 20) /* what the kernel has in hand beside the bytes */

static struct world w;
static struct cell c;
static int server, client[STREAMS], far[STREAMS];
static uint16_t port;
static char bytes[1 << 16];

static bool begin(void)
{
	static const struct egress_config config = {
		.resolver = "127.0.0.1:1", .hosts = 1, .host = { "server.test 127.0.0.1" }, .ca_file = ""
	};
	struct egress_sandbox b = { .mode = EGRESS_ALLOW,
				    .rules = 1,
				    .rule = { "server.test:*" },
				    .privates = 1,
				    .private = { "127.0.0.1:*" } };

	port = 0;
	server = server_begin("127.0.0.1", &port);
	return server >= 0 && world_begin(&w, &config) && cell_begin(&w, &c, &b);
}

static bool dial(unsigned i)
{
	char addr[64];

	client[i] = cell_ask(&w, &c, "server.test", 1, addr) == 0 ? cell_dial(&w, &c, addr, port) : -1;
	if (client[i] < 0 || !says(client[i], "\x01"))
		return false;
	far[i] = server_accept(server);
	return far[i] >= 0 && arrives(far[i], "\x01") && fd_set_nonblock(client[i]) == 0 &&
	       fd_set_nonblock(far[i]) == 0;
}

static uint64_t queued(int fd, unsigned long which)
{
	int n = 0;

	return ioctl(fd, which, &n) < 0 ? 0 : (uint64_t)n;
}

/* Writes until nothing goes any more, for half a second. @from and @to: the ends. What is between them, in egress. */
static uint64_t fill(const int *from, const int *to)
{
	static uint64_t sent[STREAMS];
	uint64_t last = clock_mono_ns(), end = last + 60000000000ULL, held = 0, all = 0, before = 0;

	memset(sent, 0, sizeof(sent));
	while (clock_mono_ns() - last < 500000000ULL && clock_mono_ns() < end) {
		for (unsigned i = 0; i < STREAMS; i++) {
			ssize_t n = send(from[i], bytes, sizeof(bytes), MSG_NOSIGNAL | MSG_DONTWAIT);

			sent[i] += n > 0 ? (uint64_t)n : 0;
			all += n > 0 ? (uint64_t)n : 0;
		}
		if (all != before)
			last = clock_mono_ns();
		before = all;
		usleep(1000);
	}
	for (unsigned i = 0; i < STREAMS; i++) {
		const uint64_t ends = queued(from[i], SIOCOUTQ) + queued(to[i], FIONREAD);

		/* One that was cut holds nothing. */
		if (send(from[i], "", 0, MSG_NOSIGNAL | MSG_DONTWAIT) == 0 && sent[i] > ends)
			held += sent[i] - ends;
	}
	return held;
}

static void finish(void)
{
	for (unsigned i = 0; i < STREAMS; i++) {
		close(client[i]);
		close(far[i]);
	}
	close(server);
	cell_end(&c);
	CHECK(world_end(&w));
}

static void all_up(void)
{
	CHECK(begin());
	for (unsigned i = 0; i < STREAMS; i++)
		CHECK(dial(i));
}

TEST(servers_that_do_not_read_make_us_hold_no_more_than_the_room)
{
	uint64_t held;

	all_up();
	held = fill(client, far);
	printf("# %llu KiB of %d streams to servers\n", (unsigned long long)held / 1024, STREAMS);
	CHECK(held <= ROOM_MOST + SPARE);
	finish();
}

TEST(a_sandbox_that_does_not_read_makes_us_hold_no_more_than_the_room)
{
	uint64_t held;

	all_up();
	held = fill(far, client);
	printf("# %llu KiB of %d streams to the sandbox\n", (unsigned long long)held / 1024, STREAMS);
	CHECK(held <= ROOM_MOST + SPARE);
	finish();
}
