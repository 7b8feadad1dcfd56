/* What a sandbox gets from its checkpoint: processes that continue, and what was made anew. */
#include "base/base.h"
#include "base/log.h"
#include "proto/frame.h"
#include "service/sandbox/part.h"
#include "service/sandbox/internal.h"
#include "service/exec/struct.h"
#include "tier/tiers.h"

#include <jansson.h>

static void say(json_t *list, const char *what, const char *why)
{
	json_array_append_new(list, why ? json_pack("{s:s,s:s}", "what", what, "why", why) : json_string(what));
}

/* Those of the image that its agent has named. */
static json_t *execs_of(const struct sandbox *b)
{
	json_t *list = json_array();

	for (const struct exec *x = b->execs; x; x = x->next)
		for (unsigned i = 0; i < b->nheld; i++)
			if (b->held[i] == x->number)
				json_array_insert_new(list, 0, json_string(x->id));
	return list;
}

void sandbox_restored(struct sandbox *b)
{
	AUTO(json_decref) json_t *o = b->restored ? json_loads(b->restored, 0, NULL) : NULL;
	json_t *done = json_array(), *not_done = json_array(), *had;
	char *text;
	size_t i;

	if (!o || !done || !not_done || b->request->wake) {
		json_decref(done);
		json_decref(not_done);
		return;
	}
	/* These were recorded when the layer was sealed. */
	json_array_foreach(json_object_get(o, "not_done"), i, had)
	{
		const char *what = json_string_value(json_object_get(had, "what"));

		if (what && !strcmp(what, "memory"))
			json_array_append(not_done, had);
	}
	say(done, "hostname", NULL);
	say(done, "clock", NULL);
	if (b->fresh & FRAME_RESTORED_MACHINE_ID)
		say(done, "machine-id", NULL);
	else
		say(not_done, "machine-id", "its image has none");
	if (b->fresh & FRAME_RESTORED_GENERATION)
		say(done, "generation", NULL);
	if (b->request->origin.reseeds) {
		say(done, "random", NULL);
		say(not_done, "generators",
		    "generators that the warm code created (random.Random(), numpy's default_rng()) return the same "
		    "numbers in all sandboxes");
	} else if (b->request->memory)
		say(not_done, "random", "numbers that a program has drawn ahead cannot be changed from outside");
	if (b->request->memory) {
		say(not_done, "layout",
		    "addresses, stack guards and hash seeds of processes are the same in all sandboxes of one image");
		if (!tier_is_machine(b->request->spec->flags))
			say(not_done, "landlock",
			    "a Landlock restriction that a process had made for itself cannot be detected and is lost");
	}
	if (b->fresh & FRAME_RESTORED_CLOCK_BACK)
		say(not_done, "monotonic-clock", "it is behind what the processes have already seen");
	if (b->fresh & FRAME_RESTORED_NUMBERS_LOST)
		say(not_done, "inode-numbers", "the inode numbers of some open files have changed");
	json_object_set_new(o, "memory", json_boolean(b->request->memory));
	json_object_set_new(o, "execs", execs_of(b));
	json_object_set_new(o, "done", done);
	json_object_set_new(o, "not_done", not_done);
	text = json_dumps(o, JSON_COMPACT);
	if (!text)
		return;
	free(b->restored);
	b->restored = text;
}

/* The answer is behind UP: only for one that is entered by that, at once. */
void sandbox_revive_ask(struct sandbox *b)
{
	if (!b->request->memory || tier_is_machine(b->request->spec->flags) || (b->maker && !b->maker->at_once) ||
	    b->secrets)
		return;
	b->asked = agent_link_send(&b->link, FRAME_SYNC, 0, NULL, 0, NULL, 0) == 0;
}

void sandbox_revive(struct sandbox *b)
{
	const bool asked = b->asked;
	struct err e = { 0 };

	if (!b->request->memory)
		return;
	b->reviving = true;
	if (b->request->execs && b->service->commands->revive(b, b->request->execs, &e) < 0)
		log_error("sandbox %s: %s", b->id, e.msg);
	free(b->request->execs);
	b->request->execs = NULL;
	b->asked = false;
	if (asked)
		b->service->commands->expect(b);
	else
		b->service->commands->sync(b);
}

void sandbox_revive_over(struct sandbox *b)
{
	void (*fn)(void *arg, struct sandbox *b) = b->revived;

	if (!b->reviving)
		return;
	b->reviving = false;
	b->revived = NULL;
	if (b->state == SANDBOX_RUNNING) {
		b->service->commands->revived(b);
		sandbox_restored(b);
		b->request->wake = false;
		sandbox_store(b, NULL);
		turn_dirty(b->service->turn);
	}
	if (fn)
		fn(b->revived_arg, b);
}

void sandbox_when_revived(struct sandbox *b, void (*fn)(void *arg, struct sandbox *b), void *arg)
{
	if (!b->reviving) {
		fn(arg, b);
		return;
	}
	b->revived = fn;
	b->revived_arg = arg;
}
