#include "service/network/request.h"
#include "base/base.h"
#include "base/test.h"

static struct net_conf c;
static struct err e;
static struct net_request *w;

static void conf(const char *const *lines)
{
	memset(&c, 0, sizeof(c));
	for (; lines && *lines; lines += 2)
		if (net_conf_add(&c, lines[0], lines[1], &e) < 0)
			printf("# %s: %s\n", lines[1], e.msg);
}

static int read_text(const char *text)
{
	json_t *v = json_loads(text, JSON_DECODE_ANY, NULL);
	int r;

	e = (struct err){ 0 };
	net_request_free(w);
	w = NULL;
	r = v ? net_request_parse(v, &w, &e) : -ENOEXEC;
	json_decref(v);
	return r;
}

static const char *shown(void)
{
	static char text[4096];
	AUTO(buf_done) struct buf b = BUF_INIT(sizeof(text));
	struct json j = JSON_INIT(&b);

	net_request_write(w, NULL, &j);
	snprintf(text, sizeof(text), "%s", jout_done(&j) < 0 ? "?" : buf_str(&b));
	return text;
}

TEST(modes_are_words_or_objects_and_a_list_alone_is_allow)
{
	CHECK_EQ(read_text("\"none\""), 0);
	CHECK(!w);
	CHECK_STR(shown(), "{\"mode\":\"none\"}");
	CHECK_EQ(read_text("\"open\""), 0);
	CHECK_EQ(w->mode, EGRESS_OPEN);
	CHECK_EQ(read_text("{\"mode\":\"observe\"}"), 0);
	CHECK_STR(shown(), "{\"mode\":\"observe\"}");
	CHECK_EQ(read_text("{\"allow\":[\"A.Example\",\"*.b.example:443\",\"@packages\",\"a.example\"]}"), 0);
	CHECK_STR(shown(), "{\"mode\":\"allow\",\"allow\":[\"a.example\",\"*.b.example:443\",\"@packages\"]}");
	CHECK_EQ(read_text("{\"allow\":[]}"), 0);
	CHECK_EQ(w->mode, EGRESS_ALLOW);
	CHECK_EQ(
		read_text(
			"{\"mode\":\"none\",\"tree_budget\":{\"bytes_in\":\"1M\"},\"budget\":{\"bandwidth\":5,\"requests_per_minute\":3}}"),
		0);
	CHECK_STR(shown(), "{\"mode\":\"none\",\"budget\":{\"bandwidth\":5,\"requests_per_minute\":3},"
			   "\"tree_budget\":{\"bytes_in\":1048576}}");
}

TEST(what_is_written_is_read_back_as_the_same)
{
	struct net_request *first;
	AUTO_FREE char *text = NULL;

	CHECK_EQ(
		read_text(
			"{\"allow\":[\"a.example\",\"10.1.0.0/16:5432\"],\"budget\":{\"bytes_out\":\"10M\",\"connections\":7,"
			"\"concurrent\":3,\"dns\":9},\"tree_budget\":{\"bytes_in\":1}}"),
		0);
	first = TAKE_PTR(w);
	w = net_request_copy(first);
	CHECK(net_request_same(first, w));
	text = strdup(shown());
	CHECK_EQ(read_text(text), 0);
	CHECK(net_request_same(first, w));
	w->tree_budget.bytes_in = 2;
	CHECK(!net_request_same(first, w) && !net_request_same(first, NULL) && net_request_same(NULL, NULL));
	net_request_free(first);
}

TEST(nonsense_is_refused)
{
	static const char *const bad[] = { "7",
					   "[]",
					   "\"some\"",
					   "\"allow\"",
					   "{}",
					   "{\"mode\":\"some\"}",
					   "{\"mode\":7}",
					   "{\"allow\":\"a.example\"}",
					   "{\"allow\":[7]}",
					   "{\"allow\":[\"\"]}",
					   "{\"allow\":[\"@\"]}",
					   "{\"allow\":[\"127.1\"]}",
					   "{\"allow\":[\"a.example:0\"]}",
					   "{\"mode\":\"open\",\"allow\":[\"a.example\"]}",
					   "{\"mode\":\"open\",\"more\":1}",
					   "{\"mode\":\"open\",\"budget\":{\"bytes\":1}}",
					   "{\"mode\":\"open\",\"budget\":{\"bytes_out\":-1}}" };

	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		if (read_text(bad[i]) >= 0 || e.kind != ERR_INVALID || !e.msg[0])
			TEST_FAIL("%s was taken", bad[i]);
}

TEST(only_what_the_administrator_lets_be_is_let)
{
	static const char *const lines[] = {
		"network_open",	       "no", "network_set", "packages: p.example, *.q.example:8443", "network_private",
		"10.1.0.0/16:5432,80", NULL
	};
	static const struct {
		const char *text;
		int r;
		enum err_kind kind;
	} some[] = {
		{ "\"none\"", 0, 0 },
		{ "\"open\"", -EPERM, ERR_DENIED },
		{ "\"observe\"", -EPERM, ERR_DENIED },
		{ "{\"allow\":[\"@packages\",\"a.example\"]}", 0, 0 },
		{ "{\"allow\":[\"@other\"]}", -ENOENT, ERR_NOT_FOUND },
		{ "{\"allow\":[\"8.8.8.8:53\"]}", 0, 0 },
		{ "{\"allow\":[\"10.1.2.3:5432\"]}", 0, 0 },
		{ "{\"allow\":[\"10.1.2.3:80\",\"10.1.0.0/16:5432\"]}", 0, 0 },
		{ "{\"allow\":[\"10.1.2.3:5433\"]}", -EPERM, ERR_DENIED },
		{ "{\"allow\":[\"10.1.2.3:*\"]}", -EPERM, ERR_DENIED },
		{ "{\"allow\":[\"10.1.2.3\"]}", -EPERM, ERR_DENIED }, /* 443, too */
		{ "{\"allow\":[\"10.0.0.0/8:80\"]}", -EPERM, ERR_DENIED },
		{ "{\"allow\":[\"169.254.169.254:80\"]}", -EPERM, ERR_DENIED },
		{ "{\"allow\":[\"127.0.0.1:80\"]}", -EPERM, ERR_DENIED },
		{ "{\"allow\":[\"[fd00:ec2::254]:80\"]}", -EPERM, ERR_DENIED },
		{ "{\"allow\":[\"[::1]:80\"]}", -EPERM, ERR_DENIED },
		{ "{\"allow\":[\"localhost:8000\"]}", -EINVAL, ERR_INVALID },
		{ "{\"allow\":[\"localhost.example:8000\"]}", 0, 0 },
	};

	conf(lines);
	for (size_t i = 0; i < ARRAY_LEN(some); i++) {
		CHECK_EQ(read_text(some[i].text), 0);
		e = (struct err){ 0 };
		if (net_request_check(&c, w, &e) != some[i].r ||
		    (some[i].r && (e.kind != some[i].kind || !e.remedy[0])))
			TEST_FAIL("%s: %s", some[i].text, e.msg);
	}
	conf((const char *const[]){ "network_open", "no", "network_outer", "a.example", NULL });
	CHECK_EQ(read_text("\"observe\""), 0);
	CHECK_EQ(net_request_check(&c, w, &e), 0);
}

/* What was let be before the configuration changed is not let be after. */
TEST(a_policy_is_never_more_than_the_configuration_allows_now)
{
	struct egress_sandbox *b = calloc(1, sizeof(*b));

	CHECK(b);
	conf((const char *const[]){ "network_set", "s: p.example, q.example:1-5", "network_private", "10.0.0.1:80",
				    NULL });
	CHECK_EQ(read_text("{\"allow\":[\"a.example\",\"@s\",\"10.0.0.1:80\"],\"budget\":{\"dns\":4}}"), 0);
	CHECK(net_request_policy(&c, w, b));
	CHECK_EQ(b->mode, EGRESS_ALLOW);
	CHECK_EQ(b->rules, 4);
	CHECK_STR(b->rule[1], "p.example");
	CHECK_STR(b->rule[2], "q.example:1-5");
	CHECK_EQ(b->privates, 1);
	CHECK_EQ(b->budget.dns, 4);
	conf(NULL);
	CHECK(!net_request_policy(&c, w, b));
	CHECK_EQ(b->rules, 1);
	CHECK_STR(b->rule[0], "a.example");
	CHECK_EQ(b->privates, 0);
	CHECK_EQ(read_text("\"open\""), 0);
	CHECK(net_request_policy(&c, w, b) && b->mode == EGRESS_OPEN);
	conf((const char *const[]){ "network_open", "no", NULL });
	CHECK(!net_request_policy(&c, w, b) && b->mode == EGRESS_NONE);
	CHECK(net_request_policy(&c, NULL, b) && b->mode == EGRESS_NONE);
	free(b);
}

TEST(addresses_are_the_kernels_too_and_names_are_not)
{
	struct steer_rules r;
	char many[8192] = "{\"allow\":[";

	conf((const char *const[]){ "network_private", "10.0.0.0/8:*", NULL });
	CHECK_EQ(read_text("{\"allow\":[\"a.example\",\"10.1.0.0/16:5432,80-90\",\"[2a00::]/16:*\"]}"), 0);
	net_request_steer(&c, w, &r);
	CHECK_EQ(steer_check(&r, &e), 0);
	CHECK_EQ(r.mode, STEER_ALLOW);
	CHECK_EQ(r.n, 3);
	CHECK_EQ(r.rule[2].family, 6);
	CHECK_EQ(r.rule[2].first, 1);
	CHECK_EQ(r.rule[2].last, 65535);
	for (unsigned i = 0; i < 40; i++)
		snprintf(many + strlen(many), sizeof(many) - strlen(many), "%s\"9.9.9.%u:%u\"", i ? "," : "", i, i + 1);
	strncat(many, "]}", sizeof(many) - strlen(many) - 1);
	CHECK_EQ(read_text(many), 0);
	net_request_steer(&c, w, &r);
	CHECK_EQ(r.mode, STEER_OPEN); /* too many for it: egress alone decides */
	CHECK_EQ(r.n, 0);
	CHECK_EQ(steer_check(&r, &e), 0);
	net_request_steer(&c, NULL, &r);
	CHECK_EQ(r.mode, STEER_NONE);
}

TEST(whether_a_name_is_let_through_can_be_asked)
{
	conf((const char *const[]){ "network_set", "s: *.s.example:443", "network_outer", "o.example", NULL });
	CHECK_EQ(read_text("{\"allow\":[\"a.example:8443\",\"@s\"]}"), 0);
	CHECK(net_request_lets(&c, w, "a.example", 8443) && net_request_lets(&c, w, "x.s.example", 443));
	CHECK(!net_request_lets(&c, w, "a.example", 443) && !net_request_lets(&c, w, "s.example", 443));
	CHECK(!net_request_lets(&c, NULL, "a.example", 443));
	CHECK_EQ(read_text("\"observe\""), 0);
	CHECK(net_request_lets(&c, w, "o.example", 443) && !net_request_lets(&c, w, "a.example", 443));
	CHECK_EQ(read_text("\"open\""), 0);
	CHECK(net_request_lets(&c, w, "a.example", 1));
	net_request_free(TAKE_PTR(w));
}

TEST(lines_of_the_configuration_are_read_strictly)
{
	/* clang-format off */
	static const char *const bad[] = {
		"network_set",	    "packages",	      "network_set",	  ": a.example",     "network_set",	 "A b: a.example",
		"network_set",	    "p: a.example,,", "network_set",	  "p: no name",	     "network_private",	 "a.example",
		"network_private",  "10.0.0.0/33",    "network_hosts",	  "a.example",	     "network_hosts",	 "a.example b",
		"network_hosts",    "1.2.3.4 a.b",    "network_resolver", "a.example",	     "network_resolver", "1.2.3.4:0",
		"network_resolver", "[1.2.3.4]:53",   "network_resolver", "",		     "network_ca",	 "ca.pem",
		"network_open",	    "maybe",	      "network_outer",	  "*",		     "network_zoo",	 "1",
		"network_outer",    "@p",
	};
	/* clang-format on */
	static const char *const good[] = { "network_set",
					    "p: a.example, b.example:8443",
					    "network_set",
					    "p:*.c.example",
					    "network_hosts",
					    "A.example   10.0.0.1",
					    "network_hosts",
					    "a.example ::1",
					    "network_resolver",
					    "1.2.3.4 1.2.3.4:53  [::1]:5353 ::1",
					    "network_ca",
					    "/x.pem",
					    "network_outer",
					    "*.a.example",
					    "network_outer",
					    " @p",
					    "network_set",
					    "p: d.example",
					    NULL };
	const char *list[EGRESS_RULES_MAX];
	struct egress_config *g = calloc(1, sizeof(*g));

	CHECK(g);
	for (size_t i = 0; i < ARRAY_LEN(bad); i += 2) {
		memset(&c, 0, sizeof(c));
		e = (struct err){ 0 };
		if (net_conf_add(&c, bad[i], bad[i + 1], &e) >= 0 || e.kind != ERR_INVALID)
			TEST_FAIL("%s = %s was taken", bad[i], bad[i + 1]);
	}
	memset(&c, 0, sizeof(c));
	for (size_t i = 0; good[i]; i += 2)
		if (net_conf_add(&c, good[i], good[i + 1], &e) < 0)
			TEST_FAIL("%s = %s: %s", good[i], good[i + 1], e.msg);
	CHECK_EQ(net_conf_set(&c, "p", list), 4);
	CHECK_STR(list[2], "*.c.example");
	CHECK_EQ(net_conf_set(&c, "q", list), -ENOENT);
	net_conf_egress(&c, g);
	CHECK_EQ(g->hosts, 3); /* with our own name of loopback */
	CHECK_STR(g->host[0], "a.example 10.0.0.1");
	CHECK_STR(g->host[1], "a.example ::1");
	CHECK_EQ(g->outer, 5); /* the set's, whenever they were added */
	CHECK_STR(g->rule[4], "d.example");
	CHECK_STR(g->ca_file, "/x.pem");
	free(g);
}
