/* One parsed line of the log. Nothing in it is trusted: a process that can write the file can write anything. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#define AUDIT_LINE_MAX (64 * 1024) /* with its newline */
#define AUDIT_HEX 64

struct audit_text {
	const char *p; /* into the line, still escaped; NULL when it is not there */
	size_t n;
};

struct audit_line {
	uint64_t seq, mono_ns;
	struct audit_text time, kind, tenant, token, request_id, sandbox, exec;
	const char *prev, *hash; /* AUDIT_HEX characters each */
	size_t body; /* how many of its bytes are hashed */
};

/* @line is without its newline. -EBADMSG when it has not the form of a record; *ret is written on success. */
int audit_line_parse(const char *line, size_t len, struct audit_line *ret);
