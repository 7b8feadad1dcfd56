/* Events of a context: frames on one descriptor, with the limit of an execution's output. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/json.h"

struct events {
	int fd;
	const char *id; /* JSON: the id of the present execution, "null" between two */
	uint64_t limit, sent, dropped;
	struct buf *keep; /* collects output for an answer, instead of sending events */
};

/* Starts an event of @type with @id in @b, which the caller ends with events_send(). */
void events_open(struct json *j, const char *type, const char *id);
/* Ends the object and sends it. 0, or a negative errno: then events have no reader any more. */
int events_send(struct events *ev, struct json *j);

int events_begun(struct events *ev); /* the cell can be interrupted */
/* Sends @kind "stdout" or "stderr". Bytes above the limit are counted and dropped. */
int events_text(struct events *ev, const char *kind, const char *text, size_t len);
/* Answers a request by a "refused" event with a message only. */
int events_refuse(struct events *ev, const char *id, const char *message);
