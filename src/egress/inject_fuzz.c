/* A head from a stranger with values added: it is one head still, for the same host, and has them once. */
#include "egress/inject.h"

#include "base/base.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct seen {
	unsigned values, fields;
};

static int count(void *arg, const char *data, const struct head_field *f)
{
	struct seen *s = arg;

	s->fields += head_field_is(data, f, "x-key");
	s->values += f->value_len == 5 && !memcmp(data + f->value, "value", 5) && head_field_is(data, f, "x-key");
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct egress_inject list[] = { { EGRESS_HEADER, true, 443, "a.test", "X-Key", "value", "H", 0,
						       0 },
						     { EGRESS_QUERY, true, 443, "a.test", "key", "a b", "Q", 0, 0 } };
	static struct inject *in;
	struct buf out = BUF_INIT(HEAD_MAX + INJECT_ADDED_MAX);
	struct seen s = { 0 };
	struct head h, again;
	const char *why = NULL;

	if (!in && inject_new(list, ARRAY_LEN(list), NULL, &in, NULL) < 0)
		abort();
	if (size > HEAD_MAX / 2 || head_look((const char *)data, size, &h, &why) != LOOK_YES || h.connect)
		return 0;
	if (inject_head(in, "a.test", 443, true, (const char *)data, &h, &out) < 0)
		abort();
	/* A line was added: a head with as many as there may be has too many then. */
	if (head_look(out.data, out.len, &again, &why) == LOOK_BAD && strstr(why, "too "))
		goto out;
	assert(head_look(out.data, out.len, &again, &why) == LOOK_YES && again.len == out.len);
	assert(!strcmp(again.host.name, h.host.name) && again.body == h.body && again.length == h.length);
	head_each(out.data, &again, count, &s);
	assert(s.values == 1 && s.fields == 1);
	assert(memmem(out.data, out.len, "key=a%20b", 9) || data[h.target] == '*');
out:
	buf_done(&out);
	return 0;
}
