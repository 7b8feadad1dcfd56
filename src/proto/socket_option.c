/* Reads and sets socket options. */
#include "proto/socket_option.h"
#include "base/base.h"

#include <netinet/in.h>
#include <sys/socket.h>

#define SOCKET SOL_SOCKET
#define IP IPPROTO_IP
#define IP6 IPPROTO_IPV6
#define TCP IPPROTO_TCP
#define UDP IPPROTO_UDP
#define NETLINK 270

/* Numbers, since libc's headers are older than the kernel. A kernel that does not know one says so when it is read. */
const struct socket_option socket_options[] = {
	{ SOCKET, 1, 0, "SO_DEBUG" },
	/* all are bound with it: connections and their listener share a port */
	{ SOCKET, 2, SOCKET_LATE, "SO_REUSEADDR" },
	{ SOCKET, 15, 0, "SO_REUSEPORT" },
	{ SOCKET, 5, SOCKET_LATE, "SO_DONTROUTE" },
	{ SOCKET, 6, 0, "SO_BROADCAST" },
	{ SOCKET, 7, SOCKET_LATE | SOCKET_HALVED | SOCKET_SNDBUF, "SO_SNDBUF" },
	{ SOCKET, 8, SOCKET_LATE | SOCKET_HALVED | SOCKET_RCVBUF, "SO_RCVBUF" },
	{ SOCKET, 9, SOCKET_LATE, "SO_KEEPALIVE" },
	{ SOCKET, 10, SOCKET_LATE, "SO_OOBINLINE" },
	{ SOCKET, 11, SOCKET_LATE, "SO_NO_CHECK" },
	{ SOCKET, 12, SOCKET_LATE, "SO_PRIORITY" },
	{ SOCKET, 13, SOCKET_LATE, "SO_LINGER" },
	{ SOCKET, 16, SOCKET_LATE, "SO_PASSCRED" },
	{ SOCKET, 18, SOCKET_LATE, "SO_RCVLOWAT" },
	{ SOCKET, 20, SOCKET_LATE, "SO_RCVTIMEO" },
	{ SOCKET, 21, SOCKET_LATE, "SO_SNDTIMEO" },
	{ SOCKET, 25, 0, "SO_BINDTODEVICE" },
	{ SOCKET, 29, SOCKET_LATE, "SO_TIMESTAMP" },
	{ SOCKET, 34, SOCKET_LATE, "SO_PASSSEC" },
	{ SOCKET, 35, SOCKET_LATE, "SO_TIMESTAMPNS" },
	{ SOCKET, 36, 0, "SO_MARK" },
	{ SOCKET, 37, SOCKET_LATE, "SO_TIMESTAMPING" },
	{ SOCKET, 40, SOCKET_LATE, "SO_RXQ_OVFL" },
	{ SOCKET, 41, SOCKET_LATE, "SO_WIFI_STATUS" },
	{ SOCKET, 42, SOCKET_LATE, "SO_PEEK_OFF" },
	{ SOCKET, 43, SOCKET_LATE, "SO_NOFCS" },
	{ SOCKET, 45, SOCKET_LATE, "SO_SELECT_ERR_QUEUE" },
	{ SOCKET, 46, SOCKET_LATE, "SO_BUSY_POLL" },
	{ SOCKET, 47, SOCKET_LATE, "SO_MAX_PACING_RATE" },
	{ SOCKET, 60, SOCKET_LATE, "SO_ZEROCOPY" },
	{ SOCKET, 61, SOCKET_LATE, "SO_TXTIME" },
	{ SOCKET, 63, SOCKET_LATE, "SO_TIMESTAMP_NEW" },
	{ SOCKET, 64, SOCKET_LATE, "SO_TIMESTAMPNS_NEW" },
	{ SOCKET, 65, SOCKET_LATE, "SO_TIMESTAMPING_NEW" },
	{ SOCKET, 69, SOCKET_LATE, "SO_PREFER_BUSY_POLL" },
	{ SOCKET, 70, SOCKET_LATE, "SO_BUSY_POLL_BUDGET" },
	{ SOCKET, 72, SOCKET_LATE, "SO_BUF_LOCK" },
	{ SOCKET, 73, SOCKET_LATE, "SO_RESERVE_MEM" },
	{ SOCKET, 74, SOCKET_LATE | SOCKET_IDLE, "SO_TXREHASH" },
	{ SOCKET, 75, SOCKET_LATE, "SO_RCVMARK" },
	{ SOCKET, 76, SOCKET_LATE, "SO_PASSPIDFD" },
	{ SOCKET, 82, SOCKET_LATE, "SO_RCVPRIORITY" },
	{ SOCKET, 83, SOCKET_LATE, "SO_PASSRIGHTS" },
	{ IP, 1, 0, "IP_TOS" },
	{ IP, 2, 0, "IP_TTL" },
	{ IP, 3, 0, "IP_HDRINCL" },
	{ IP, 4, SOCKET_REFUSED, "IP_OPTIONS" },
	{ IP, 6, SOCKET_LATE, "IP_RECVOPTS" },
	{ IP, 7, SOCKET_LATE, "IP_RETOPTS" },
	{ IP, 8, SOCKET_LATE, "IP_PKTINFO" },
	{ IP, 10, 0, "IP_MTU_DISCOVER" },
	{ IP, 11, SOCKET_LATE, "IP_RECVERR" },
	{ IP, 12, SOCKET_LATE, "IP_RECVTTL" },
	{ IP, 13, SOCKET_LATE, "IP_RECVTOS" },
	{ IP, 15, 0, "IP_FREEBIND" },
	{ IP, 18, SOCKET_LATE, "IP_PASSSEC" },
	{ IP, 19, 0, "IP_TRANSPARENT" },
	{ IP, 20, SOCKET_LATE, "IP_RECVORIGDSTADDR" },
	{ IP, 21, SOCKET_LATE, "IP_MINTTL" },
	{ IP, 23, SOCKET_LATE, "IP_CHECKSUM" },
	{ IP, 24, SOCKET_LATE, "IP_BIND_ADDRESS_NO_PORT" },
	{ IP, 25, SOCKET_LATE, "IP_RECVFRAGSIZE" },
	{ IP, 26, SOCKET_LATE, "IP_RECVERR_RFC4884" },
	{ IP, 32, SOCKET_DGRAM, "IP_MULTICAST_IF" },
	{ IP, 33, SOCKET_DGRAM, "IP_MULTICAST_TTL" },
	{ IP, 34, SOCKET_DGRAM, "IP_MULTICAST_LOOP" },
	{ IP, 49, SOCKET_DGRAM, "IP_MULTICAST_ALL" },
	{ IP, 50, SOCKET_DGRAM, "IP_UNICAST_IF" },
	{ IP, 51, 0, "IP_LOCAL_PORT_RANGE" },
	{ IP6, 16, 0, "IPV6_UNICAST_HOPS" },
	{ IP6, 17, SOCKET_DGRAM, "IPV6_MULTICAST_IF" },
	{ IP6, 18, SOCKET_DGRAM, "IPV6_MULTICAST_HOPS" },
	{ IP6, 19, SOCKET_DGRAM, "IPV6_MULTICAST_LOOP" },
	{ IP6, 23, 0, "IPV6_MTU_DISCOVER" },
	{ IP6, 25, SOCKET_LATE, "IPV6_RECVERR" },
	{ IP6, 26, 0, "IPV6_V6ONLY" },
	{ IP6, 29, SOCKET_DGRAM, "IPV6_MULTICAST_ALL" },
	{ IP6, 31, SOCKET_LATE, "IPV6_RECVERR_RFC4884" },
	{ IP6, 33, SOCKET_LATE, "IPV6_FLOWINFO_SEND" },
	{ IP6, 49, SOCKET_LATE, "IPV6_RECVPKTINFO" },
	{ IP6, 51, SOCKET_LATE, "IPV6_RECVHOPLIMIT" },
	{ IP6, 53, SOCKET_LATE, "IPV6_RECVHOPOPTS" },
	{ IP6, 56, SOCKET_LATE, "IPV6_RECVRTHDR" },
	{ IP6, 58, SOCKET_LATE, "IPV6_RECVDSTOPTS" },
	{ IP6, 60, SOCKET_LATE, "IPV6_RECVPATHMTU" },
	{ IP6, 62, SOCKET_LATE, "IPV6_DONTFRAG" },
	{ IP6, 66, SOCKET_LATE, "IPV6_RECVTCLASS" },
	{ IP6, 67, 0, "IPV6_TCLASS" },
	{ IP6, 70, 0, "IPV6_AUTOFLOWLABEL" },
	{ IP6, 72, 0, "IPV6_ADDR_PREFERENCES" },
	{ IP6, 73, SOCKET_LATE, "IPV6_MINHOPCOUNT" },
	{ IP6, 74, SOCKET_LATE, "IPV6_RECVORIGDSTADDR" },
	{ IP6, 75, 0, "IPV6_TRANSPARENT" },
	{ IP6, 76, SOCKET_DGRAM, "IPV6_UNICAST_IF" },
	{ IP6, 77, SOCKET_LATE, "IPV6_RECVFRAGSIZE" },
	{ IP6, 78, 0, "IPV6_FREEBIND" },
	{ TCP, 1, SOCKET_LATE, "TCP_NODELAY" },
	{ TCP, 2, SOCKET_IDLE, "TCP_MAXSEG" },
	{ TCP, 3, SOCKET_LATE, "TCP_CORK" },
	{ TCP, 4, SOCKET_LATE, "TCP_KEEPIDLE" },
	{ TCP, 5, SOCKET_LATE, "TCP_KEEPINTVL" },
	{ TCP, 6, SOCKET_LATE, "TCP_KEEPCNT" },
	{ TCP, 7, SOCKET_LATE, "TCP_SYNCNT" },
	{ TCP, 8, SOCKET_LATE, "TCP_LINGER2" },
	{ TCP, 9, SOCKET_LATE, "TCP_DEFER_ACCEPT" },
	{ TCP, 10, SOCKET_IDLE, "TCP_WINDOW_CLAMP" },
	{ TCP, 13, SOCKET_LATE, "TCP_CONGESTION" },
	{ TCP, 16, SOCKET_LATE, "TCP_THIN_LINEAR_TIMEOUTS" },
	{ TCP, 18, SOCKET_LATE, "TCP_USER_TIMEOUT" },
	{ TCP, 23, SOCKET_LATE, "TCP_FASTOPEN" },
	{ TCP, 25, SOCKET_LATE, "TCP_NOTSENT_LOWAT" },
	{ TCP, 27, SOCKET_LATE | SOCKET_IDLE, "TCP_SAVE_SYN" },
	{ TCP, 30, SOCKET_IDLE, "TCP_FASTOPEN_CONNECT" },
	{ TCP, 31, SOCKET_REFUSED, "TCP_ULP" },
	{ TCP, 33, SOCKET_REFUSED, "TCP_FASTOPEN_KEY" },
	{ TCP, 34, SOCKET_LATE | SOCKET_IDLE, "TCP_FASTOPEN_NO_COOKIE" },
	{ TCP, 36, SOCKET_LATE, "TCP_INQ" },
	{ TCP, 37, SOCKET_LATE, "TCP_TX_DELAY" },
	{ TCP, 44, SOCKET_LATE, "TCP_RTO_MAX_MS" },
	{ TCP, 45, SOCKET_LATE, "TCP_RTO_MIN_US" },
	{ TCP, 46, SOCKET_LATE, "TCP_DELACK_MAX_US" },
	{ UDP, 1, SOCKET_REFUSED, "UDP_CORK" },
	{ UDP, 100, SOCKET_REFUSED, "UDP_ENCAP" },
	{ UDP, 101, SOCKET_LATE, "UDP_NO_CHECK6_TX" },
	{ UDP, 102, SOCKET_LATE, "UDP_NO_CHECK6_RX" },
	{ UDP, 103, SOCKET_LATE, "UDP_SEGMENT" },
	{ UDP, 104, SOCKET_LATE, "UDP_GRO" },
	{ NETLINK, 3, SOCKET_LATE, "NETLINK_PKTINFO" },
	{ NETLINK, 4, SOCKET_LATE, "NETLINK_BROADCAST_ERROR" },
	{ NETLINK, 5, SOCKET_LATE, "NETLINK_NO_ENOBUFS" },
	{ NETLINK, 8, SOCKET_LATE, "NETLINK_LISTEN_ALL_NSID" },
	{ NETLINK, 10, SOCKET_LATE, "NETLINK_CAP_ACK" },
	{ NETLINK, 11, SOCKET_LATE, "NETLINK_EXT_ACK" },
	{ NETLINK, 12, SOCKET_LATE, "NETLINK_GET_STRICT_CHK" },
};
const size_t socket_options_n = ARRAY_LEN(socket_options);

const struct socket_option *socket_option_find(uint32_t level, uint32_t name)
{
	for (size_t i = 0; i < socket_options_n; i++)
		if ((uint32_t)socket_options[i].level == level && (uint32_t)socket_options[i].name == name)
			return &socket_options[i];
	return NULL;
}

int socket_option_add(struct buf *b, const struct socket_option *o, const void *value, size_t len)
{
	const uint32_t head[3] = { (uint32_t)o->level, (uint32_t)o->name, (uint32_t)len };
	int r = buf_add(b, head, sizeof(head));

	return r < 0 ? r : buf_add(b, value, len);
}

bool socket_option_list_ok(const uint8_t *list, size_t len)
{
	for (size_t at = 0; at < len;) {
		const struct socket_option *o;
		uint32_t head[3];

		if (len - at < sizeof(head))
			return false;
		memcpy(head, list + at, sizeof(head));
		at += sizeof(head);
		o = socket_option_find(head[0], head[1]);
		if (!o || o->flags & SOCKET_REFUSED || head[2] > SOCKET_OPTION_MAX || head[2] > len - at ||
		    (o->flags & SOCKET_HALVED && head[2] != sizeof(int)))
			return false;
		at += head[2];
	}
	return true;
}

bool socket_option_listed(const uint8_t *list, size_t len, uint32_t level, uint32_t name)
{
	uint32_t head[3];

	for (size_t at = 0; at < len; at += sizeof(head) + head[2]) {
		memcpy(head, list + at, sizeof(head));
		if (head[0] == level && head[1] == name)
			return true;
	}
	return false;
}

int socket_option_put(int fd, const struct socket_option *o, const void *value, size_t len)
{
	int half;

	if (o->flags & SOCKET_HALVED && len == sizeof(half)) {
		memcpy(&half, value, sizeof(half));
		half /= 2;
		value = &half;
	}
	return setsockopt(fd, o->level, o->name, value, (socklen_t)len) < 0 ? -errno : 0;
}

int socket_option_set(int fd, const uint8_t *list, size_t len, uint32_t late, const char **ret_failed)
{
	for (size_t at = 0; at < len;) {
		const struct socket_option *o;
		uint32_t head[3];
		int r;

		memcpy(head, list + at, sizeof(head));
		at += sizeof(head);
		o = socket_option_find(head[0], head[1]);
		if ((o->flags & SOCKET_LATE) == late) {
			r = socket_option_put(fd, o, list + at, head[2]);
			if (r < 0) {
				*ret_failed = o->text;
				return r;
			}
		}
		at += head[2];
	}
	return 0;
}
