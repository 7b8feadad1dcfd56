/* Compares figures with their targets, and prints them. */
#include "bench.h"
#include "base/base.h"
#include "base/buf.h"
#include "base/json.h"
#include "base/sys.h"

#include <sys/utsname.h>
#include <unistd.h>

void report_done(struct report *r)
{
	for (size_t i = 0; i < r->nrows; i++)
		samples_done(&r->rows[i]);
}

struct samples *report_row(struct report *r, const char *name)
{
	for (size_t i = 0; i < r->nrows; i++)
		if (!strcmp(r->rows[i].name, name))
			return &r->rows[i];
	assert(r->nrows < REPORT_ROWS);
	samples_init(&r->rows[r->nrows], name);
	return &r->rows[r->nrows++];
}

void report_target(struct report *r, const struct target *t)
{
	assert(r->ntargets < REPORT_TARGETS);
	r->targets[r->ntargets++] = *t;
}

void report_fact(struct report *r, const char *part, const char *what, double value, const char *unit)
{
	assert(r->nfacts < REPORT_FACTS);
	r->facts[r->nfacts++] = (struct fact){ .part = part, .what = what, .unit = unit, .value = value };
}

bool target_met(const struct target *t)
{
	return t->bound == BOUND_MOST ? t->measured <= t->limit : t->measured >= t->limit;
}

static const char *verdict(const struct target *t)
{
	return t->why_not ? "not measured" : target_met(t) ? "met" : "MISSED";
}

static double us(uint64_t ns)
{
	return (double)ns / 1000.0;
}

static void print_rows(struct report *r)
{
	printf("%-40s %6s %10s %10s %10s %10s\n", "microseconds", "n", "min", "p50", "p95", "p99");
	for (size_t i = 0; i < r->nrows; i++) {
		struct samples *s = &r->rows[i];

		if (!s->n)
			printf("%-40s not usable here: %s\n", s->name, s->note ? s->note : "not measured");
		else
			printf("%-40s %6zu %10.0f %10.0f %10.0f %10.0f\n", s->name, s->n, us(samples_at(s, 0)),
			       us(samples_at(s, 500)), us(samples_at(s, 950)), us(samples_at(s, 990)));
	}
}

void report_print(struct report *r)
{
	unsigned missed = 0;

	print_rows(r);
	if (r->nfacts)
		putchar('\n');
	for (size_t i = 0; i < r->nfacts; i++)
		printf("%-8s %-51s %12.2f %s\n", r->facts[i].part, r->facts[i].what, r->facts[i].value,
		       r->facts[i].unit);
	printf("\n%-60s %10s %10s\n", "target", "measured", "bound");
	for (size_t i = 0; i < r->ntargets; i++) {
		const struct target *t = &r->targets[i];
		const char *sign = t->bound == BOUND_MOST ? "<=" : ">=";

		if (t->why_not)
			printf("%-60s %10s %2s %7.2f %-4s not measured: %s\n", t->what, "-", sign, t->limit, t->unit,
			       t->why_not);
		else
			printf("%-60s %10.2f %2s %7.2f %-4s %s\n", t->what, t->measured, sign, t->limit, t->unit,
			       verdict(t));
		missed += !t->why_not && !target_met(t);
	}
	if (missed)
		printf("\n%u MISSED\n", missed);
}

/* Our JSON has whole numbers only: what can be a fraction is told in thousandths. */
static int64_t thousandths(double v)
{
	return (int64_t)(v * 1000.0 + (v < 0 ? -0.5 : 0.5));
}

static void write_rows(struct json *j, struct report *r)
{
	jout_array(j, "rows");
	for (size_t i = 0; i < r->nrows; i++) {
		struct samples *s = &r->rows[i];

		jout_object(j, NULL);
		jout_str(j, "name", s->name);
		jout_u64(j, "n", s->n);
		if (s->n) {
			jout_u64(j, "min_ns", samples_at(s, 0));
			jout_u64(j, "p50_ns", samples_at(s, 500));
			jout_u64(j, "p95_ns", samples_at(s, 950));
			jout_u64(j, "p99_ns", samples_at(s, 990));
		} else {
			jout_str(j, "unusable", s->note ? s->note : "not measured");
		}
		jout_end(j);
	}
	jout_end(j);
}

static void write_targets(struct json *j, const struct report *r)
{
	jout_array(j, "targets");
	for (size_t i = 0; i < r->ntargets; i++) {
		const struct target *t = &r->targets[i];

		jout_object(j, NULL);
		jout_str(j, "part", t->part);
		jout_str(j, "what", t->what);
		jout_str(j, "unit", t->unit);
		jout_str(j, "bound", t->bound == BOUND_MOST ? "at most" : "at least");
		jout_i64(j, "limit_thousandths", thousandths(t->limit));
		if (t->why_not)
			jout_str(j, "why_not", t->why_not);
		else
			jout_i64(j, "measured_thousandths", thousandths(t->measured));
		jout_str(j, "verdict", verdict(t));
		jout_end(j);
	}
	jout_end(j);
	jout_array(j, "facts");
	for (size_t i = 0; i < r->nfacts; i++) {
		jout_object(j, NULL);
		jout_str(j, "part", r->facts[i].part);
		jout_str(j, "what", r->facts[i].what);
		jout_str(j, "unit", r->facts[i].unit);
		jout_i64(j, "value_thousandths", thousandths(r->facts[i].value));
		jout_end(j);
	}
	jout_end(j);
}

int report_write(struct report *r, const char *path, bool quick, struct err *e)
{
	AUTO(buf_done) struct buf b = BUF_INIT(MIB);
	struct json j = JSON_INIT(&b);
	AUTO_CLOSE int fd = -1;
	struct utsname u;
	int rc;

	uname(&u);
	jout_object(&j, NULL);
	jout_bool(&j, "quick", quick);
	jout_str(&j, "kernel", u.release);
	jout_str(&j, "machine", u.machine);
	jout_i64(&j, "cpus", sysconf(_SC_NPROCESSORS_ONLN));
	write_rows(&j, r);
	write_targets(&j, r);
	jout_end(&j);
	rc = jout_done(&j);
	if (rc == 0)
		rc = buf_addc(&b, '\n');
	if (rc == 0)
		rc = fd = sys_openat(AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (rc >= 0)
		rc = fd_write_all(fd, buf_str(&b), b.len);
	return rc < 0 ? err_sys(e, ERR_INTERNAL, rc, "write %s", path) : 0;
}
