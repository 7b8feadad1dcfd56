/* What code in a context does, on a terminal: text as text, pictures as files. */
#pragma once
#include <jansson.h>
#include <stdbool.h>

struct repl_show {
	const char *folder; /* where pictures go; NULL: nowhere */
	unsigned number; /* of the last picture */
	bool failed; /* the last execution */
	bool left; /* the code asked to leave: exit() */
	char error[64]; /* the name of its error, "" = none */
};

/* One message of the connection. Returns whether it was the end of the execution. */
bool repl_show(struct repl_show *v, const json_t *m);
