/*
 * A Dockerfile parsed into instructions with their flags, arguments and here-documents, and their line numbers.
 * Variables are not expanded here, and the meaning of arguments is checked by check.h.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "dockerfile/words.h"

#define DOCKERFILE_MAX (1U << 20) /* bytes of a file */
#define DOCKERFILE_INSTRUCTIONS_MAX 4096
#define HEREDOCS_MAX 32 /* of one instruction */

#define INSTRUCTIONS(X)                                                                                                \
	X(ADD)                                                                                                         \
	X(ARG)                                                                                                         \
	X(CMD)                                                                                                         \
	X(COPY)                                                                                                        \
	X(ENTRYPOINT)                                                                                                  \
	X(ENV)                                                                                                         \
	X(EXPOSE)                                                                                                      \
	X(FROM)                                                                                                        \
	X(HEALTHCHECK)                                                                                                 \
	X(LABEL)                                                                                                       \
	X(MAINTAINER)                                                                                                  \
	X(ONBUILD)                                                                                                     \
	X(RUN)                                                                                                         \
	X(SHELL)                                                                                                       \
	X(STOPSIGNAL)                                                                                                  \
	X(USER)                                                                                                        \
	X(VOLUME)                                                                                                      \
	X(WORKDIR)

enum instruction_kind {
#define X(name) DOCKER_##name,
	INSTRUCTIONS(X)
#undef X
};

struct heredoc {
	char *name; /* without quotes */
	char *content; /* any bytes except NUL; tabs of "<<-" are still included */
	bool expand; /* the name is not quoted */
	bool chomp; /* "<<-": tabs in front of each line are removed */
};

struct instruction {
	enum instruction_kind kind;
	unsigned line, last_line; /* counted from 1 */
	char *text; /* the whole instruction in one line, for messages */
	struct words flags; /* such as "--from=x" */
	/*
	 * With their quotes. RUN, CMD, ENTRYPOINT, SHELL, HEALTHCHECK CMD: one text, or the words of the JSON form. ENV
	 * and LABEL: name, value, name, value, …
	 */
	struct words args;
	bool json; /* the arguments were a JSON array */
	bool bare; /* ENV and LABEL in the form "name value", without an equals sign */
	struct heredoc heredoc[HEREDOCS_MAX];
	size_t heredocs;
	char *rest; /* the text after the name and the flags, as written: the trigger of ONBUILD */
};

struct dockerfile {
	char escape; /* '\\' or '`' */
	struct instruction *at;
	size_t n;
};

const char *instruction_name(enum instruction_kind kind);

void dockerfile_free(struct dockerfile *d);
DEFINE_AUTO(struct dockerfile, dockerfile_free)
/* Parses @len bytes at @text. -EINVAL with "line N: …", -E2BIG, -ENOMEM. */
int dockerfile_parse(const char *text, size_t len, struct dockerfile **ret, struct err *e);
/* Parses one instruction, the trigger of an ONBUILD, with its here-documents; its lines count as line @line. */
int dockerfile_parse_trigger(const char *text, char escape, unsigned line, struct dockerfile **ret, struct err *e);
