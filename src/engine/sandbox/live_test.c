/* From start to end, with the real programs: commands of one sandbox continue in others, independent of each other. */
#include "engine/sandbox/sandbox.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/test.h"
#include "layers/seal_test.h"

#define COPIES 3
#define PROGRAMS 4

/* What is started, what is said to it before, and what each copy is asked after: "%d" is its number. */
static const struct program {
	const char *start, *before, *answer;
	const char *after[2], *expect[2];
} programs[PROGRAMS] = {
	{
		"exec python3 -i -q -u 2>&1",
		"import numpy as np, os; a = np.arange(1000.0); b = {'k': [1, 2]}; f = open('/home/user/log', 'w+')\n"
		"_ = f.write('early '); f.flush(); print('ready', a.sum())\n",
		"ready 499500.0",
		{ "a += %d; b['k'].append(%d); _ = f.write('late %d'); f.flush(); _ = f.seek(0); "
		  "print(a.sum(), b, f.read(), os.getpid())\n",
		  "print(np.linalg.det(np.eye(%d + 3)))\n" },
		{ "%d00.0 {'k': [1, 2, %d]} early late %d", "1.0" },
	},
	{
		"exec bash --norc 2>&1",
		"x=1; : > /home/user/ticks; (while sleep 0.05; do echo tick >> /home/user/ticks; done) & bg=$!; echo ready\n",
		"ready",
		{ "x=$((x + %d)); echo x=$x; kill -0 $bg && n=$(wc -l < /home/user/ticks); i=0; "
		  "until test $(wc -l < /home/user/ticks) -gt $n -o $i -gt 100; do sleep 0.1; i=$((i + 1)); done; "
		  "test $(wc -l < /home/user/ticks) -gt $n && echo grows\n",
		  "kill $bg; wait $bg; echo status $? of %d; jobs\n" },
		{ "grows", "status 143 of %d" },
	},
	{
		"while read l; do echo \"<$l>\"; done | sed -u 's/.*/\\U&/' 2>&1",
		"",
		"",
		{ "abc%d\n", "def%d\n" },
		{ "", "" },
	},
	{
		"exec node -i 2>&1",
		"var n = 41; var q = []; void setInterval(() => q.push(1), 20); console.log('ready', typeof n)\n",
		"ready number",
		{ "console.log('sum', n + %d, q.length > 0)\n",
		  "var was = q.length; void setTimeout(() => console.log('more', q.length > was, %d), 200)\n" },
		{ "sum %d", "more true %d" },
	},
};

static bool say(const struct kt_pipes *p, const char *text)
{
	return write(p->in, text, strlen(text)) == (ssize_t)strlen(text);
}

/* The text with its number in each place of "%d", at most three. */
static void numbered(char *to, size_t size, const char *text, int n)
{
	size_t at = 0;

	for (; *text && at + 12 < size; text++) {
		if (text[0] == '%' && text[1] == 'd') {
			at += (size_t)snprintf(to + at, size - at, "%d", n);
			text++;
		} else {
			to[at++] = *text;
		}
	}
	to[at] = '\0';
}

static bool create(struct wt *w, const char *id, struct st_box *b)
{
	struct sandbox_spec spec;
	struct err e = { 0 };
	struct frame f;
	int fds[8];

	wt_spec(&spec);
	spec.limits.memory = GIB;
	if (id) {
		st_stand_on(&spec, id);
		spec.flags = SPEC_MEMORY;
	}
	memset(b, 0, sizeof(*b));
	if (client_create(w->client, &spec, &b->s, &e) < 0) {
		printf("# %s; %s\n", e.msg, e.remedy);
		return false;
	}
	kt_open(&b->p, TAKE_FD(b->s.sock));
	b->id = 1000;
	return kt_wait(&b->p, FRAME_UP, 0, &f, fds);
}

static bool seal(struct wt *w, struct st_box *b, char id[ID_SIZE])
{
	struct client_layer l;
	struct err e = { 0 };
	uint64_t pause;

	id_new(id, ID_SIZE);
	if (client_seal_memory(w->client, b->s.handle, id, &l, &pause, &e) < 0) {
		printf("# %s; %s\n", e.msg, e.remedy);
		return false;
	}
	printf("# paused %.1f ms, %llu KiB\n", (double)pause / 1e6, (unsigned long long)l.memory / 1024);
	return true;
}

static bool start(const struct program *g, struct st_box *b, uint32_t exec, struct kt_pipes *x)
{
	return kt_exec(&b->p, exec, g->start, -1, x) && say(x, g->before) &&
	       (!g->answer[0] || kt_reads(x->out, g->answer));
}

static bool goes_on(const struct program *g, const struct kt_pipes *x, int n)
{
	char text[512], want[512];

	for (int i = 0; i < 2; i++) {
		int number = n + i; /* Python's sum is reported by another process */

		numbered(text, sizeof(text), g->after[i], n);
		numbered(want, sizeof(want), g->expect[i], n);
		if (strstr(g->start, "python") && i == 0)
			snprintf(want, sizeof(want), "%d.0 {'k': [1, 2, %d]} early late %d", 499500 + 1000 * n, n, n);
		if (strstr(g->start, "node") && i == 0)
			snprintf(want, sizeof(want), "sum %d true", 41 + n);
		if (strstr(g->start, "sed"))
			snprintf(want, sizeof(want), i ? "<DEF%d>" : "<ABC%d>", n);
		if (!say(x, text) || !kt_reads(x->out, want)) {
			printf("# %s, copy %d\n", g->start, number);
			return false;
		}
	}
	return true;
}

static void one_program(const struct program *g)
{
	struct kt_held held[4];
	struct kt_pipes x, y[COPIES];
	struct st_box a, b[COPIES];
	char id[ID_SIZE];
	struct wt w;

	st_fresh();
	CHECK(wt_open(&w, st_args()));
	CHECK(create(&w, NULL, &a));
	CHECK(start(g, &a, 1, &x));
	wt_sleep_ms(100);
	CHECK(seal(&w, &a, id));
	for (int i = 0; i < COPIES; i++) {
		uint64_t from = clock_mono_ns();

		CHECK(create(&w, id, &b[i]));
		printf("# restored in %.1f ms\n", (double)(clock_mono_ns() - from) / 1e6);
		CHECK_EQ(kt_sync(&b[i].p, held, 4), 1);
		CHECK_EQ(held[0].id, 1);
		y[i] = held[0].pipes;
	}
	for (int i = 0; i < COPIES; i++)
		CHECK(goes_on(g, &y[i], i + 1));
	CHECK(goes_on(g, &x, 7));
	for (int i = 0; i < COPIES; i++) {
		kt_pipes_close(&y[i]);
		CHECK(st_end(&w, &b[i]));
	}
	kt_pipes_close(&x);
	CHECK(st_end(&w, &a));
	CHECK(st_stop(&w));
}

TEST(a_python_repl_with_numpy_goes_on)
{
	one_program(&programs[0]);
}

TEST(a_bash_with_a_background_job_goes_on)
{
	one_program(&programs[1]);
}

TEST(a_pipeline_of_two_goes_on)
{
	one_program(&programs[2]);
}

TEST(a_node_process_goes_on)
{
	if (access("/usr/bin/node", X_OK) < 0)
		printf("# no node here\n");
	else
		one_program(&programs[3]);
}

/* A copy of a copy of a copy: what did not change is in the first image still. */
TEST(an_image_of_what_an_image_became_holds_what_changed)
{
	char id[3][ID_SIZE], text[128];
	struct client_layer l, first = { 0 };
	struct sandbox_spec spec;
	struct kt_held held[2];
	struct err e = { 0 };
	struct kt_pipes x;
	struct st_box b[4];
	uint64_t pause;
	struct frame f;
	struct wt w;
	int fds[8];

	st_fresh();
	CHECK(wt_open(&w, st_args()));
	CHECK(create(&w, NULL, &b[0]));
	CHECK(start(&programs[0], &b[0], 1, &x));
	wt_spec(&spec);
	spec.limits.memory = GIB;
	spec.flags = SPEC_MEMORY;
	for (int i = 0; i < 3; i++) {
		id_new(id[i], ID_SIZE);
		if (client_seal_memory(w.client, b[i].s.handle, id[i], &l, &pause, &e) < 0)
			TEST_FAIL("%s", e.msg);
		printf("# generation %d: paused %.1f ms, %llu KiB\n", i, (double)pause / 1e6,
		       (unsigned long long)l.memory / 1024);
		if (i)
			CHECK(l.memory < first.memory / 2);
		else
			first = l;
		st_stand_on(&spec, id[i]);
		memset(&b[i + 1], 0, sizeof(b[0]));
		if (client_create(w.client, &spec, &b[i + 1].s, &e) < 0) {
			TEST_FAIL("generation %d: %s", i, e.msg);
			break;
		}
		kt_open(&b[i + 1].p, TAKE_FD(b[i + 1].s.sock));
		b[i + 1].id = 1000;
		CHECK(kt_wait(&b[i + 1].p, FRAME_UP, 0, &f, fds));
		kt_pipes_close(&x);
		CHECK_EQ(kt_sync(&b[i + 1].p, held, 2), 1);
		x = held[0].pipes;
		snprintf(text, sizeof(text), "a += 1; b['k'].append(%d); print(a.sum(), b)\n", i);
		CHECK(say(&x, text));
		snprintf(text, sizeof(text), "%d.0 {'k': [1, 2, 0%s%s]}", 499500 + 1000 * (i + 1), i ? ", 1" : "",
			 i > 1 ? ", 2" : "");
		CHECK(kt_reads(x.out, text));
	}
	kt_pipes_close(&x);
	for (int i = 0; i < 4; i++)
		CHECK(st_end(&w, &b[i]));
	CHECK(st_stop(&w));
}

TEST(all_of_them_at_once_and_again_from_a_copy)
{
	struct kt_pipes x[PROGRAMS];
	struct kt_held held[8];
	struct st_box a, b, c;
	char id[ID_SIZE], other[ID_SIZE];
	struct sandbox_spec spec;
	struct err e = { 0 };
	unsigned n = access("/usr/bin/node", X_OK) < 0 ? 3 : 4;
	struct frame f;
	struct wt w;
	int fds[8];

	st_fresh();
	CHECK(wt_open(&w, st_args()));
	CHECK(create(&w, NULL, &a));
	for (unsigned i = 0; i < n; i++)
		CHECK(start(&programs[i], &a, i + 1, &x[i]));
	CHECK(seal(&w, &a, id));
	CHECK(create(&w, id, &b));
	CHECK_EQ(kt_sync(&b.p, held, 8), n);
	for (unsigned i = 0; i < n; i++) {
		CHECK_EQ(held[i].id, i + 1);
		CHECK(goes_on(&programs[i], &held[i].pipes, 2));
		/* Group i + 1 is its own: bash's has the job in it. */
	}
	/* A second generation, on top of the first. */
	CHECK(seal(&w, &b, other));
	wt_spec(&spec);
	spec.limits.memory = GIB;
	st_stand_on(&spec, id);
	st_stand_on(&spec, other);
	spec.flags = SPEC_MEMORY;
	memset(&c, 0, sizeof(c));
	if (client_create(w.client, &spec, &c.s, &e) < 0)
		TEST_FAIL("%s", e.msg);
	kt_open(&c.p, TAKE_FD(c.s.sock));
	CHECK(kt_wait(&c.p, FRAME_UP, 0, &f, fds));
	for (unsigned i = 0; i < n; i++)
		kt_pipes_close(&held[i].pipes);
	CHECK_EQ(kt_sync(&c.p, held, 8), n);
	CHECK(say(&held[0].pipes, "print('sum', a.sum(), b)\n"));
	CHECK(kt_reads(held[0].pipes.out, "sum 501500.0 {'k': [1, 2, 2]}"));
	CHECK(say(&held[1].pipes, "echo x=$x\n"));
	CHECK(kt_reads(held[1].pipes.out, "x=3"));
	for (unsigned i = 0; i < n; i++) {
		kt_pipes_close(&held[i].pipes);
		kt_pipes_close(&x[i]);
	}
	CHECK(st_end(&w, &c));
	CHECK(st_end(&w, &b));
	CHECK(st_end(&w, &a));
	CHECK(st_stop(&w));
}
