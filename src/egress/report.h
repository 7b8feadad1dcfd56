/* Reports to the owner: streams that ended, refusals, counts and new names. */
#pragma once
#include "egress/sandbox.h"

/* Reports a stream's end, with any verdict but DENIED and BUDGET. @s->rule and the others may be NULL for "". */
void report_stream(struct sandbox *b, struct egress_stream *s);
void report_seen(struct sandbox *b,
		 struct egress_stream *s); /* one that was let through, in mode observe; ->rule is all of it */
/*
 * Something was refused. The first refusal of its kind is reported at once; repetitions within a second are only counted.
 * True: it was the first. @lookup: the refusal of a DNS query.
 */
bool report_is_new(struct sandbox *b, const struct egress_stream *s, bool lookup);
/* Reports a refusal for which report_is_new() was true. */
void report_refused(struct sandbox *b, struct egress_stream *s, bool lookup);
void report_counts(struct sandbox *b); /* soon */
void report_flush(struct sandbox *b); /* counts, names and what was folded, now */
void report_now(struct sandbox *b, uint32_t seq); /* the same, but repetitions are still folded; EGRESS_TOLD follows */
void report_names(struct sandbox *b); /* new ones, now */
void report_done(struct sandbox *b); /* frees what it keeps for it */
void report_counts_due(struct loop_timer *t);
void report_fold_due(struct loop_timer *t);
/* Asks the owner which process a connection belongs to. Returns the seq, or 0 when it cannot be asked now. */
uint32_t report_who(struct sandbox *b, const struct egress_who *w);
