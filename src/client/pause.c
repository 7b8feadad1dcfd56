/* `cloche pause` and `cloche resume`. */
#include "client/client.h"
#include "base/base.h"
#include "client/show.h"

enum { OPT_MEMORY = 256, OPT_NETWORK };

static const struct option hibernate_options[] = {
	{ "memory", required_argument, NULL, OPT_MEMORY },
	{ "network", required_argument, NULL, OPT_NETWORK },
	{ NULL, 0, NULL, 0 },
};

static const char help_start[] =
	"usage: cloche start SANDBOX…\n"
	"\n"
	"Starts sandboxes that are stopped (after a reboot) or lost, with their files. They need storage disk.\n"
	"Commands started with `exec -d --restart always` run again.\n"
	"\n";
static const char help_stop[] =
	"usage: cloche stop SANDBOX…\n"
	"\n"
	"Ends all processes of sandboxes with storage disk. Their files are kept, and `cloche start` starts them again.\n"
	"\n";
static const char help_pause[] =
	"usage: cloche pause SANDBOX…\n"
	"\n"
	"Freezes sandboxes: nothing in them runs until `cloche resume`. Their memory is kept.\n"
	"\n";
static const char help_resume[] = "usage: cloche resume SANDBOX…\n"
				  "\n"
				  "Continues paused sandboxes, and wakes hibernated ones.\n"
				  "\n";
static const char help_hibernate[] =
	"usage: cloche hibernate [options] SANDBOX…\n"
	"\n"
	"Saves files and running processes of sandboxes to disk and frees everything else. Any call wakes them:\n"
	"`exec`, `cp`, `shell`, or `cloche wake`. Fails when a process cannot be saved.\n"
	"\n"
	"  --memory auto       when a process cannot be saved, end all of them; stderr says why\n"
	"  --network WHAT      connections to the outside: drop (reset after waking; stderr lists them) or refuse   drop\n";
static const char help_wake[] = "usage: cloche wake SANDBOX…\n"
				"\n"
				"Wakes hibernated sandboxes, and continues paused ones: the same as `cloche resume`.\n"
				"\n";

static int change(struct args *a, const char *verb, struct err *e)
{
	AUTO(conn_close) struct conn *c = NULL;
	AUTO_JSON json_t *body = NULL;
	int opt, r;

	while ((r = args_next(a, &opt, e)) > 0) {
		if (!body)
			body = json_object();
		r = opt == OPT_NETWORK ? args_set_copied(body, optarg, e) : args_set_memory(body, optarg, e);
		if (r < 0)
			return r;
	}
	if (r < 0 || a->help)
		return r;
	r = args_connect(a, 1, -1, "SANDBOX", &c, e);
	for (int i = 0; i < a->nrest && r == 0; i++) {
		AUTO(buf_done) struct buf path = BUF_INIT(8 * KIB);
		AUTO_JSON json_t *answer = NULL;

		r = url_add(&path, "/v1/sandboxes/%s/", a->rest[i]);
		if (r == 0)
			r = buf_adds(&path, verb);
		if (r == 0 && !a->json)
			conn_doing(c, "cloche: waiting for the sandbox");
		if (r == 0)
			r = conn_json(c, "POST", buf_str(&path), body, &answer, e);
		if (r == 0 && *show_str(answer, "memory_refused"))
			show_warn("%s: its processes were ended: %s", a->rest[i], show_str(answer, "memory_refused"));
		if (r == 0 && !strcmp(verb, "hibernate"))
			show_cut(answer);
		if (r == 0 && a->json)
			r = show_json(answer, SHOW_LINE, e);
	}
	return r;
}

static int run_pause(struct args *a, struct err *e)
{
	return change(a, "pause", e);
}

static int run_start(struct args *a, struct err *e)
{
	return change(a, "start", e);
}

static int run_stop(struct args *a, struct err *e)
{
	return change(a, "stop", e);
}

static int run_resume(struct args *a, struct err *e)
{
	return change(a, "resume", e);
}

static int run_hibernate(struct args *a, struct err *e)
{
	return change(a, "hibernate", e);
}

const struct command cmd_pause = {
	.name = "pause",
	.text = "freeze sandboxes",
	.help = help_pause,
	.complete = COMPLETE_NAMES,
	.names = "sandbox",
	.run = run_pause,
};

const struct command cmd_start = {
	.name = "start",
	.text = "start stopped sandboxes again",
	.help = help_start,
	.complete = COMPLETE_NAMES,
	.names = "sandbox",
	.run = run_start,
};

const struct command cmd_stop = {
	.name = "stop",
	.text = "end all processes of sandboxes, and keep their disks",
	.help = help_stop,
	.complete = COMPLETE_NAMES,
	.names = "sandbox",
	.run = run_stop,
};

const struct command cmd_resume = {
	.name = "resume",
	.text = "continue paused sandboxes",
	.help = help_resume,
	.complete = COMPLETE_NAMES,
	.names = "sandbox",
	.run = run_resume,
};

const struct command cmd_hibernate = {
	.name = "hibernate",
	.text = "save sandboxes to disk until they are needed",
	.help = help_hibernate,
	.options = hibernate_options,
	.complete = COMPLETE_NAMES,
	.names = "sandbox",
	.run = run_hibernate,
};

const struct command cmd_wake = {
	.name = "wake",
	.text = "wake hibernated sandboxes",
	.help = help_wake,
	.complete = COMPLETE_NAMES,
	.names = "sandbox",
	.run = run_resume,
};
