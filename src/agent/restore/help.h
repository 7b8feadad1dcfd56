/*
 * The agent waits while a process fills its memory. It copies a part of the largest one's itself, on another processor: it is
 * given the process's userfaultfd, and copies into that one's memory from its own view of the pages files. Which part is whose
 * both reckon from the image. The process continues when the agent has closed the descriptor.
 */
#pragma once
#include "agent/restore/build.h"

/* Before processes are started: chooses the one. Without one, or without the means, each fills itself alone. */
void restore_help_offer(struct restore *r);
/* In the agent, when all have started. Fails as restore_wait() does: ->shared says why. */
int restore_help(struct restore *r);

/* In a process: gives its userfaultfd to the agent, if it is the one. */
bool restore_help_ask(const struct build *b);
/* Calls of a process that is helped: the agent may begin; it has done its part. */
void restore_help_begin(struct build *b);
void restore_help_end(struct build *b);
/* Bytes that the process itself copies, of what restore_fill_rest() has: the first ones. */
uint64_t restore_help_own(const struct build *b);
