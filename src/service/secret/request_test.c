#include "service/secret/request.h"
#include "base/base.h"
#include "base/buf.h"
#include "base/test.h"

static int parse(const char *text, bool admin, struct secret_uses *u, struct err *e)
{
	json_t *v = json_loads(text, JSON_DECODE_ANY, NULL);
	int r = secret_uses_parse(v, admin, u, e);

	json_decref(v);
	return r;
}

TEST(what_was_read_is_written_the_same)
{
	static const char text[] =
		"[{\"name\":\"A\",\"as\":\"file\",\"path\":\"/etc/a\"},{\"name\":\"A\",\"as\":\"env\",\"env\":\"B\"},"
		"{\"name\":\"C\",\"as\":\"header\",\"header\":\"Authorization\",\"format\":\"Bearer {}\",\"to\":\"api.example.com:443\"},"
		"{\"name\":\"C\",\"as\":\"basic\",\"user\":\"me\",\"plain\":true,\"to\":\"git.example.com:80\"},"
		"{\"name\":\"C\",\"as\":\"query\",\"parameter\":\"key\",\"to\":\"api.example.com:8443\"},{\"name\":\"D\",\"as\":\"mask\"}]";
	struct secret_uses u = { 0 }, v = { 0 };
	AUTO(buf_done) struct buf out = BUF_INIT(64 * KIB);
	struct json j = JSON_INIT(&out);
	struct err e = { 0 };

	CHECK_EQ(parse(text, true, &u, &e), 0);
	CHECK_EQ(u.n, 6);
	secret_uses_write(&u, NULL, &j);
	CHECK_EQ(jout_done(&j), 0);
	CHECK_STR(buf_str(&out), text);
	CHECK_EQ(parse(buf_str(&out), true, &v, &e), 0);
	CHECK(secret_uses_same(&u, &v));
	CHECK(secret_uses_have(&u, "D") && !secret_uses_have(&u, "E") && secret_uses_inject(&u));
	v.use[2].port = 444;
	CHECK(!secret_uses_same(&u, &v));
	secret_uses_done(&u);
	secret_uses_done(&v);
}

TEST(what_is_left_out_has_its_usual_value)
{
	struct secret_uses u = { 0 };
	struct err e = { 0 };

	CHECK_EQ(
		parse("[{\"name\":\"KEY\",\"as\":\"env\"},{\"name\":\"KEY\",\"as\":\"header\",\"to\":\"API.example.com\"},"
		      "{\"name\":\"KEY\",\"as\":\"header\",\"header\":\"X-Key\",\"to\":\"api.example.com\"}]",
		      false, &u, &e),
		0);
	CHECK_STR(u.use[0].field, "KEY");
	CHECK_STR(u.use[1].host, "api.example.com");
	CHECK_STR(u.use[1].format, "Bearer {}");
	CHECK_STR(u.use[2].format, "{}");
	CHECK_EQ(u.use[1].port, 443);
	secret_uses_done(&u);
	CHECK_EQ(parse("\"drop\"", false, &u, &e), 0);
	CHECK_EQ(u.n, 0);
	CHECK_EQ(parse("[]", false, &u, &e), 0);
	CHECK_EQ(secret_uses_parse(NULL, false, &u, &e), 0);
}

TEST(two_in_one_place_and_plain_ones_are_refused)
{
	static const char *const bad[] = {
		"[{\"name\":\"A\",\"as\":\"file\"},{\"name\":\"A\",\"as\":\"file\"}]",
		"[{\"name\":\"A\",\"as\":\"env\",\"env\":\"X\"},{\"name\":\"B\",\"as\":\"env\",\"env\":\"X\"}]",
		"[{\"name\":\"A\",\"as\":\"file\",\"path\":\"/x\"},{\"name\":\"B\",\"as\":\"file\",\"path\":\"/x\"}]",
		"[{\"name\":\"A\",\"as\":\"header\",\"to\":\"a.example.com\"},{\"name\":\"B\",\"as\":\"basic\",\"user\":\"u\",\"to\":\"a.example.com\"}]",
		"[{\"name\":\"A\",\"as\":\"header\",\"to\":\"a.example.com\",\"plain\":true}]",
		"[{\"name\":\"A\",\"as\":\"header\",\"to\":\"127.0.0.1\"}]",
		"[{\"name\":\"A\",\"as\":\"header\",\"to\":\"a.example.com\",\"header\":\"transfer-encoding\"}]",
		"[{\"name\":\"A\",\"as\":\"query\",\"parameter\":\"a&b\",\"to\":\"a.example.com\"}]",
		"{}",
		"\"all\"",
		"[1]",
	};
	struct secret_uses u = { 0 };
	struct err e = { 0 };

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		CHECK_EQ(parse(bad[i], false, &u, &e) < 0, true);
		CHECK_EQ(e.kind, ERR_INVALID);
		CHECK(!u.use && !u.n);
	}
}

TEST(what_a_sandbox_had_before_is_masked_after)
{
	json_t *before = json_loads("[{\"name\":\"A\",\"as\":\"env\"},{\"name\":\"B\",\"as\":\"file\"}]", 0, NULL);
	json_t *other = json_loads("[{\"name\":\"B\",\"as\":\"env\"}]", 0, NULL), *drop = json_string("drop");
	json_t *kept = secret_uses_after(before, NULL), *some = secret_uses_after(before, other),
	       *none = secret_uses_after(before, drop);
	char *text;

	CHECK(json_equal(kept, before));
	text = json_dumps(some, JSON_COMPACT);
	CHECK_STR(text, "[{\"name\":\"B\",\"as\":\"env\"},{\"name\":\"A\",\"as\":\"mask\"}]");
	free(text);
	text = json_dumps(none, JSON_COMPACT);
	CHECK_STR(text, "[{\"name\":\"A\",\"as\":\"mask\"},{\"name\":\"B\",\"as\":\"mask\"}]");
	free(text);
	json_decref(before);
	json_decref(other);
	json_decref(drop);
	json_decref(kept);
	json_decref(some);
	json_decref(none);
}
