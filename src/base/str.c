/* Parses numbers, sizes and times that a user has typed. */
#include "base/str.h"
#include "base/base.h"

#define QUOTE "'%.60s'"

static int invalid(struct err *e, const char *what, const char *text, const char *hint)
{
	return err_set(e, ERR_INVALID, -EINVAL, "invalid %s " QUOTE ": %s", what, text, hint);
}

static int too_large(struct err *e, const char *what, const char *text)
{
	return err_set(e, ERR_INVALID, -ERANGE, "invalid %s " QUOTE ": too large", what, text);
}

/* Reads the digits at *p and moves past them. -EINVAL when there are none. By hand, since strtoull takes signs and
 * spaces. */
static int take_digits(const char **p, uint64_t *ret)
{
	const char *s = *p;
	uint64_t v = 0;

	if (*s < '0' || *s > '9')
		return -EINVAL;
	for (; *s >= '0' && *s <= '9'; s++) {
		if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, (uint64_t)(*s - '0'), &v))
			return -ERANGE;
	}
	*p = s;
	*ret = v;
	return 0;
}

/* "1.25" as 1250, with at most three decimals. */
static int take_milli(const char **p, uint64_t *ret)
{
	const char *s = *p;
	uint64_t v, place = 100;
	int r = take_digits(&s, &v);

	if (r < 0)
		return r;
	if (__builtin_mul_overflow(v, 1000, &v))
		return -ERANGE;
	if (*s == '.') {
		s++;
		if (*s < '0' || *s > '9')
			return -EINVAL;
		for (; *s >= '0' && *s <= '9'; s++, place /= 10) {
			if (!place)
				return -EINVAL;
			if (__builtin_add_overflow(v, (uint64_t)(*s - '0') * place, &v))
				return -ERANGE;
		}
	}
	*p = s;
	*ret = v;
	return 0;
}

int parse_u64(const char *text, uint64_t *ret, struct err *e)
{
	const char *p = text;
	uint64_t v;
	int r = take_digits(&p, &v);

	if (r == -ERANGE)
		return too_large(e, "number", text);
	if (r < 0 || *p)
		return invalid(e, "number", text, "expected only digits");
	*ret = v;
	return 0;
}

int parse_size(const char *text, uint64_t *ret_bytes, struct err *e)
{
	static const char hint[] = "expected a whole number of bytes, or one with k, M, G or T, like 512M";
	const char *p = text;
	unsigned shift = 0;
	uint64_t v;
	int r = take_digits(&p, &v);

	if (r == -ERANGE)
		return too_large(e, "size", text);
	if (r < 0)
		return invalid(e, "size", text, hint);
	switch (*p) {
	case 'k':
	case 'K':
		shift = 10;
		break;
	case 'm':
	case 'M':
		shift = 20;
		break;
	case 'g':
	case 'G':
		shift = 30;
		break;
	case 't':
	case 'T':
		shift = 40;
		break;
	default:
		break;
	}
	if (shift) {
		p++;
		if (!strcmp(p, "iB"))
			p += 2;
	}
	if (shift && (!strcmp(p, "B") || !strcmp(p, "b")))
		return invalid(e, "size", text, "write it without the B: 512M is 512 * 1024 * 1024 bytes");
	if (*p)
		return invalid(e, "size", text, hint);
	if (v > UINT64_MAX >> shift)
		return too_large(e, "size", text);
	*ret_bytes = v << shift;
	return 0;
}

int parse_duration(const char *text, uint64_t *ret_ms, struct err *e)
{
	static const struct {
		const char *name;
		uint64_t ms;
	} units[] = { { "", 1000 }, { "ms", 1 }, { "s", 1000 }, { "m", 60000 }, { "h", 3600000 }, { "d", 86400000 } };
	static const char hint[] = "expected a number with ms, s, m, h or d, like 30s (a plain number is seconds)";
	const char *p = text;
	uint64_t v;
	int r = take_milli(&p, &v);

	if (r == -ERANGE)
		return too_large(e, "duration", text);
	if (r < 0)
		return invalid(e, "duration", text, hint);
	for (size_t i = 0; i < ARRAY_LEN(units); i++) {
		if (strcmp(p, units[i].name))
			continue;
		if (units[i].ms == 1 && v % 1000)
			return invalid(e, "duration", text, "fractions of a millisecond are not supported");
		/* In nanoseconds from now on, it must still be a time. */
		if (__builtin_mul_overflow(v, units[i].ms, &v) || v / 1000 > INT64_MAX / 1000000)
			return too_large(e, "duration", text);
		*ret_ms = v / 1000;
		return 0;
	}
	return invalid(e, "duration", text, hint);
}

int parse_cpus(const char *text, uint32_t *ret_milli, struct err *e)
{
	const char *p = text;
	uint64_t v;
	int r = take_milli(&p, &v);

	if (r == -ERANGE || (r == 0 && !*p && v > UINT32_MAX))
		return too_large(e, "number of CPUs", text);
	if (r < 0 || *p)
		return invalid(e, "number of CPUs", text, "expected a number with up to three decimals, like 2 or 0.5");
	*ret_milli = (uint32_t)v;
	return 0;
}
