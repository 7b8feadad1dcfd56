/* How a sandbox gets its secrets, and how its output is kept from showing them. */
#pragma once
#include "base/sha256.h"
#include "egress/msg.h"
#include "service/sandbox/struct.h"
#include "base/mask.h"
#include "service/secret/request.h"
#include "service/secret/vault.h"

#define SECRETS_ENV_MAX (1024U * 1024U)

struct secret;
struct give;

/* Of a sandbox that has some, or a CA. */
struct sandbox_secrets {
	struct mask *mask; /* all values it may have seen, as far as there is room for old ones; NULL without secrets */
	uint8_t mask_sum[SHA256_SIZE]; /* of those */
	struct give *giving; /* files are being written */
	bool stale; /* they are to be written again */
	uint64_t dev; /* of the filesystem they are on, as it is called inside; 0 = not known */
	char *ca_cert, *ca_key; /* PEM, of a sandbox some of whose TLS is terminated; else NULL */
	char *ca_sealed; /* both, as they are stored; NULL = not yet */
	bool ca_old; /* the store has it sealed with a key of before */
	bool ca_fresh; /* it is to be put into the sandbox */
	struct buf told; /* the values that egress was sent last */
};

/*
 * Whether @t may have what @request asks for: every secret exists and can be decrypted, and fits its place; injected
 * ones are for hosts that the network policy allows. A sandbox that wakes up continues without deleted ones.
 */
int secrets_check(struct service *s, const struct tenant *t, struct sandbox_request *request, struct err *e);
/*
 * It is about to be made (@like continues in it, or NULL), or was found again: masks and a CA. Does nothing without
 * secrets.
 */
int secrets_begin(struct sandbox *b, const struct sandbox *like, struct err *e);
/* Adds to the spec for the warden: room for files. */
void secrets_spec(const struct sandbox_request *request, struct sandbox_spec *spec);
/* Writes its files. False: there is nothing to be done. Else @fn is called once, with 0 or why not. */
typedef void secrets_given_fn(struct sandbox *b, int r, const struct err *e);
bool secrets_give(struct sandbox *b, secrets_given_fn *fn);
/* It is ready, and stored: one record per secret. */
void secrets_note(struct sandbox *b, const struct who *who);
/* Values or files of one that runs may be out of date: brings them up to date, now or when it can. */
void secrets_refresh(struct sandbox *b);
/* One was rotated or deleted. */
void secrets_changed(struct secret *c);
/* Whether @c may have a value of @len bytes: those of each sandbox that has it stay few enough to be looked for. */
int secrets_fit(const struct secret *c, size_t len, struct err *e);
/* @b turns to what @from has. */
void secrets_move(struct sandbox *b, struct sandbox *from);
void secrets_free(struct sandbox *b);

/* "NAME=VALUE" of those given as env, each ended by a NUL, added to @text, which the caller wipes; their number. */
int secrets_env(const struct sandbox *b, struct buf *text, struct err *e);
/* --- injected ones (inject.c) --- */

bool secrets_need_ca(const struct sandbox_request *w); /* something is injected into TLS, or a rule says +terminate */
int secrets_check_inject(struct service *s, const struct sandbox_request *w, const struct secret_use *u,
			 const struct buf *value, struct err *e);
int secrets_make_ca(struct sandbox *b, const struct sandbox *like, struct err *e);
/* What is kept of it in the sandbox's row, beside what was asked: a field "ca"; and back, NULL = there is none. */
void secrets_store(struct sandbox *b, struct json *j);
int secrets_found(struct sandbox *b, const char *ca, struct err *e);
/* Fills in the values for egress: sandbox_net_inject_fn. */
void secrets_inject(struct sandbox *b, struct egress_sandbox *to);
/* What masks its output, or NULL. */
static inline struct mask *sandbox_mask(const struct sandbox *b)
{
	return b->secrets ? b->secrets->mask : NULL;
}
