/*
 * Messages to the kernel's netlink families, built in one buffer and sent at once. Written out here because the engine
 * is static and small, and the libraries for it are neither there for musl nor needed for a dozen kinds of messages.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/err.h"

#define NETLINK_OUT (32U * 1024U)

struct netlink {
	int fd;
	uint32_t seq; /* of the last message begun; the first has 1 */
	size_t len, msg; /* of ->out; where the last message begins */
	bool full; /* something did not fit: netlink_send() refuses */
	_Alignas(8) uint8_t out[NETLINK_OUT];
};

/* In the network namespace the caller is in: it stays that one's. @family: NETLINK_ROUTE and so on. */
int netlink_new(int family, struct netlink **ret, struct err *e);
/* With a socket that was made before, by this or another process, and stays the caller's: netlink_take() before netlink_free(). */
int netlink_from(int fd, struct netlink **ret);
void netlink_free(struct netlink *n);
/* Its descriptor, the caller's from now on: one of nftables that has deleted something takes a while to close. */
int netlink_take(struct netlink *n);
DEFINE_AUTO(struct netlink, netlink_free)

/* @head: what follows the header, of its family's own shape. */
void netlink_begin(struct netlink *n, uint16_t type, uint16_t flags, const void *head, size_t size);
void netlink_put(struct netlink *n, uint16_t type, const void *data, size_t size);
void netlink_put_str(struct netlink *n, uint16_t type, const char *s); /* with its NUL */
void netlink_put_be32(struct netlink *n, uint16_t type, uint32_t v);
void netlink_put_be64(struct netlink *n, uint16_t type, uint64_t v);
/* What is put until netlink_close(), with what this returns, is inside. */
size_t netlink_nest(struct netlink *n, uint16_t type);
void netlink_close(struct netlink *n, size_t at);

/*
 * Sends what was built and reads what the kernel says to it, which it has done when the send returns. 0 only when it has
 * acknowledged the last message that asked for that (NLM_F_ACK); else -errno of the first that failed, whose number is
 * then in *ret_seq (may be NULL). Empties the buffer.
 */
int netlink_send(struct netlink *n, uint32_t *ret_seq);
/*
 * Sends the one message that was built, a request for a list or an object, and calls @fn for every message that comes,
 * headers excluded. What @fn returns < 0 ends it.
 */
typedef int netlink_fn(void *arg, const uint8_t *body, size_t len);
int netlink_ask(struct netlink *n, netlink_fn *fn, void *arg);

/* Attributes of a message from the kernel: *ret is the next of @type in the @len bytes at @p, or -ENOENT. */
struct netlink_attr {
	const uint8_t *data;
	size_t len;
};
int netlink_find(const uint8_t *p, size_t len, uint16_t type, struct netlink_attr *ret);
/* One after the other, whatever they are: moves @p and @len behind it. False at the end. */
bool netlink_next(const uint8_t **p, size_t *len, uint16_t *ret_type, struct netlink_attr *ret);
