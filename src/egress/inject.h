/*
 * What is added to the requests of one sandbox for certain servers, and for no others. Values are copied, wiped when
 * the last user lets go, and are written nowhere but into a request's head.
 */
#pragma once
#include "base/buf.h"
#include "base/mask.h"
#include "egress/head.h"
#include "egress/msg.h"

#define INJECT_ADDED_MAX (64U * 1024U) /* by which all values together may lengthen a head */

struct inject;

/*
 * ERR_INVALID: a name or value that is not allowed at its destination (control bytes, a header that frames
 * requests), or too much. HEADER: "field: value", in place of every header of that name the sandbox sent ("_" and "-"
 * are the same here, as they are to many servers). BASIC: "Authorization: Basic …" of field ":" value. QUERY:
 * "field=value", value encoded, in place of every parameter of that name. @before, or NULL: what was injected until now;
 * answers may still contain those values.
 */
int inject_new(const struct egress_inject *list, uint32_t n, const struct inject *before, struct inject **ret,
	       struct err *e);
struct inject *inject_ref(struct inject *in);
void inject_unref(struct inject *in); /* NULL is fine */

/* Whether something is added for that server: then its streams of that kind go through egress/mitm.h, others never. */
bool inject_wants(const struct inject *in, const char *name, uint16_t port, bool tls);
/* Their names, a space between, for reports; cut to fit. */
void inject_secrets(const struct inject *in, const char *name, uint16_t port, bool tls, char *out, size_t size);
/* A mask of all values that an answer must not contain, made by the first call. NULL: no memory. */
struct mask *inject_mask(struct inject *in);
/* NULL: nothing is added, here and below; by how much a head can become longer */
size_t inject_size(const struct inject *in);
/*
 * The head as that server is to see it: where something is added, without what would have answers compressed; behind what @out has: target as a path, what the sandbox sent under the same
 * names left out, values added. -E2BIG, -ENOMEM. The caller wipes @out, and gave it its whole memory before.
 */
int inject_head(const struct inject *in, const char *name, uint16_t port, bool tls, const char *data,
		const struct head *h, struct buf *out);
