#include "service/access/internal.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/test.h"

#include <openssl/sha.h>
#include <unistd.h>

static char folder[64], log_path[96], db_path[96];
static struct db *db;
static struct audit *audit;
static struct access *access_;
static struct token_mark mark; /* of the text that was checked last */
static const struct audit_rec me = {
	.kind = "ignored", .tenant = "default", .token = "tok", .request_id = "req-1", .sandbox = "no"
};

static void load(void)
{
	struct err e = { 0 };

	if (db_open(db_path, &db, &e) < 0 || audit_open(log_path, &audit, &e) < 0 ||
	    access_new(db, audit, &access_, &e) < 0 || db_commit(db, &e) < 0) {
		printf("# %s\n", e.msg);
		abort();
	}
}

static void unload(void)
{
	struct err e;

	if (db_commit(db, &e) < 0)
		abort();
	access_free(access_);
	audit_close(audit);
	db_close(db);
}

static void begin(void)
{
	snprintf(folder, sizeof(folder), "/tmp/cloche-access-XXXXXX");
	if (!mkdtemp(folder))
		abort();
	snprintf(log_path, sizeof(log_path), "%s/audit.log", folder);
	snprintf(db_path, sizeof(db_path), "%s/state.db", folder);
	load();
}

static void again(void)
{
	unload();
	load();
}

static void end(void)
{
	unload();
	unlink(log_path);
	unlink(db_path);
	rmdir(folder);
}

static struct tenant *home(void)
{
	return tenant_find(access_, TENANT_DEFAULT);
}

struct records {
	unsigned n, with_request;
	char last[1000];
};

static int see(void *arg, uint64_t seq, const char *line, size_t len)
{
	struct records *r = arg;

	(void)seq;
	r->n++;
	snprintf(r->last, sizeof(r->last), "%.*s", (int)len, line);
	r->with_request += strstr(r->last, "\"request_id\":\"req-1\"") != NULL;
	return 0;
}

static struct records noted(const char *kind)
{
	struct records r = { 0 };
	struct err e;

	if (audit_read(audit, 0, 10000, &(struct audit_filter){ .kind = kind }, see, &r, NULL, &e) < 0)
		abort();
	return r;
}

static int check(const char *text, struct token **ret)
{
	unsigned retry = 0;
	struct err e;
	int r = token_check(access_, text, ret, &mark, &retry, &e);

	if (r < 0 && e.kind != ERR_UNAUTHORIZED && e.kind != ERR_RATE)
		abort();
	return r < 0 ? -(int)e.kind : 0;
}

TEST(a_new_store_has_the_default_tenant_and_no_token)
{
	begin();
	CHECK(home() && home() == tenant_first(access_) && !home()->next);
	CHECK_EQ(home()->number, 1);
	CHECK(!token_first(access_));
	again();
	CHECK_EQ(noted("tenant.create").n, 1); /* only the first time */
	end();
}

TEST(scopes_have_names_in_order)
{
	enum scope s;
	struct err e;

	for (s = SCOPE_READ; s <= SCOPE_ADMIN; s++) {
		enum scope got = SCOPE_NONE;

		CHECK_EQ(scope_parse(scope_name(s), &got, &e), 0);
		CHECK_EQ(got, s);
	}
	CHECK_EQ(scope_parse("none", &s, &e), -EINVAL);
	CHECK_EQ(scope_parse("", &s, &e), -EINVAL);
	CHECK_EQ(e.kind, ERR_INVALID);
	CHECK(SCOPE_READ < SCOPE_EXEC && SCOPE_EXEC < SCOPE_SANDBOX && SCOPE_SANDBOX < SCOPE_ADMIN);
}

TEST(tenants_are_kept_with_their_quotas_and_rates)
{
	const struct tenant_quota q = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 };
	const struct rate_rule r = { 6, 7, 8 };
	struct tenant *t = NULL;
	struct err e;

	begin();
	CHECK_EQ(tenant_add(access_, "team-1", &q, &r, &me, &t, &e), 0);
	CHECK_EQ(tenant_add(access_, "team-1", NULL, NULL, &me, &t, &e), -EEXIST);
	CHECK_EQ(e.kind, ERR_CONFLICT);
	again();
	t = tenant_find(access_, "team-1");
	CHECK(t && t->number == 2);
	CHECK(!memcmp(&t->quota, &q, sizeof(q)) && !memcmp(&t->rate, &r, sizeof(r)));
	CHECK_EQ(tenant_set(access_, t, &(struct tenant_quota){ .memory = 9 }, NULL, &me, &e), 0);
	CHECK_EQ(tenant_set(access_, t, NULL, &(struct rate_rule){ .points = 1 }, &me, &e), -EINVAL);
	again();
	t = tenant_find(access_, "team-1");
	CHECK_EQ(t->quota.memory, 9);
	CHECK_EQ(t->quota.sandboxes, 0);
	CHECK_EQ(t->rate.points, 6);
	CHECK_EQ(noted("tenant.update").n, 1);
	CHECK_CONTAINS(noted("tenant.update").last, "\"memory\":9");
	end();
}

TEST(bad_names_of_tenants_are_refused)
{
	static const char *const bad[] = { "",	  "-a",	 "_a",	     "A",   "a b",
					   "a/b", "a.b", "\xc3\xa9", "a\n", "a12345678901234567890123456789012" };
	struct err e;

	begin();
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		CHECK_EQ(tenant_add(access_, bad[i], NULL, NULL, &me, NULL, &e), -EINVAL);
		CHECK_EQ(e.kind, ERR_INVALID);
	}
	CHECK_EQ(tenant_add(access_, "a1234567890123456789012345678901", NULL, NULL, &me, NULL, &e), 0);
	CHECK_EQ(tenant_add(access_, "0-_", NULL, NULL, &me, NULL, &e), 0);
	end();
}

TEST(a_tenant_goes_with_its_tokens_but_not_with_its_sandboxes)
{
	const struct tenant_quota one = { .sandboxes = 1 };
	char text[TOKEN_TEXT_MAX], other[TOKEN_TEXT_MAX];
	struct audit_rec self = me;
	struct token *k = NULL;
	struct tenant *t = NULL;
	struct err e;

	begin();
	CHECK_EQ(tenant_add(access_, "team", NULL, NULL, &me, &t, &e), 0);
	CHECK_EQ(token_add(access_, t, "a", SCOPE_ADMIN, 0, NULL, NULL, text, &k, &e), 0);
	CHECK_EQ(token_add(access_, home(), "b", SCOPE_READ, 0, NULL, NULL, other, NULL, &e), 0);
	CHECK_EQ(tenant_take(t, &one, &e), 0);
	CHECK_EQ(tenant_remove(access_, t, &me, &e), -EBUSY);
	CHECK_EQ(e.kind, ERR_CONFLICT);
	tenant_give(t, &one);
	/* Removed by its own admin: the record is written before what it names is gone. */
	self.tenant = t->id;
	self.token = k->id;
	CHECK_EQ(tenant_remove(access_, t, &self, &e), 0);
	CHECK_EQ(tenant_remove(access_, home(), &me, &e), -EBUSY);
	CHECK_EQ(check(text, &k), -ERR_UNAUTHORIZED);
	CHECK_EQ(check(other, &k), 0);
	CHECK_EQ(noted("tenant.delete").with_request, 1);
	CHECK_EQ(noted("token.revoke").n, 1);
	CHECK_EQ(noted("token.revoke").with_request, 0); /* exactly one record carries it */
	again();
	CHECK(!tenant_find(access_, "team"));
	CHECK_EQ(check(text, &k), -ERR_UNAUTHORIZED);
	CHECK_EQ(tenant_add(access_, "next", NULL, NULL, &me, &t, &e), 0);
	CHECK_EQ(t->number, 3); /* 2 was used */
	CHECK_EQ(home()->next, t);
	end();
}

TEST(quotas_count_what_lives_and_say_what_is_full)
{
	const struct tenant_quota q = { .sandboxes = 2, .cpu_milli = 3000, .memory = 1000 };
	const struct tenant_quota want = { .sandboxes = 1, .cpu_milli = 1000, .memory = 400, .disk = UINT64_MAX / 2 };
	struct tenant *t = NULL;
	struct err e;

	begin();
	CHECK_EQ(tenant_add(access_, "team", &q, NULL, &me, &t, &e), 0);
	CHECK_EQ(tenant_take(t, &want, &e), 0);
	CHECK_EQ(tenant_take(t, &want, &e), 0);
	CHECK_EQ(tenant_take(t, &want, &e), -EDQUOT);
	CHECK_EQ(e.kind, ERR_QUOTA);
	CHECK_CONTAINS(e.msg, "'team': its quota of sandboxes is 2; 2 in use, 1 more");
	tenant_give(t, &want);
	CHECK_EQ(tenant_take(t, &(struct tenant_quota){ .memory = 601 }, &e), -EDQUOT);
	CHECK_CONTAINS(e.msg, "memory is 1000 bytes; 400 in use, 601 more");
	CHECK_EQ(t->used.memory, 400); /* refused: nothing is counted */
	CHECK_EQ(tenant_take(t, &(struct tenant_quota){ .memory = 600 }, &e), 0);
	CHECK_EQ(tenant_take(t, &(struct tenant_quota){ .memory = UINT64_MAX }, &e), -EDQUOT);
	/* no quota, but no overflow either */
	CHECK_EQ(tenant_take(t, &(struct tenant_quota){ .disk = UINT64_MAX }, &e), -EDQUOT);
	/*
	 * What is found after a restart is counted even past a quota; then nothing more is given, but nothing is asked
	 * back.
	 */
	tenant_force(t, &(struct tenant_quota){ .sandboxes = 5 });
	CHECK_EQ(t->used.sandboxes, 6);
	CHECK_EQ(tenant_take(t, &(struct tenant_quota){ .sandboxes = 1 }, &e), -EDQUOT);
	CHECK_EQ(tenant_take(t, &(struct tenant_quota){ .execs = 1 }, &e), 0);
	end();
}

TEST(a_new_token_is_good_and_only_its_hash_is_kept)
{
	char text[TOKEN_TEXT_MAX], wrong[TOKEN_TEXT_MAX], long_text[300];
	struct token *k = NULL, *got = NULL;
	struct err e;

	begin();
	CHECK_EQ(token_add(access_, home(), "ci", SCOPE_EXEC, 0, NULL, &me, text, &k, &e), 0);
	CHECK_EQ(strlen(text), 50);
	CHECK_EQ(strncmp(text, TOKEN_PREFIX, 7), 0);
	CHECK_EQ(strspn(text + 7, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"), 43);
	CHECK_EQ(check(text, &got), 0);
	CHECK(got == k && got->tenant == home() && got->scope == SCOPE_EXEC);
	CHECK_EQ(token_find(access_, k->id), k);
	memcpy(wrong, text, sizeof(wrong));
	wrong[49] = wrong[49] == 'A' ? 'B' : 'A';
	CHECK_EQ(check(wrong, &got), -ERR_UNAUTHORIZED);
	CHECK_EQ(check("", &got), -ERR_UNAUTHORIZED);
	memset(long_text, 'a', sizeof(long_text) - 1);
	long_text[sizeof(long_text) - 1] = '\0';
	CHECK_EQ(check(long_text, &got), -ERR_UNAUTHORIZED);
	CHECK_EQ(noted("token.create").with_request, 1);
	CHECK(!strstr(noted("token.create").last, text + 7));
	again();
	CHECK_EQ(check(text, &got), 0);
	CHECK_STR(got->name, "ci");
	/* Nowhere in the files. */
	unload();
	for (unsigned i = 0; i < 2; i++) {
		AUTO_FREE char *bytes = malloc(1 << 20);
		FILE *f = fopen(i ? log_path : db_path, "re");
		size_t n = fread(bytes, 1, 1 << 20, f);

		fclose(f);
		CHECK(n > 100);
		CHECK(!memmem(bytes, n, text + 7, 43));
	}
	load();
	end();
}

TEST(tokens_of_other_shapes_can_be_known_beforehand)
{
	static const char noid[] = "noid_tok_0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
	static const char *const bad[] = { "", "fifteen-letters", "with a space in it", "with\ttab-in-between",
					   "not-\xc3\xa9-ascii-at-all" };
	char big[200];
	struct token *k = NULL;
	struct err e;

	begin();
	for (unsigned i = 0; i < 3; i++) {
		CHECK_EQ(token_add_known(access_, home(), "first", SCOPE_ADMIN, noid, NULL, &e), 0);
		CHECK_EQ(check(noid, &k), 0);
		CHECK_EQ(k->scope, SCOPE_ADMIN);
		again();
	}
	CHECK_EQ(noted("token.create").n, 1);
	CHECK_EQ(token_add_known(access_, home(), "first", SCOPE_READ, noid, NULL, &e), -EEXIST);
	CHECK_EQ(e.kind, ERR_CONFLICT);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		CHECK_EQ(token_add_known(access_, home(), NULL, SCOPE_READ, bad[i], NULL, &e), -EINVAL);
	memset(big, 'x', sizeof(big));
	big[129] = '\0';
	CHECK_EQ(token_add_known(access_, home(), NULL, SCOPE_READ, big, NULL, &e), -EINVAL);
	big[128] = '\0';
	CHECK_EQ(token_add_known(access_, home(), NULL, SCOPE_READ, big, NULL, &e), 0);
	CHECK_EQ(check(big, &k), 0);
	end();
}

TEST(a_rotated_token_has_two_texts_for_a_while)
{
	char first[TOKEN_TEXT_MAX], second[TOKEN_TEXT_MAX], third[TOKEN_TEXT_MAX], fourth[TOKEN_TEXT_MAX];
	struct token *k = NULL, *got = NULL;
	struct err e;

	begin();
	CHECK_EQ(token_add(access_, home(), NULL, SCOPE_READ, 0, NULL, &me, first, &k, &e), 0);
	CHECK_EQ(token_rotate(access_, k, 3600 * 1000, &me, second, &e), 0);
	CHECK(strcmp(first, second));
	CHECK_EQ(check(first, &got), 0);
	CHECK_EQ(check(second, &got), 0);
	again();
	CHECK_EQ(check(first, &got), 0);
	CHECK_EQ(check(second, &got), 0);
	/* A second rotation ends the first text at once. */
	CHECK_EQ(token_rotate(access_, got, 200, &me, third, &e), 0);
	CHECK_EQ(check(first, &got), -ERR_UNAUTHORIZED);
	CHECK_EQ(check(second, &got), 0);
	CHECK_EQ(check(third, &got), 0);
	CHECK_EQ(check(second, &got), 0);
	CHECK(token_still(access_, &mark));
	usleep(220 * 1000);
	CHECK(!token_still(access_, &mark));
	CHECK_EQ(check(second, &got), -ERR_UNAUTHORIZED);
	CHECK(!token_still(access_, &mark));
	CHECK_EQ(check(third, &got), 0);
	again();
	CHECK_EQ(check(second, &got), -ERR_UNAUTHORIZED);
	CHECK_EQ(check(third, &got), 0);
	/* Without grace. */
	CHECK_EQ(token_rotate(access_, got, 0, &me, fourth, &e), 0);
	CHECK_EQ(check(third, &k), -ERR_UNAUTHORIZED);
	CHECK_EQ(check(fourth, &k), 0);
	CHECK_EQ(token_rotate(access_, got, UINT64_MAX, &me, fourth, &e), -ERANGE);
	CHECK_EQ(noted("token.rotate").with_request, 3);
	end();
}

TEST(expired_and_revoked_tokens_are_refused)
{
	char soon[TOKEN_TEXT_MAX], text[TOKEN_TEXT_MAX];
	struct token *k = NULL, *got = NULL;
	struct err e;

	begin();
	CHECK_EQ(token_add(access_, home(), NULL, SCOPE_READ, clock_real_ns() + 50000000, NULL, &me, soon, NULL, &e),
		 0);
	CHECK_EQ(token_add(access_, home(), NULL, SCOPE_READ, 0, NULL, &me, text, &k, &e), 0);
	CHECK_EQ(check(soon, &got), 0);
	usleep(70 * 1000);
	CHECK_EQ(check(soon, &got), -ERR_UNAUTHORIZED);
	CHECK_EQ(check(text, &got), 0);
	CHECK_EQ(token_remove(access_, k, &me, &e), 0);
	CHECK_EQ(check(text, &got), -ERR_UNAUTHORIZED);
	CHECK_EQ(noted("token.revoke").with_request, 1);
	again();
	CHECK_EQ(check(text, &got), -ERR_UNAUTHORIZED);
	CHECK(token_first(access_) && !token_first(access_)->next);
	end();
}

TEST(bad_tokens_are_not_made)
{
	char text[TOKEN_TEXT_MAX] = "untouched", name[70];
	struct token *k = NULL;
	struct err e;

	begin();
	memset(name, 'n', sizeof(name));
	name[65] = '\0';
	CHECK_EQ(token_add(access_, home(), name, SCOPE_READ, 0, NULL, &me, text, &k, &e), -E2BIG);
	CHECK_EQ(token_add(access_, home(), "a\nb", SCOPE_READ, 0, NULL, &me, text, &k, &e), -EINVAL);
	CHECK_EQ(token_add(access_, home(), NULL, SCOPE_NONE, 0, NULL, &me, text, &k, &e), -EINVAL);
	CHECK_EQ(token_add(access_, home(), NULL, SCOPE_READ, 0, &(struct rate_rule){ .points = 1 }, &me, text, &k, &e),
		 -EINVAL);
	CHECK_STR(text, "untouched");
	CHECK(!k && !token_first(access_));
	CHECK_EQ(noted("token.create").n, 0);
	name[64] = '\0';
	CHECK_EQ(token_add(access_, home(), name, SCOPE_READ, 0, NULL, &me, text, &k, &e), 0);
	end();
}

TEST(a_token_has_its_own_rate_or_its_tenants)
{
	const struct rate_rule three = { .points = 3, .window_ms = 60000, .block_ms = 90500 };
	char mine[TOKEN_TEXT_MAX], theirs[TOKEN_TEXT_MAX];
	struct token *k = NULL, *got = NULL;
	unsigned retry = 0;
	struct err e;

	begin();
	CHECK_EQ(tenant_set(access_, home(), NULL, &(struct rate_rule){ .points = 1, .window_ms = 60000 }, &me, &e), 0);
	CHECK_EQ(token_add(access_, home(), NULL, SCOPE_READ, 0, &three, &me, mine, &k, &e), 0);
	CHECK_EQ(token_add(access_, home(), NULL, SCOPE_READ, 0, NULL, &me, theirs, NULL, &e), 0);
	again();
	for (unsigned i = 0; i < 3; i++)
		CHECK_EQ(check(mine, &got), 0);
	CHECK_EQ(token_check(access_, mine, &got, &mark, &retry, &e), -EAGAIN);
	CHECK_EQ(e.kind, ERR_RATE);
	CHECK_EQ(retry, 91);
	CHECK(got); /* the token, for the log */
	CHECK_EQ(check(theirs, &got), 0);
	CHECK_EQ(token_check(access_, theirs, &got, &mark, &retry, &e), -EAGAIN);
	CHECK_EQ(retry, 60);
	end();
}

TEST(many_tokens_are_found_fast)
{
	static char texts[5000][TOKEN_TEXT_MAX];
	struct token *k = NULL, *first = NULL;
	const size_t n = ARRAY_LEN(texts);
	uint64_t start;
	struct err e;

	begin();
	for (size_t i = 0; i < ARRAY_LEN(texts); i++)
		CHECK_EQ(token_add(access_, home(), NULL, SCOPE_READ, 0, NULL, &me, texts[i], &k, &e), 0);
	start = clock_mono_ns();
	for (size_t i = 0; i < ARRAY_LEN(texts); i++)
		CHECK_EQ(check(texts[i], &k), 0);
	printf("# %.2f us per check of a token among %zu\n", (double)(clock_mono_ns() - start) / 1e3 / (double)n, n);
	/* Every second one goes; the others stay. */
	for (size_t i = 0; i < ARRAY_LEN(texts); i += 2) {
		CHECK_EQ(check(texts[i], &first), 0);
		CHECK_EQ(token_remove(access_, first, &me, &e), 0);
	}
	for (size_t i = 0; i < ARRAY_LEN(texts); i++)
		CHECK_EQ(check(texts[i], &k), i % 2 ? 0 : -ERR_UNAUTHORIZED);
	again();
	for (size_t i = 0; i < ARRAY_LEN(texts); i++)
		CHECK_EQ(check(texts[i], &k), i % 2 ? 0 : -ERR_UNAUTHORIZED);
	end();
}
