/* For tests: a sandbox that a warden in another process has made. Commands are sent to its agent directly. */
#pragma once
#include "run/engine.h"
#include "warden/client/client.h"

static inline int remote_create(struct client *c, const struct sandbox_spec *spec, struct client_sandbox *there,
				struct engine_sandbox *ret, struct err *e)
{
	int r = client_create(c, spec, there, e);

	if (r < 0)
		return r;
	*ret = (struct engine_sandbox){ .tier = tier_of(spec->flags),
					.pidfd = there->pidfd,
					.receipt = there->receipt };
	link_init(&ret->link, there->sock);
	return 0;
}

static inline int remote_destroy(struct client *c, struct client_sandbox *there, struct engine_sandbox *s,
				 struct err *e)
{
	int r = client_destroy(c, there->handle, e);

	link_done(&s->link);
	client_sandbox_done(there);
	return r;
}
