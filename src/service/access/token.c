/* The list of tokens. */
#include "service/access/access.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/sha256.h"
#include "base/sys.h"
#include "service/access/internal.h"

#include <openssl/crypto.h>

#define KNOWN_MIN 16
#define KNOWN_MAX 128
#define SECRET 32

/*
 * --- the table ------------------------------------------------------------------------------------------------------
 */

static size_t place(const uint8_t *hash, size_t size)
{
	uint64_t v;

	memcpy(&v, hash, sizeof(v));
	return (size_t)v & (size - 1);
}

static int table_room(struct access *x)
{
	size_t size = x->size ? 2 * x->size : 64;
	struct token_key **table, *k;

	if (x->keys < x->size)
		return 0;
	table = calloc(size, sizeof(*table));
	if (!table)
		return x->size ? 0 : -ENOMEM; /* longer chains will do */
	for (size_t i = 0; i < x->size; i++) {
		while ((k = x->table[i])) {
			x->table[i] = k->next;
			k->next = table[place(k->hash, size)];
			table[place(k->hash, size)] = k;
		}
	}
	free(x->table);
	x->table = table;
	x->size = size;
	return 0;
}

/* After table_room. */
static void table_add(struct access *x, struct token_key *k, struct token *of)
{
	struct token_key **p = &x->table[place(k->hash, x->size)];

	k->token = of;
	k->next = *p;
	*p = k;
	x->keys++;
}

static void table_remove(struct access *x, struct token_key *k)
{
	struct token_key **p;

	if (!k->token)
		return;
	p = &x->table[place(k->hash, x->size)];
	while (*p != k)
		p = &(*p)->next;
	*p = k->next;
	x->keys--;
	*k = (struct token_key){ 0 };
}

/* The choice of a chain reveals at most a few bits of a hash, which cannot be inverted. */
static struct token_key *table_find(const struct access *x, const uint8_t *hash, size_t len)
{
	struct token_key *k = x->size ? x->table[place(hash, x->size)] : NULL;

	while (k && CRYPTO_memcmp(k->hash, hash, len))
		k = k->next;
	return k;
}

/*
 * --- tokens ---------------------------------------------------------------------------------------------------------
 */

void token_text_hash(const char *text, uint8_t ret[32])
{
	struct sha256 s;

	sha256_init(&s);
	sha256_add(&s, text, strlen(text));
	sha256_end(&s, ret);
}

int token_text_new(const char *prefix, char text[TOKEN_TEXT_MAX], struct err *e)
{
	static const char symbols[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
	unsigned char raw[SECRET + 1] = { 0 };
	size_t n = strlen(prefix);
	ssize_t got;

	do {
		got = sys_getrandom(raw, SECRET, 0);
	} while (got == -EINTR);
	if (got != SECRET)
		return err_sys(e, ERR_INTERNAL, got < 0 ? (int)got : -EIO, "make a token");
	memcpy(text, prefix, n);
	for (size_t i = 0; i < SECRET; i += 3) {
		/* The last group has two bytes, and one of ours that is zero: three symbols say it all. */
		unsigned v = (unsigned)raw[i] << 16 | (unsigned)raw[i + 1] << 8 | raw[i + 2];

		for (int shift = 18; shift >= (i + 3 > SECRET ? 6 : 0); shift -= 6)
			text[n++] = symbols[v >> shift & 63];
	}
	text[n] = '\0';
	OPENSSL_cleanse(raw, sizeof(raw));
	return 0;
}

static void link_token(struct access *x, struct token *k)
{
	k->next = NULL;
	*x->last_token = k;
	x->last_token = &k->next;
}

/* Out of everything, and gone. */
static void drop(struct access *x, struct token *k)
{
	struct token **p = &x->tokens;

	table_remove(x, &k->key);
	table_remove(x, &k->old_key);
	while (*p != k)
		p = &(*p)->next;
	*p = k->next;
	if (x->last_token == &k->next)
		x->last_token = p;
	free(k);
}

static int load_one(void *arg, const struct token_row *row)
{
	AUTO_FREE struct token *k = calloc(1, sizeof(*k));
	struct access *x = arg;
	int r;

	if (!k)
		return -ENOMEM;
	k->tenant = tenant_find(x, row->tenant);
	if (!k->tenant || !id_valid(row->id) || row->scope < SCOPE_READ || row->scope > SCOPE_ADMIN)
		return -EBADMSG;
	snprintf(k->id, sizeof(k->id), "%s", row->id);
	snprintf(k->name, sizeof(k->name), "%s", row->name);
	k->scope = (enum scope)row->scope;
	k->created_ns = row->created_ns;
	k->expires_ns = row->expires_ns;
	k->rate = (struct rate_rule){ row->rate_points, row->rate_window_ms, row->rate_block_ms };
	k->old_until_ns = row->old_until_ns;
	if (rate_check(&k->rate, NULL) < 0)
		return -EBADMSG;
	r = table_room(x);
	if (r < 0)
		return r;
	memcpy(k->key.hash, row->hash, 32);
	table_add(x, &k->key, k);
	if (k->old_until_ns > clock_real_ns() && table_room(x) == 0) {
		memcpy(k->old_key.hash, row->old_hash, 32);
		table_add(x, &k->old_key, k);
	}
	link_token(x, k);
	(void)TAKE_PTR(k);
	return 0;
}

int token_load(struct access *x, struct err *e)
{
	struct err why = { 0 };
	int r = tokens_each(x->db, load_one, x, &why);

	if (r < 0 && why.msg[0]) {
		if (e)
			*e = why;
		return r;
	}
	return r < 0 ? err_sys(e, ERR_INTERNAL, r, "load the tokens") : 0;
}

void token_free_all(struct access *x)
{
	struct token *k;

	while ((k = x->tokens)) {
		x->tokens = k->next;
		free(k);
	}
}

struct token *token_first(struct access *x)
{
	return x->tokens;
}

struct token *token_find(struct access *x, const char *id)
{
	struct token *k = x->tokens;

	while (k && strcmp(k->id, id))
		k = k->next;
	return k;
}

static void note(struct access *x, const char *kind, const struct token *k, const struct audit_rec *who)
{
	struct json *j = access_note(x, kind, who);

	jout_str(j, "id", k->id);
	jout_str(j, "of", k->tenant->id);
	jout_str(j, "name", k->name);
	jout_str(j, "scope", scope_name(k->scope));
	if (k->expires_ns) {
		char iso[32];

		clock_iso(k->expires_ns, iso);
		jout_str(j, "expires_at", iso);
	}
	access_note_rate(j, &k->rate);
	audit_end(x->audit, NULL);
}

static int put(struct access *x, const struct token *k, const uint8_t hash[32], const uint8_t *old_hash,
	       uint64_t old_until_ns, struct err *e)
{
	struct token_row row = {
		.id = k->id,
		.tenant = k->tenant->id,
		.name = k->name,
		.old_until_ns = old_until_ns,
		.scope = k->scope,
		.created_ns = k->created_ns,
		.expires_ns = k->expires_ns,
		.rate_points = k->rate.points,
		.rate_window_ms = k->rate.window_ms,
		.rate_block_ms = k->rate.block_ms,
	};

	memcpy(row.hash, hash, 32);
	if (old_hash)
		memcpy(row.old_hash, old_hash, 32);
	return tokens_put(x->db, &row, e);
}

static int check_token_name(const char *name, struct err *e)
{
	size_t n = strlen(name);

	if (n > TOKEN_NAME_MAX)
		return err_set(e, ERR_INVALID, -E2BIG, "a token's name must be at most %d bytes", TOKEN_NAME_MAX);
	for (size_t i = 0; i < n; i++) {
		if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f)
			return err_set(e, ERR_INVALID, -EINVAL, "a token's name must not contain control characters");
	}
	return 0;
}

static int add(struct access *x, struct tenant *t, const char *name, enum scope scope, uint64_t expires_ns,
	       const struct rate_rule *rate, const char *text, const struct audit_rec *who, struct token **ret,
	       struct err *e)
{
	AUTO_FREE struct token *k = calloc(1, sizeof(*k));
	int r;

	if (!k)
		return err_sys(e, ERR_EXHAUSTED, -ENOMEM, "make a token");
	if (scope < SCOPE_READ || scope > SCOPE_ADMIN)
		return err_set(e, ERR_INVALID, -EINVAL, "a token needs a scope");
	r = check_token_name(name ? name : "", e);
	if (r < 0)
		return r;
	if (rate && (r = rate_check(rate, e)) < 0)
		return r;
	r = id_new(k->id, sizeof(k->id));
	r = r < 0 ? r : table_room(x);
	if (r < 0)
		return err_sys(e, ERR_EXHAUSTED, r, "make a token");
	snprintf(k->name, sizeof(k->name), "%s", name ? name : "");
	k->tenant = t;
	k->scope = scope;
	k->created_ns = clock_real_ns();
	k->expires_ns = expires_ns;
	if (rate)
		k->rate = *rate;
	token_text_hash(text, k->key.hash);
	r = put(x, k, k->key.hash, NULL, 0, e);
	if (r < 0)
		return r;
	note(x, "token.create", k, who);
	table_add(x, &k->key, k);
	link_token(x, k);
	if (ret)
		*ret = k;
	(void)TAKE_PTR(k);
	return 0;
}

int token_add(struct access *x, struct tenant *t, const char *name, enum scope scope, uint64_t expires_ns,
	      const struct rate_rule *rate, const struct audit_rec *who, char text[TOKEN_TEXT_MAX], struct token **ret,
	      struct err *e)
{
	char secret[TOKEN_TEXT_MAX];
	int r = token_text_new(TOKEN_PREFIX, secret, e);

	if (r < 0)
		return r;
	r = add(x, t, name, scope, expires_ns, rate, secret, who, ret, e);
	if (r == 0)
		memcpy(text, secret, sizeof(secret));
	OPENSSL_cleanse(secret, sizeof(secret));
	return r;
}

int token_add_known(struct access *x, struct tenant *t, const char *name, enum scope scope, const char *text,
		    const struct audit_rec *who, struct err *e)
{
	const struct token_key *known;
	uint8_t hash[32];
	size_t n = 0;

	while (n <= KNOWN_MAX && text[n] > ' ' && text[n] < 0x7f)
		n++;
	if (n < KNOWN_MIN || n > KNOWN_MAX || text[n])
		return err_set(e, ERR_INVALID, -EINVAL, "a token must have %d to %d printable characters and no spaces",
			       KNOWN_MIN, KNOWN_MAX);
	token_text_hash(text, hash);
	known = table_find(x, hash, 32);
	if (!known)
		return add(x, t, name, scope, 0, NULL, text, who, NULL, e);
	if (known->token->tenant == t && known->token->scope == scope && known == &known->token->key)
		return 0;
	return err_set(e, WHY_NAME_TAKEN, -EEXIST, "this token already exists, as %s of tenant '%s'",
		       scope_name(known->token->scope), known->token->tenant->id);
}

int token_rotate(struct access *x, struct token *k, uint64_t grace_ms, const struct audit_rec *who,
		 char text[TOKEN_TEXT_MAX], struct err *e)
{
	uint64_t now = clock_real_ns(), until = 0;
	char secret[TOKEN_TEXT_MAX];
	uint8_t old[32], hash[32];
	int r;

	if (grace_ms > RATE_MS_MAX)
		return err_set(e, ERR_INVALID, -ERANGE, "the grace period must be at most 31 days");
	r = table_room(x);
	if (r < 0)
		return err_sys(e, ERR_EXHAUSTED, r, "rotate a token");
	r = token_text_new(TOKEN_PREFIX, secret, e);
	if (r < 0)
		return r;
	if (grace_ms)
		until = now + grace_ms * 1000000;
	token_text_hash(secret, hash);
	memcpy(old, k->key.hash, 32);
	r = put(x, k, hash, until ? old : NULL, until, e);
	if (r == 0) {
		note(x, "token.rotate", k, who);
		table_remove(x, &k->key);
		table_remove(x, &k->old_key);
		memcpy(k->key.hash, hash, 32);
		table_add(x, &k->key, k);
		k->old_until_ns = until;
		if (until) {
			memcpy(k->old_key.hash, old, 32);
			table_add(x, &k->old_key, k);
		}
		memcpy(text, secret, sizeof(secret));
	}
	OPENSSL_cleanse(secret, sizeof(secret));
	return r;
}

int token_remove(struct access *x, struct token *k, const struct audit_rec *who, struct err *e)
{
	int r = tokens_delete(x->db, k->id, e);

	if (r < 0)
		return r;
	note(x, "token.revoke", k, who);
	drop(x, k);
	return 0;
}

void token_drop_all(struct access *x, const struct tenant *t, const struct audit_rec *who)
{
	/*
	 * The request's own record has the tenant. @who may point into a token, so all is logged before any is
	 * freed.
	 */
	struct audit_rec of = who ? *who : (struct audit_rec){ 0 };
	struct token *next;

	of.request_id = NULL;
	for (struct token *k = x->tokens; k; k = k->next) {
		if (k->tenant == t)
			note(x, "token.revoke", k, &of);
	}
	for (struct token *k = x->tokens; k; k = next) {
		next = k->next;
		if (k->tenant == t)
			drop(x, k);
	}
}

static int charge(struct token *k, unsigned *ret_retry_s, struct err *e)
{
	const unsigned wait = rate_take(k->rate.points ? &k->rate : &k->tenant->rate, &k->bucket, clock_mono_ns());

	if (!wait)
		return 0;
	*ret_retry_s = wait;
	err_set(e, WHY_RATE, -EAGAIN, "too many calls with this token");
	err_remedy(e, "try again in %u s", wait);
	return -EAGAIN;
}

int token_check(struct access *x, const char *text, struct token **ret, struct token_mark *ret_mark,
		unsigned *ret_retry_s, struct err *e)
{
	uint64_t now = clock_real_ns();
	struct token_key *key = NULL;
	struct token *k;
	uint8_t hash[32];

	if (strnlen(text, KNOWN_MAX + 1) <= KNOWN_MAX) {
		token_text_hash(text, hash);
		key = table_find(x, hash, 32);
	}
	k = key ? key->token : NULL;
	if (k && key == &k->old_key && now >= k->old_until_ns) {
		table_remove(x, key);
		k = NULL;
	}
	if (!k) {
		err_set(e, WHY_TOKEN_INVALID, -EACCES, "unknown token");
		err_remedy(e, "as root on the daemon's host, `cloche token create` makes one");
		return -EACCES;
	}
	if (k->expires_ns && now >= k->expires_ns)
		return err_set(e, WHY_TOKEN_EXPIRED, -EACCES, "the token has expired");
	*ret = k;
	memcpy(ret_mark->hash, hash, sizeof(ret_mark->hash));
	return charge(k, ret_retry_s, e);
}

int token_more(struct access *x, const struct token_mark *m, unsigned *ret_retry_s, struct err *e)
{
	static const struct token_mark none;
	const struct token_key *key;

	if (!memcmp(m, &none, sizeof(none)))
		return 0;
	if (!token_still(x, m))
		return err_set(e, WHY_TOKEN_INVALID, -EACCES, "the token is no longer valid");
	key = table_find(x, m->hash, sizeof(m->hash));
	return charge(key->token, ret_retry_s, e);
}

bool token_still(struct access *x, const struct token_mark *m)
{
	static const struct token_mark none;
	uint64_t now = clock_real_ns();
	const struct token_key *key;

	if (!memcmp(m, &none, sizeof(none)))
		return true;
	key = table_find(x, m->hash, sizeof(m->hash));
	if (!key || (key == &key->token->old_key && now >= key->token->old_until_ns))
		return false;
	return !key->token->expires_ns || now < key->token->expires_ns;
}

struct token *token_next(const struct token *k)
{
	return k->next;
}

struct token_view token_view(const struct token *k)
{
	return (struct token_view){
		.id = k->id,
		.name = k->name,
		.tenant = k->tenant,
		.scope = k->scope,
		.created_ns = k->created_ns,
		.expires_ns = k->expires_ns,
		.old_until_ns = k->old_until_ns,
		.rate = k->rate,
	};
}
