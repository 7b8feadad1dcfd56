/* Ways to other machines, to the host, and into the kernel's network code. The sandbox is taken to have no network. */
#include "probe/probe.h"
#include "base/base.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define FAMILY_VSOCK 40
#define FAMILY_ALG 38
#define FAMILY_PACKET 17
#define FAMILY_NETLINK 16
#define FAMILY_LAST 48

static long make_socket(int family, int type, int proto)
{
	long fd = probe_call(SYS_socket, (long)family, (long)(type | SOCK_CLOEXEC), (long)proto);

	if (fd >= 0)
		close((int)fd);
	return fd;
}

static bool any_type(struct probe_run *p, int family, const char *name)
{
	static const int types[] = { SOCK_STREAM, SOCK_DGRAM, SOCK_RAW, SOCK_RDM, SOCK_SEQPACKET };
	bool hole = false;

	for (size_t i = 0; i < ARRAY_LEN(types); i++) {
		/* Any answer but "made" is closed: a family may also refuse by type. */
		if (make_socket(family, types[i], 0) < 0)
			continue;
		probe_say(p, "%s %d type %d; ", name, family, types[i]);
		hole = true;
	}
	return hole;
}

static enum verdict vsock(struct probe_run *p)
{
	return probe_end(p, any_type(p, FAMILY_VSOCK, "vsock"), "refused");
}

static enum verdict alg(struct probe_run *p)
{
	return probe_end(p, any_type(p, FAMILY_ALG, "alg"), "refused");
}

static enum verdict raw(struct probe_run *p)
{
	bool hole = any_type(p, FAMILY_PACKET, "packet");

	if (make_socket(AF_INET, SOCK_RAW, 255) >= 0 || make_socket(AF_INET, SOCK_RAW, IPPROTO_ICMP) >= 0) {
		probe_say(p, "raw IPv4; ");
		hole = true;
	}
	if (make_socket(AF_INET6, SOCK_RAW, IPPROTO_ICMPV6) >= 0) {
		probe_say(p, "raw IPv6; ");
		hole = true;
	}
	return probe_end(p, hole, "refused");
}

static enum verdict netlink(struct probe_run *p)
{
	bool hole = false;

	for (int proto = 1; proto < 32; proto++) { /* 0, routing, is what getifaddrs() needs */
		if (make_socket(FAMILY_NETLINK, SOCK_RAW, proto) < 0 &&
		    make_socket(FAMILY_NETLINK, SOCK_DGRAM, proto) < 0)
			continue;
		probe_say(p, "protocol %d; ", proto);
		hole = true;
	}
	return probe_end(p, hole, "at most routing");
}

static enum verdict families(struct probe_run *p)
{
	bool hole = false;

	for (int f = 0; f < FAMILY_LAST; f++) {
		if (f == AF_UNIX || f == AF_INET || f == AF_INET6 || f == FAMILY_NETLINK || f == FAMILY_VSOCK ||
		    f == FAMILY_ALG || f == FAMILY_PACKET)
			continue;
		hole |= any_type(p, f, "family");
	}
	return probe_end(p, hole, "at most unix, inet, inet6");
}

static enum verdict odd_protocols(struct probe_run *p)
{
	static const struct {
		int type, proto;
		const char *name;
	} odd[] = { { SOCK_STREAM, 132, "SCTP" },  { SOCK_SEQPACKET, 132, "SCTP" }, { 6, 33, "DCCP" },
		    { SOCK_STREAM, 262, "MPTCP" }, { SOCK_DGRAM, 136, "UDP-Lite" }, { SOCK_STREAM, 256, "SMC" } };
	bool hole = false;

	for (size_t i = 0; i < ARRAY_LEN(odd); i++) {
		if (make_socket(AF_INET, odd[i].type, odd[i].proto) < 0)
			continue;
		probe_say(p, "%s; ", odd[i].name);
		/* Rarely used code, but a namespace without links gives it no path to the outside. */
		hole |= odd[i].proto == 132 || odd[i].proto == 33;
	}
	if (hole)
		return PROBE_OPEN;
	probe_say(p, "no SCTP, no DCCP");
	return PROBE_CLOSED;
}

static int connect_within(int fd, const struct sockaddr *a, socklen_t len, int ms)
{
	struct pollfd pf = { .fd = fd, .events = POLLOUT };
	socklen_t elen = sizeof(int);
	int e = 0;

	if (connect(fd, a, len) == 0)
		return 0;
	if (errno != EINPROGRESS)
		return -errno;
	if (poll(&pf, 1, ms) <= 0)
		return -ETIMEDOUT;
	return getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &elen) < 0 ? -errno : -e;
}

static int tcp(const char *ip, unsigned port, int ms)
{
	struct sockaddr_in6 a6 = { .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port) };
	struct sockaddr_in a4 = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	bool six = strchr(ip, ':') != NULL;
	int fd, r;

	if (inet_pton(six ? AF_INET6 : AF_INET, ip, six ? (void *)&a6.sin6_addr : (void *)&a4.sin_addr) != 1)
		return -EINVAL;
	fd = socket(six ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	r = six ? connect_within(fd, (struct sockaddr *)&a6, sizeof(a6), ms) :
		  connect_within(fd, (struct sockaddr *)&a4, sizeof(a4), ms);
	close(fd);
	return r;
}

struct target {
	const char *ip;
	unsigned port;
};

/* With no network an answer must come at once: a wait means that a packet went somewhere. */
static enum verdict tcp_targets(struct probe_run *p, const struct target *t, size_t n)
{
	bool hole = false;

	for (size_t i = 0; i < n; i++) {
		int r = tcp(t[i].ip, t[i].port, 400);

		if (r != 0 && r != -ETIMEDOUT)
			continue;
		probe_say(p, "%s:%u %s; ", t[i].ip, t[i].port, r == 0 ? "connected" : "accepted a packet");
		hole = true;
	}
	return probe_end(p, hole, "refused at once");
}

static enum verdict metadata(struct probe_run *p)
{
	static const struct target t[] = {
		{ "169.254.169.254", 80 }, { "169.254.170.2", 80 }, { "100.100.100.200", 80 }, { "fd00:ec2::254", 80 }
	};

	return tcp_targets(p, t, ARRAY_LEN(t));
}

static enum verdict internet(struct probe_run *p)
{
	static const struct target t[] = { { "1.1.1.1", 443 }, { "8.8.8.8", 53 }, { "2606:4700:4700::1111", 443 } };

	return tcp_targets(p, t, ARRAY_LEN(t));
}

static enum verdict lan(struct probe_run *p)
{
	static const struct target t[] = { { "192.168.0.1", 80 },
					   { "10.0.0.1", 22 },
					   { "10.0.2.2", 22 },
					   { "172.17.0.1", 2375 },
					   { "100.64.0.1", 80 } };

	return tcp_targets(p, t, ARRAY_LEN(t));
}

static enum verdict dns(struct probe_run *p)
{
	static const unsigned char query[] = { 0x5a, 0x5a, 1,	0,   0,	  1, 0,	  0,   0,   0, 0, 0, 7, 'e', 'x',
					       'a',  'm',  'p', 'l', 'e', 3, 'c', 'o', 'm', 0, 0, 1, 0, 1 };
	static const char *const servers[] = { "8.8.8.8", "1.1.1.1", "169.254.169.253", "127.0.0.53" };
	unsigned char answer[512];
	bool hole = false;

	for (size_t i = 0; i < ARRAY_LEN(servers); i++) {
		struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(53) };
		int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
		struct pollfd pf = { .fd = fd, .events = POLLIN };

		inet_pton(AF_INET, servers[i], &a.sin_addr);
		if (fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0 &&
		    send(fd, query, sizeof(query), 0) > 0 && poll(&pf, 1, 300) > 0 &&
		    recv(fd, answer, sizeof(answer), 0) > 0) {
			probe_say(p, "%s answered; ", servers[i]);
			hole = true;
		}
		fd_close(fd);
	}
	return probe_end(p, hole, "no resolver answers");
}

static enum verdict links(struct probe_run *p)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool hole = false;

	if (fd < 0)
		return probe_end(p, false, "no socket can be made");
	for (int i = 1; i < 256; i++) {
		struct ifreq r = { .ifr_ifindex = i };

		if (ioctl(fd, SIOCGIFNAME, &r) < 0 || ioctl(fd, SIOCGIFFLAGS, &r) < 0)
			continue;
		/* The kernel puts idle tunnel devices into every namespace; only what is up carries anything. */
		if ((r.ifr_flags & IFF_LOOPBACK) || !(r.ifr_flags & IFF_UP))
			continue;
		probe_say(p, "%s is up; ", r.ifr_name);
		hole = true;
	}
	close(fd);
	return probe_end(p, hole, "at most loopback");
}

static enum verdict link_control(struct probe_run *p)
{
	struct ifreq r = { .ifr_name = "lo" };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), one = 1;
	char info[84] = "filter";
	socklen_t len = sizeof(info);
	bool hole = false;

	if (fd < 0)
		return probe_end(p, false, "no socket can be made");
	if (ioctl(fd, SIOCGIFFLAGS, &r) == 0 && ioctl(fd, SIOCSIFFLAGS, &r) == 0) { /* the flags it has already */
		probe_say(p, "sets flags of lo; ");
		hole = true;
	}
	if (setsockopt(fd, SOL_SOCKET, SO_MARK, &one, sizeof(one)) == 0) {
		probe_say(p, "marks packets; ");
		hole = true;
	}
	if (setsockopt(fd, IPPROTO_IP, IP_TRANSPARENT, &one, sizeof(one)) == 0) {
		probe_say(p, "takes foreign addresses; ");
		hole = true;
	}
	if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &one, sizeof(one)) == 0) {
		probe_say(p, "forces buffer sizes; ");
		hole = true;
	}
	if (getsockopt(fd, IPPROTO_IP, 64 /* IPT_SO_GET_INFO */, info, &len) == 0) {
		probe_say(p, "reads the packet filter; ");
		hole = true;
	}
	close(fd);
	return probe_end(p, hole, "refused");
}

static enum verdict host_loopback(struct probe_run *p)
{
	int r;

	if (!p->o->port) {
		probe_say(p, "needs --port");
		return PROBE_NA;
	}
	r = tcp("127.0.0.1", p->o->port, 500);
	if (r < 0)
		r = tcp("::1", p->o->port, 500);
	if (r == 0)
		probe_say(p, "connected to port %u", p->o->port);
	return probe_end(p, r == 0, strerror(-r));
}

static enum verdict host_abstract(struct probe_run *p)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	socklen_t len;
	bool hole;
	int fd;

	if (!p->o->abstract || strlen(p->o->abstract) + 1 > sizeof(a.sun_path)) {
		probe_say(p, "needs --abstract");
		return PROBE_NA;
	}
	memcpy(a.sun_path + 1, p->o->abstract, strlen(p->o->abstract));
	len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(p->o->abstract));
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	hole = fd >= 0 && connect(fd, (struct sockaddr *)&a, len) == 0;
	fd_close(fd);
	if (hole)
		probe_say(p, "connected to @%s", p->o->abstract);
	return probe_end(p, hole, "does not exist");
}

static enum verdict host_names(struct probe_run *p)
{
	FILE *f = fopen("/proc/net/unix", "re");
	bool hole = false;
	char line[512];

	if (!f)
		return probe_end(p, false, "/proc/net/unix does not exist");
	while (fgets(line, sizeof(line), f)) {
		char *name = strchr(line, '@');

		if (!name)
			name = strstr(line, " /");
		if (!name)
			continue;
		name[strcspn(name, "\n")] = '\0';
		probe_say(p, "%s; ", name);
		hole = true;
	}
	fclose(f);
	return probe_end(p, hole, "no named socket is listed");
}

static enum verdict host_services(struct probe_run *p)
{
	static const char *const paths[] = { "/run/docker.sock",
					     "/var/run/docker.sock",
					     "/run/podman/podman.sock",
					     "/run/containerd/containerd.sock",
					     "/run/crio/crio.sock",
					     "/run/dbus/system_bus_socket",
					     "/run/systemd/private",
					     "/run/systemd/journal/socket",
					     "/run/udev/control",
					     "/run/cloche/cloche.sock",
					     "/var/lib/cloche/cloche.sock",
					     "/tmp/.X11-unix/X0" };
	static const int types[] = { SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET };
	bool hole = false;

	for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
		struct sockaddr_un a = { .sun_family = AF_UNIX };

		memcpy(a.sun_path, paths[i], strlen(paths[i]));
		for (size_t t = 0; t < ARRAY_LEN(types); t++) {
			int fd = socket(AF_UNIX, types[t] | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

			if (fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0) {
				probe_say(p, "%s; ", paths[i]);
				hole = true;
			}
			fd_close(fd);
		}
	}
	return probe_end(p, hole, "none answers");
}

static const struct probe probes[] = {
	{ "N01", "no AF_VSOCK socket", "CVE-2021-26708, CVE-2025-21756; not confined by a network namespace", vsock, 0,
	  0 },
	{ "N02", "no AF_ALG socket", "CVE-2019-8912, CVE-2026-31431", alg, 0, 0 },
	{ "N03", "no raw or packet socket", "CVE-2017-7308, CVE-2020-14386", raw, 0, 0 },
	{ "N04", "no netlink but routing", "CVE-2022-32250, CVE-2023-32233, CVE-2024-1086", netlink, 0, 0 },
	{ "N05", "no socket of any other family", "CVE-2021-3609 and a similar one for most families", families, 0, 0 },
	{ "N06", "no SCTP or DCCP", "CVE-2017-6074, CVE-2021-23133", odd_protocols, 0, 0 },
	{ "N07", "no connection to a cloud's metadata service", "credentials of the machine", metadata, 0, 0 },
	{ "N08", "no connection to the internet", "direct egress", internet, 0, 0 },
	{ "N09", "no connection to neighbouring machines", "lateral movement", lan, 0, 0 },
	{ "N10", "no name is resolved", "exfiltration by DNS", dns, 0, 0 },
	{ "N11", "no network interface but loopback", "direct egress", links, 0, 0 },
	{ "N12", "no control of links, marks or packet filters", "CVE-2021-22555; bypassing the egress rules",
	  link_control, 0, 0 },
	{ "N13", "no connection to servers on the host's loopback", "CVE-2020-8558", host_loopback, 0, 0 },
	{ "N14", "no connection to the host's abstract sockets", "CVE-2020-15257", host_abstract, 0, 0 },
	{ "N15", "no names of the host's sockets", "CVE-2020-15257", host_names, 0, 0 },
	{ "N16", "no connection to the host's services by path", "a mounted docker.sock is root", host_services, 0, 0 },
};
const struct probe_set probes_net = { probes, ARRAY_LEN(probes) };
