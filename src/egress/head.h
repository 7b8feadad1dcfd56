/*
 * The head of one HTTP/1 request: its host and where its body ends, or why that is ambiguous.
 * egress/request.h uses it for all requests of a connection.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "egress/look.h"

#define HEAD_MAX 32768U
#define HEAD_HEADERS_MAX 128U

enum head_body { HEAD_NO_BODY, HEAD_LENGTH, HEAD_CHUNKED };
enum head_upgrade { HEAD_NO_UPGRADE, HEAD_WEBSOCKET, HEAD_H2C };

struct head {
	size_t len; /* of the head, its empty line included */
	size_t method_len; /* the method is at the front */
	size_t target, target_len; /* where in the bytes; as it was sent */
	size_t path; /* where the target's path begins: behind "http://host" of an absolute one, which may have none */
	struct look_to host; /* the Host header, or an absolute target's authority, which must agree */
	bool connect; /* the method is CONNECT: ->host is what it asks for */
	bool absolute; /* the target is "http://host…", as proxies are asked */
	bool keep; /* another request may follow */
	bool expect; /* the client waits for "100 Continue" */
	bool v10;
	uint8_t body; /* enum head_body */
	uint8_t upgrade; /* enum head_upgrade */
	uint64_t length;
};

/*
 * LOOK_NOT: the first line neither begins with a known method nor contains "HTTP/". LOOK_BAD: HTTP/2's preface,
 * HTTP/0.9, an unknown method; bare CR or LF, NUL, folding, a space before a colon; no Host or two, an invalid one, or
 * one that differs from the absolute target's; a body whose length is given twice or in a non-standard form; an Upgrade
 * to anything but websocket; too large.
 */
enum look head_look(const char *data, size_t len, struct head *ret, const char **ret_why);
/* Of bytes that are LOOK_MORE: they begin with a known method, or with a part of one. If not, they may pass at once: */
bool head_begun(const char *data, size_t len);
/*
 * Bytes that were let pass although their first line had no end yet (a protocol with few bytes, of letters): shown all
 * bytes of the client from the first one until ->done, this says false when it is an HTTP request after all. Then end
 * it, before these bytes pass. Such a client gets no better: it is slow on purpose.
 */
struct head_late { /* zeroed */
	uint32_t seen;
	uint8_t matched, words;
	bool done, text, space;
	char word[12];
};
bool head_late(struct head_late *l, const char *data, size_t len);

/*
 * The headers of a head that head_look() took: calls @each with every one, in order. Offsets into @data: the line with
 * its CRLF, its name, its value without the spaces around. Stops when @each returns non-zero, and returns that.
 */
struct head_field {
	size_t line, line_len, name_len, value, value_len; /* the name begins with the line */
};
int head_each(const char *data, const struct head *h,
	      int (*each)(void *arg, const char *data, const struct head_field *f), void *arg);
/* Whether the field has that name; letters of any case. */
bool head_field_is(const char *data, const struct head_field *f, const char *name);
