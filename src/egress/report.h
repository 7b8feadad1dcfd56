/* What the owner is told. */
#pragma once
#include "egress/sandbox.h"

/* A stream's end; everything but DENIED and BUDGET. @s->rule and the others may be NULL for "". */
void report_stream(struct sandbox *b, struct egress_stream *s);
void report_seen(struct sandbox *b,
		 struct egress_stream *s); /* one that was let through, in mode observe; ->rule is all of it */
/*
 * Something was refused. The first of its kind is told at once, the same again within a second only counted. True: it
 * was the first. @lookup: a name, asked of the DNS.
 */
bool report_is_new(struct sandbox *b, const struct egress_stream *s, bool lookup);
/* One that was new. */
void report_refused(struct sandbox *b, struct egress_stream *s, bool lookup);
void report_counts(struct sandbox *b); /* soon */
void report_flush(struct sandbox *b); /* counts, names and what was folded, now */
void report_now(struct sandbox *b, uint32_t seq); /* the same, but what comes again is still folded; TOLD behind it */
void report_names(struct sandbox *b); /* new ones, now */
void report_done(struct sandbox *b); /* frees what it keeps for it */
void report_counts_due(struct loop_timer *t);
void report_fold_due(struct loop_timer *t);
/* Asks whose connection that is: the seq, or 0 when it cannot be asked now. */
uint32_t report_who(struct sandbox *b, const struct egress_who *w);
