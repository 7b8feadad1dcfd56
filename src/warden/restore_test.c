/* Processes that are taken out of one sandbox and go on in another: with the real programs. */
#include "base/base.h"
#include "base/test.h"
#include "warden/restore_test.h"

static struct wt w;
static struct rt_box a, b;
static struct rt_image m = { .out = -1 };
static struct rt_result res;
static struct kt_pipes x, y;
static struct sandbox_spec spec;

static bool begin(void)
{
	wt_spec(&spec);
	spec.limits.memory = 512 * MIB;
	kt_fresh();
	return wt_open(&w, kt_args()) && rt_create(&w, &spec, &a);
}

static bool end(void)
{
	bool ok;

	kt_pipes_close(&x);
	kt_pipes_close(&y);
	rt_forget(&m);
	ok = rt_destroy(&w, &a) && rt_destroy(&w, &b);
	ok = kt_settled(&w) && ok;
	ok = wt_stop(&w) == 0 && ok;
	kt_remove_state();
	return ok;
}

static bool says(const struct kt_pipes *p, const char *line, const char *want)
{
	return write(p->in, line, strlen(line)) == (ssize_t)strlen(line) && kt_reads(p->out, want);
}

/* Dumps what runs in @a, restores it in @b, and attaches to exec 7. */
static bool move(void)
{
	return rt_dump(&a, &m) && rt_create(&w, &spec, &b) && rt_restore(&b, &m, &res) && rt_attach(&b, 7, &y);
}

TEST(a_shell_goes_on_where_it_was)
{
	CHECK(begin());
	CHECK(kt_exec(&a.p, 7, "n=41; while read line; do n=$((n + 1)); echo $line $n $$; done; exit 9", -1, &x));
	CHECK(says(&x, "one\n", "one 42 2\n"));
	CHECK(move());
	printf("# restored in %llu us, by its own clock %u us\n", (unsigned long long)res.ns / 1000, res.done.usec);
	CHECK_EQ(res.done.procs, 1);
	CHECK_EQ(res.done.threads, 1);
	CHECK(says(&y, "two\n", "two 43 2\n"));
	CHECK(says(&x, "two\n", "two 43 2\n"));
	CHECK(says(&y, "three\n", "three 44 2\n"));
	CHECK(kt_send(&b.p, FRAME_CLOSE_STDIN, 7, NULL, 0, NULL, 0));
	fd_close(TAKE_FD(y.in));
	CHECK(kt_exited(&b.p, 7, 9 << 8));
	CHECK(end());
}
