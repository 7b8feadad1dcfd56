#include "linux/diag.h"
#include "base/base.h"
#include "base/sys.h"
#include "base/test.h"
#include "linux/ns.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* A listener and a client of it, both ends open; what the client's socket is. */
struct pair {
	int listener, client, server;
	struct diag_flow id;
};

static void put(const struct sockaddr_storage *a, uint8_t addr[16], uint16_t *port)
{
	if (a->ss_family == AF_INET) {
		memcpy(addr, &((const struct sockaddr_in *)a)->sin_addr, 4);
		*port = ntohs(((const struct sockaddr_in *)a)->sin_port);
	} else {
		memcpy(addr, &((const struct sockaddr_in6 *)a)->sin6_addr, 16);
		*port = ntohs(((const struct sockaddr_in6 *)a)->sin6_port);
	}
}

static bool make(int family, struct pair *p)
{
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sockaddr *a = family == AF_INET ? (struct sockaddr *)&v4 : (struct sockaddr *)&v6;
	socklen_t len = family == AF_INET ? sizeof(v4) : sizeof(v6);
	struct sockaddr_storage got;

	*p = (struct pair){ .id.family = family == AF_INET ? 4 : 6 };
	p->listener = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	p->client = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (bind(p->listener, a, len) < 0 || listen(p->listener, 1) < 0 || getsockname(p->listener, a, &len) < 0 ||
	    connect(p->client, a, len) < 0)
		return false;
	p->server = accept4(p->listener, NULL, NULL, SOCK_CLOEXEC);
	len = sizeof(got);
	if (p->server < 0 || getsockname(p->client, (struct sockaddr *)&got, &len) < 0)
		return false;
	put(&got, p->id.local, &p->id.local_port);
	len = sizeof(got);
	if (getpeername(p->client, (struct sockaddr *)&got, &len) < 0)
		return false;
	put(&got, p->id.remote, &p->id.remote_port);
	return true;
}

static uint64_t inode(int fd)
{
	struct stat st;

	return fstat(fd, &st) < 0 ? 0 : st.st_ino;
}

TEST(a_connection_is_found_by_its_two_ends_each_by_its_own)
{
	CHECK(sys_unshare(CLONE_NEWNET) == 0 && ns_loopback_up() == 0);
	for (int i = 0; i < 2; i++) {
		struct diag_flow back;
		struct err e = { 0 };
		struct pair p;
		uint64_t got = 0;
		int r;

		CHECK(make(i ? AF_INET6 : AF_INET, &p));
		r = diag_inode(&p.id, &got, &e);
		if (r < 0)
			TEST_FAIL("%s", e.msg);
		CHECK_EQ(got, inode(p.client));
		back = p.id;
		memcpy(back.local, p.id.remote, 16);
		memcpy(back.remote, p.id.local, 16);
		back.local_port = p.id.remote_port;
		back.remote_port = p.id.local_port;
		CHECK_EQ(diag_inode(&back, &got, NULL), 0);
		CHECK_EQ(got, inode(p.server));
		/* Not what listens there. */
		back.remote_port ^= 1;
		CHECK_EQ(diag_inode(&back, &got, NULL), -ENOENT);
		p.id.remote[0] ^= 1;
		CHECK_EQ(diag_inode(&p.id, &got, NULL), -ENOENT);
		fd_close_many((int[]){ p.listener, p.client, p.server }, 3);
	}
}

TEST(another_namespaces_connections_are_not_seen)
{
	struct pair p;
	uint64_t got = 0;

	CHECK(sys_unshare(CLONE_NEWNET) == 0 && ns_loopback_up() == 0);
	CHECK(make(AF_INET, &p));
	CHECK_EQ(diag_inode(&p.id, &got, NULL), 0);
	CHECK_EQ(sys_unshare(CLONE_NEWNET), 0);
	CHECK_EQ(diag_inode(&p.id, &got, NULL), -ENOENT);
	fd_close_many((int[]){ p.listener, p.client, p.server }, 3);
}

/* As resolvers do it: with a socket that is connected, or one that only sends, also an IPv6 one that speaks IPv4. */
TEST(who_sends_datagrams_is_found_by_his_port)
{
	CHECK(sys_unshare(CLONE_NEWNET) == 0 && ns_loopback_up() == 0);
	for (int i = 0; i < 4; i++) {
		bool v6 = i == 1;
		struct sockaddr_in6 a6 = { .sin6_family = AF_INET6,
					   .sin6_port = htons(53),
					   .sin6_addr = IN6ADDR_LOOPBACK_INIT };
		struct sockaddr_in a4 = { .sin_family = AF_INET,
					  .sin_port = htons(53),
					  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
		struct diag_flow f = { .family = v6 ? 6 : 4, .udp = true, .remote_port = 53 };
		struct err e = { 0 };
		struct sockaddr_storage own;
		socklen_t len = sizeof(own);
		uint64_t got = 0;
		int fd = socket(v6 || i == 2 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

		if (i == 2)
			inet_pton(AF_INET6, "::ffff:127.0.0.1", &a6.sin6_addr);
		if (i == 3) /* not connected */
			CHECK_EQ(sendto(fd, "x", 1, 0, (struct sockaddr *)&a4, sizeof(a4)), 1);
		else if (v6 || i == 2)
			CHECK_EQ(connect(fd, (struct sockaddr *)&a6, sizeof(a6)), 0);
		else
			CHECK_EQ(connect(fd, (struct sockaddr *)&a4, sizeof(a4)), 0);
		CHECK_EQ(getsockname(fd, (struct sockaddr *)&own, &len), 0);
		put(&own, f.local, &f.local_port);
		memset(f.local, 0, sizeof(f.local));
		memcpy(f.local, v6 ? (const void *)&a6.sin6_addr : &a4.sin_addr, v6 ? 16 : 4);
		memcpy(f.remote, f.local, sizeof(f.remote));
		if (diag_inode(&f, &got, &e) < 0)
			TEST_FAIL("%d: %s", i, e.msg);
		CHECK_EQ(got, inode(fd));
		f.local_port ^= 1;
		CHECK_EQ(diag_inode(&f, &got, NULL), -ENOENT);
		close(fd);
	}
}
