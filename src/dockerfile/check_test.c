#include "dockerfile/check.h"
#include "base/base.h"
#include "base/test.h"
#include "dockerfile/mount.h"

static struct err e;

/* Returns 0, or the error; e has the message. */
static int check(const char *text, struct stages *ret)
{
	AUTO(dockerfile_free) struct dockerfile *d = NULL;
	struct stages s = { 0 };
	int r;

	memset(&e, 0, sizeof(e));
	r = dockerfile_parse(text, strlen(text), &d, &e);
	if (r == 0)
		r = stages_check(d, &s, &e);
	if (ret)
		ret->n = s.n, ret->before = s.before;
	stages_done(&s);
	return r;
}

static const struct {
	const char *text, *want; /* NULL: no error is expected */
} files[] = {
	{ "ARG a\nARG b=c d\nFROM x\nFROM y AS z\nCOPY --from=z a b", NULL },
	{ "RUN x", "line 1: RUN before the first FROM" },
	{ "ARG x", "has no FROM" },
	{ "FROM x y", "line 1: FROM needs an image" },
	{ "FROM x AS 1a", "invalid name of a stage '1a'" },
	{ "FROM x AS a\nFROM y AS A", "line 2: the stage of line 1 is called 'a'" },
	{ "FROM x\nCOPY a", "line 2: COPY needs at least one source" },
	{ "FROM x\nCOPY --form=a b c", "line 2: COPY has no flag '--form'" },
	{ "FROM x\nCOPY --link=maybe b c", "--link must be true or false" },
	{ "FROM x\nCOPY --chown b c", "--chown needs a value" },
	{ "FROM x\nCOPY --chown=1 --chown=2 b c", "--chown is given twice" },
	{ "FROM x\nCOPY --exclude=1 --exclude=2 b c", NULL },
	{ "FROM x\nCOPY --from=$a b c", "without variables" },
	{ "FROM x\nCOPY a <<b\nb\n", "cannot be the destination" },
	{ "FROM x\nADD --keep-git-dir=true a b", "line 2: ADD --keep-git-dir is not supported" },
	{ "FROM x\nRUN --security=insecure a", "line 2: RUN --security is not supported" },
	{ "FROM x\nRUN --network=host a", "line 2: RUN --network=host is not supported" },
	{ "FROM x\nRUN --network=none a", NULL },
	{ "FROM x\nRUN", "line 2: RUN needs a command" },
	{ "FROM x\nRUN --mount=type=ssh a", "type=ssh is not supported" },
	{ "FROM x\nRUN --mount=type=cache a", "needs a target" },
	{ "FROM x\nRUN --mount=type=$t a", NULL },
	{ "FROM x\nRUN --mount=type=tmpfs,target=/x,mode=1777 a", "takes no mode" },
	{ "FROM x\nRUN --mount=type=cache,target=/x,sharing=often a", "sharing must be" },
	{ "FROM x\nRUN --mount=type=cache,taget=/x a", "no option 'taget'" },
	{ "FROM x\nRUN --mount=from=a$b,target=/x a", "from takes no variables" },
	{ "FROM x\nSHELL sh", "line 2: SHELL must be a JSON array" },
	{ "FROM x\nSHELL []", "line 2: SHELL must be a JSON array" },
	{ "FROM x\nCMD\nENTRYPOINT []", NULL },
	{ "FROM x\nHEALTHCHECK --interval=1m30s --retries=3 CMD a", NULL },
	{ "FROM x\nHEALTHCHECK --interval=30 CMD a", "HEALTHCHECK --interval: invalid duration '30'" },
	{ "FROM x\nHEALTHCHECK --retries=-1 CMD a", "--retries must be a number" },
	{ "FROM x\nHEALTHCHECK NONE a", "takes no arguments" },
	{ "FROM x\nHEALTHCHECK CMD", "needs a command" },
	{ "FROM x\nHEALTHCHECK curl", "not 'curl'" },
	{ "FROM x\nONBUILD RUN a\nONBUILD COPY <<b /c\nd\nb", NULL },
	{ "FROM x\nONBUILD ONBUILD RUN a", "line 2: ONBUILD ONBUILD is not allowed" },
	{ "FROM x\nONBUILD FROM a", "line 2: ONBUILD FROM is not allowed" },
	{ "FROM x\nONBUILD COPY a", "line 2: COPY needs" },
	{ "FROM x\nONBUILD NOTHING", "line 2: unknown instruction 'NOTHING'" },
	{ "FROM x\nENV", "line 2: ENV needs an argument" },
	{ "FROM x\nARG =a", "line 2: ARG: '=a' has no name" },
	{ "FROM x\nVOLUME [\"\"]", "line 2: VOLUME: a path is empty" },
};

TEST(mistakes_are_found_with_their_lines)
{
	for (size_t i = 0; i < ARRAY_LEN(files); i++) {
		int r = check(files[i].text, NULL);

		if (!files[i].want && r < 0)
			TEST_FAIL("%s: %s", files[i].text, e.msg);
		if (files[i].want && (r >= 0 || !strstr(e.msg, files[i].want)))
			TEST_FAIL("%s: %d '%s', not '%s'", files[i].text, r, e.msg, files[i].want);
	}
}

TEST(stages_are_found_by_name_and_number)
{
	static const char text[] =
		"ARG v\nFROM x AS Base\nRUN a\nUSER b\nFROM base\nFROM --platform=p y as last\nRUN c";
	AUTO(dockerfile_free) struct dockerfile *d = NULL;
	struct stages s = { 0 };

	CHECK_EQ(dockerfile_parse(text, strlen(text), &d, NULL), 0);
	CHECK_EQ(stages_check(d, &s, NULL), 0);
	CHECK_EQ(s.n, 3);
	CHECK_EQ(s.before, 1);
	CHECK_EQ(s.at[0].end - s.at[0].first, 2);
	CHECK_EQ(s.at[1].end, s.at[1].first);
	CHECK_STR(s.at[2].platform, "p");
	CHECK_EQ(stages_find(&s, "BASE", 1), 0);
	CHECK_EQ(stages_find(&s, "base", 0), -1);
	CHECK_EQ(stages_find(&s, "1", 2), 1);
	CHECK_EQ(stages_find(&s, "2", 2), -1);
	CHECK_EQ(stages_find(&s, "last", 3), 2);
	stages_done(&s);
}

TEST(durations_are_those_of_the_configuration)
{
	int64_t ns = 0;

	CHECK_EQ(docker_duration("1m30s", &ns, NULL), 0);
	CHECK_EQ(ns, 90000000000);
	CHECK_EQ(docker_duration("1.5s", &ns, NULL), 0);
	CHECK_EQ(ns, 1500000000);
	CHECK_EQ(docker_duration("250ms", &ns, NULL), 0);
	CHECK_EQ(ns, 250000000);
	CHECK_EQ(docker_duration("-1s", &ns, NULL), -EINVAL);
	CHECK_EQ(docker_duration("1", &ns, NULL), -EINVAL);
	CHECK_EQ(docker_duration("", &ns, NULL), -EINVAL);
}

static const char *get(void *data, const char *name, size_t len)
{
	(void)data, (void)name, (void)len;
	return "val,ue";
}

TEST(mounts_have_their_defaults)
{
	const struct expand x = { .get = get, .escape = '\\' };
	AUTO(run_mount_done) struct run_mount m = { 0 }, n = { 0 };

	CHECK_EQ(run_mount_parse("type=cache,target=/c,id=$x,\"from=a,b\",mode=0700,uid=5", &x, &m, NULL), 0);
	CHECK_EQ(m.type, MOUNT_CACHE);
	CHECK(!m.readonly);
	CHECK_STR(m.id, "val,ue");
	CHECK_STR(m.from, "a,b");
	CHECK_EQ(m.mode, 0700);
	CHECK(m.has_uid && m.uid == 5 && !m.has_gid);
	CHECK_EQ(run_mount_parse("target=/b,source=s", &x, &n, NULL), 0);
	CHECK_EQ(n.type, MOUNT_BIND);
	CHECK(n.readonly);
}
