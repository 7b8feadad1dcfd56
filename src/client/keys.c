/* Recognizes the detach keys among what is typed. */
#include "client/keys.h"
#include "base/base.h"

#include <strings.h>

static int parse_key(const char *text, size_t len, char *ret)
{
	char c;

	if (len == 1 && text[0] > ' ' && text[0] < 0x7f) {
		*ret = text[0];
		return 0;
	}
	if (len != 6 || strncasecmp(text, "ctrl-", 5))
		return -EINVAL;
	c = text[5];
	if (c >= 'a' && c <= 'z')
		c = (char)(c - 'a' + 'A');
	if (c < '@' || c > '_')
		return -EINVAL;
	*ret = (char)(c & 31);
	return 0;
}

int keys_parse(const char *text, struct keys *ret, struct err *e)
{
	struct keys k = { 0 };
	const char *at = text;

	while (*at) {
		size_t len = strcspn(at, ",");

		if (k.count == KEYS_MAX || parse_key(at, len, &k.want[k.count]) < 0) {
			err_set(e, ERR_INVALID, -EINVAL, "invalid keys '%.60s'", text);
			err_remedy(e, "use up to %d keys, like ctrl-p,ctrl-q", KEYS_MAX);
			return -EINVAL;
		}
		k.count++;
		at += len + (at[len] == ',');
	}
	*ret = k;
	return 0;
}

/* The longest end of what was held back plus @c that is a start of the keys. */
static size_t longest(const struct keys *k, char c)
{
	for (size_t n = k->matched; n; n--) {
		/* The last n-1 held keys are want[matched-(n-1)…]; they must be the first n-1, and c the next. */
		if (!memcmp(k->want + k->matched - (n - 1), k->want, n - 1) && k->want[n - 1] == c)
			return n;
	}
	return 0;
}

bool keys_feed(struct keys *k, const char *data, size_t len, struct buf *out)
{
	for (size_t i = 0; i < len; i++) {
		size_t now;

		if (k->count && data[i] == k->want[k->matched]) {
			if (++k->matched == k->count) {
				k->matched = 0;
				return true;
			}
			continue;
		}
		now = k->matched ? longest(k, data[i]) : 0;
		/* Keys that can no longer be part of the sequence are passed on: held ones first, then this one. */
		buf_add(out, k->want, k->matched + (now ? 1 : 0) - now);
		if (!now)
			buf_addc(out, data[i]);
		k->matched = now;
	}
	return false;
}
