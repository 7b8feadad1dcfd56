/* Builds, sends and parses messages of netlink. */
#include "linux/netlink.h"
#include "base/base.h"
#include "base/sys.h"

#include <endian.h>
#include <linux/netlink.h>
#include <sys/socket.h>
#include <unistd.h>

#define IN_SIZE (32 * 1024)

int netlink_from(int fd, struct netlink **ret)
{
	struct netlink *n = malloc(sizeof(*n));

	if (!n)
		return -ENOMEM;
	n->fd = fd;
	n->seq = 0;
	n->len = n->msg = 0;
	n->full = false;
	*ret = n;
	return 0;
}

int netlink_new(int family, struct netlink **ret, struct err *e)
{
	AUTO_CLOSE int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, family);

	if (fd < 0)
		return err_sys(e, ERR_UNSUPPORTED, -errno, "make a netlink socket (%d)", family);
	if (netlink_from(fd, ret) < 0)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for netlink messages");
	fd = -1;
	return 0;
}

void netlink_free(struct netlink *n)
{
	if (!n)
		return;
	fd_close(n->fd);
	free(n);
}

int netlink_take(struct netlink *n)
{
	return TAKE_FD(n->fd);
}

/* Room for @size bytes and what aligns them, zeroed; NULL when there is none. */
static void *grow(struct netlink *n, size_t size)
{
	const size_t whole = NLMSG_ALIGN(size);
	uint8_t *at = n->out + n->len;
	struct nlmsghdr *h = (struct nlmsghdr *)(void *)(n->out + n->msg);

	if (n->full || whole > sizeof(n->out) - n->len) {
		n->full = true;
		return NULL;
	}
	memset(at, 0, whole);
	n->len += whole;
	h->nlmsg_len = (uint32_t)(n->len - n->msg);
	return at;
}

void netlink_begin(struct netlink *n, uint16_t type, uint16_t flags, const void *head, size_t size)
{
	struct nlmsghdr *h;

	n->msg = n->len;
	n->seq++;
	h = grow(n, NLMSG_LENGTH(size));
	if (!h)
		return;
	h->nlmsg_type = type;
	h->nlmsg_flags = NLM_F_REQUEST | flags;
	h->nlmsg_seq = n->seq;
	memcpy(NLMSG_DATA(h), head, size);
}

void netlink_put(struct netlink *n, uint16_t type, const void *data, size_t size)
{
	struct nlattr *a = grow(n, NLA_HDRLEN + size);

	if (!a)
		return;
	a->nla_type = type;
	a->nla_len = (uint16_t)(NLA_HDRLEN + size);
	if (size)
		memcpy((uint8_t *)a + NLA_HDRLEN, data, size);
}

void netlink_put_str(struct netlink *n, uint16_t type, const char *s)
{
	netlink_put(n, type, s, strlen(s) + 1);
}

void netlink_put_be32(struct netlink *n, uint16_t type, uint32_t v)
{
	v = htobe32(v);
	netlink_put(n, type, &v, sizeof(v));
}

void netlink_put_be64(struct netlink *n, uint16_t type, uint64_t v)
{
	v = htobe64(v);
	netlink_put(n, type, &v, sizeof(v));
}

size_t netlink_nest(struct netlink *n, uint16_t type)
{
	const size_t at = n->len;

	netlink_put(n, type | NLA_F_NESTED, NULL, 0);
	return at;
}

void netlink_close(struct netlink *n, size_t at)
{
	struct nlattr *a = (struct nlattr *)(void *)(n->out + at);

	if (!n->full)
		a->nla_len = (uint16_t)(n->len - at);
}

static int send_out(struct netlink *n)
{
	struct sockaddr_nl kernel = { .nl_family = AF_NETLINK };
	struct iovec iov = { n->out, n->len };
	struct msghdr m = { .msg_name = &kernel, .msg_namelen = sizeof(kernel), .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t r;

	if (n->full)
		return -EMSGSIZE;
	do {
		r = sys_sendmsg(n->fd, &m, 0);
	} while (r == -EINTR);
	n->len = n->msg = 0;
	return r < 0 ? (int)r : 0;
}

/* What has come, without waiting: the kernel answers before a send returns. Only from the kernel itself. */
static ssize_t receive(const struct netlink *n, uint8_t *in, size_t size)
{
	struct sockaddr_nl from = { 0 };
	struct iovec iov = { in, size };
	struct msghdr m = { .msg_name = &from, .msg_namelen = sizeof(from), .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t r;

	do {
		m.msg_namelen = sizeof(from);
		m.msg_flags = 0;
		r = sys_recvmsg(n->fd, &m, MSG_DONTWAIT);
	} while (r == -EINTR || (r >= 0 && from.nl_pid != 0));
	return r >= 0 && m.msg_flags & MSG_TRUNC ? -EMSGSIZE : r;
}

static int error_of(const struct nlmsghdr *h)
{
	const struct nlmsgerr *x = (const struct nlmsgerr *)((const uint8_t *)h + NLMSG_HDRLEN);

	if (h->nlmsg_len < NLMSG_LENGTH(sizeof(int)))
		return -EBADMSG;
	return x->error > 0 ? -EBADMSG : x->error;
}

/* The next message in *@at, or NULL. */
static const struct nlmsghdr *message(const uint8_t *in, size_t len, size_t *at)
{
	const struct nlmsghdr *h = (const struct nlmsghdr *)(const void *)(in + *at);

	if (len - *at < sizeof(*h) || h->nlmsg_len < sizeof(*h) || h->nlmsg_len > len - *at)
		return NULL;
	*at += NLMSG_ALIGN(h->nlmsg_len);
	if (*at > len)
		*at = len;
	return h;
}

int netlink_send(struct netlink *n, uint32_t *ret_seq)
{
	_Alignas(8) uint8_t in[4096];
	uint32_t seq = 0;
	bool acked = false;
	ssize_t got = 0;
	int r = send_out(n);

	/* All of it is read, lest it is taken for the answer to the next. */
	while (r != -EMSGSIZE && (got = receive(n, in, sizeof(in))) >= 0) {
		const struct nlmsghdr *h;
		size_t at = 0;

		while (r == 0 && (h = message(in, (size_t)got, &at))) {
			if (h->nlmsg_type != NLMSG_ERROR)
				continue;
			r = error_of(h);
			seq = h->nlmsg_seq;
			acked = acked || r == 0;
		}
	}
	if (r == 0 && got != -EAGAIN)
		r = (int)got;
	if (r == 0 && !acked)
		r = -EPROTO;
	if (ret_seq)
		*ret_seq = r < 0 ? seq : 0;
	return r;
}

int netlink_ask(struct netlink *n, netlink_fn *fn, void *arg)
{
	AUTO_FREE uint8_t *in = malloc(IN_SIZE);
	ssize_t got;
	int r;

	/* A socket that is used again may still have the rest of an answer that was not read to its end. */
	while (in && (got = receive(n, in, IN_SIZE)) != -EAGAIN)
		if (got < 0 && got != -ENOBUFS && got != -EMSGSIZE)
			return (int)got;
	r = in ? send_out(n) : -ENOMEM;

	/* A long list comes in parts, each made when the one before was read. */
	while (r == 0 && (got = receive(n, in, IN_SIZE)) != -EAGAIN) {
		const struct nlmsghdr *h;
		size_t at = 0;

		if (got < 0)
			return (int)got;
		while (r == 0 && (h = message(in, (size_t)got, &at))) {
			if (h->nlmsg_type == NLMSG_DONE)
				return 0;
			r = h->nlmsg_type == NLMSG_ERROR ?
				    error_of(h) :
				    fn(arg, (const uint8_t *)h + NLMSG_HDRLEN, h->nlmsg_len - NLMSG_HDRLEN);
		}
	}
	return r;
}

bool netlink_next(const uint8_t **p, size_t *len, uint16_t *ret_type, struct netlink_attr *ret)
{
	struct nlattr a;
	size_t whole;

	if (*len < sizeof(a))
		return false;
	memcpy(&a, *p, sizeof(a));
	if (a.nla_len < sizeof(a) || a.nla_len > *len)
		return false;
	*ret_type = a.nla_type & NLA_TYPE_MASK;
	*ret = (struct netlink_attr){ *p + NLA_HDRLEN, a.nla_len - NLA_HDRLEN };
	whole = NLA_ALIGN(a.nla_len);
	if (whole > *len)
		whole = *len;
	*p += whole;
	*len -= whole;
	return true;
}

int netlink_find(const uint8_t *p, size_t len, uint16_t type, struct netlink_attr *ret)
{
	struct netlink_attr a;
	uint16_t t;

	while (netlink_next(&p, &len, &t, &a)) {
		if (t != type)
			continue;
		*ret = a;
		return 0;
	}
	return -ENOENT;
}
