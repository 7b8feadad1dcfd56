#include "client/client.h"
#include "base/base.h"
#include "client/show.h"

static const char help_pause[] = "usage: cloche pause SANDBOX…\n"
				 "\n"
				 "Freezes sandboxes: nothing in them runs until `cloche resume`. Memory stays.\n"
				 "\n";
static const char help_resume[] = "usage: cloche resume SANDBOX…\n"
				  "\n"
				  "Lets paused sandboxes go on.\n"
				  "\n";

static int change(struct args *a, const char *verb, struct err *e)
{
	AUTO(conn_close) struct conn *c = NULL;
	int r = args_only(a, e);

	if (r < 0 || a->help)
		return r;
	r = args_count(a, 1, -1, "SANDBOX", e);
	if (r == 0)
		r = conn_open(&a->conn, &c, e);
	for (int i = 0; i < a->nrest && r == 0; i++) {
		AUTO(buf_done) struct buf path = BUF_INIT(8 * KIB);
		AUTO_JSON json_t *answer = NULL;

		r = url_add(&path, "/v1/sandboxes/%s/", a->rest[i]);
		if (r == 0)
			r = buf_adds(&path, verb);
		if (r == 0)
			r = conn_json(c, "POST", buf_str(&path), NULL, &answer, e);
		if (r == 0 && a->json)
			r = show_json(answer, SHOW_LINE, e);
	}
	return r;
}

static int run_pause(struct args *a, struct err *e)
{
	return change(a, "pause", e);
}

static int run_resume(struct args *a, struct err *e)
{
	return change(a, "resume", e);
}

const struct command cmd_pause = {
	.name = "pause",
	.text = "freeze sandboxes",
	.help = help_pause,
	.complete = COMPLETE_SANDBOX,
	.run = run_pause,
};

const struct command cmd_resume = {
	.name = "resume",
	.text = "let paused sandboxes go on",
	.help = help_resume,
	.complete = COMPLETE_SANDBOX,
	.run = run_resume,
};
