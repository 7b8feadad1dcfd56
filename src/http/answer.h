/*
 * The client side of HTTP/1.1: parses a server's answer to one request. The server may be hostile. The head is parsed
 * when it is complete, then the content is handed out without its framing. As strict as parse.c: what could be
 * understood in two ways is refused.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <llhttp.h>

#define ANSWER_HEAD_MAX (24U * 1024U)
#define ANSWER_HEADERS_MAX 100U
#define ANSWER_EARLY_MAX 16U /* answers that say that another will come */

enum answer_state {
	ANSWER_HEAD, /* more of it is needed */
	ANSWER_BODY,
	ANSWER_END, /* complete; bytes that follow belong to no answer */
	ANSWER_UPGRADED, /* what follows is another protocol's */
};

struct answer {
	enum answer_state state;
	bool no_body; /* it answers a HEAD. Set by the caller */
	bool may_upgrade; /* an upgrade was asked for. Likewise */
	int status;
	const char *reason; /* the words behind it, or "" */
	int64_t length; /* of the body; -1: not said */
	unsigned n;
	struct {
		const char *name, *value;
	} header[ANSWER_HEADERS_MAX];
	/* the module's own below */
	bool chunked;
	uint64_t left;
	char *head, *to;
	size_t len, cap;
	unsigned early;
	llhttp_t parser;
};

void answer_init(struct answer *a);
void answer_done(struct answer *a);
/*
 * Takes bytes, and leaves content among them at @p, *ret_len bytes. Returns how many were used: it stops behind the head
 * and at the end. -EBADMSG: they make no sense, *ret_why says it. -ENOMEM.
 */
ssize_t answer_feed(struct answer *a, char *p, size_t n, size_t *ret_len, const char **ret_why);
/* The server closed: 0 when that is how it ends, and ->state says so; else -EPIPE. */
int answer_eof(struct answer *a);
const char *answer_header(const struct answer *a, const char *name); /* the first, or NULL */
