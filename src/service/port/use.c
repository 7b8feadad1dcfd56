/*
 * Use of ports from outside, for the audit log: the first request of a port and a client is recorded at once; the
 * others within the following minute together, at its end. So a page with a hundred pictures is two records and not a
 * hundred.
 */
#include "base/base.h"
#include "base/clock.h"
#include "service/port/port.h"
#include "service/sandbox/part.h"
#include "service/internal.h"

#define MINUTE_NS (60ULL * 1000000000ULL)
#define USES_MAX 64U /* of a sandbox, at the same time; more: the oldest is recorded early */

struct port_use {
	struct port_use *next; /* the newest is first */
	uint64_t until_ns;
	uint16_t number;
	enum port_by by;
	char token[ID_SIZE];
	uint32_t more; /* requests that were not recorded yet */
};

static void tell(struct sandbox *b, const struct port_use *u, uint32_t requests, const char *request_id)
{
	static const char *const by[] = {
		[PORT_BY_API] = "api", [PORT_BY_TOKEN] = "port_token", [PORT_BY_PUBLIC] = "public"
	};
	struct audit_rec rec = { .kind = "port.use",
				 .sandbox = b->id,
				 .tenant = b->tenant->id,
				 .token = u->token[0] ? u->token : NULL,
				 .request_id = request_id };
	struct json *j = audit_begin(b->service->audit, &rec);

	jout_u64(j, "port", u->number);
	jout_str(j, "by", by[u->by]);
	jout_u64(j, "requests", requests);
	audit_end(b->service->audit, NULL);
	turn_dirty(b->service->turn);
}

static void end(struct sandbox *b, struct port_use **at)
{
	struct port_use *u = *at;

	*at = u->next;
	if (u->more)
		tell(b, u, u->more, NULL);
	b->service->port_uses--;
	free(u);
}

void port_used(struct sandbox *b, const struct who *who, uint16_t number, enum port_by by)
{
	struct port_use **at = &b->port_uses, *u;
	unsigned n = 0;

	for (; *at; at = &(*at)->next, n++) {
		u = *at;
		if (u->number == number && u->by == by && !strcmp(u->token, who->token)) {
			u->more++;
			return;
		}
		if (!u->next && n + 1 >= USES_MAX) {
			end(b, at);
			break;
		}
	}
	u = calloc(1, sizeof(*u));
	if (!u)
		abort();
	*u = (struct port_use){
		.next = b->port_uses, .until_ns = clock_real_ns() + MINUTE_NS, .number = number, .by = by
	};
	snprintf(u->token, sizeof(u->token), "%s", who->token);
	b->port_uses = u;
	b->service->port_uses++;
	tell(b, u, 1, who->request_id[0] ? who->request_id : NULL);
	service_soon(b->service);
}

void port_uses_end(struct sandbox *b)
{
	while (b->port_uses)
		end(b, &b->port_uses);
}

void port_uses_tick(struct service *s, uint64_t now_ns)
{
	struct sandbox *b;
	size_t at = 0;

	while (s->port_uses && (b = map_next(&s->sandboxes, &at)))
		for (struct port_use **u = &b->port_uses; *u;) {
			if (now_ns >= (*u)->until_ns || s->draining)
				end(b, u);
			else
				u = &(*u)->next;
		}
}

void port_uses_free(struct sandbox *b)
{
	struct port_use *u;

	while ((u = b->port_uses)) {
		b->port_uses = u->next;
		b->service->port_uses--;
		free(u);
	}
}

static void on_lost(struct sandbox *b, enum sandbox_loss how)
{
	if (how == LOSS_DELETED)
		port_uses_end(b);
}

/* What waits for its minute's end is no reason to look more often. */
static bool tick(struct service *s, uint64_t now)
{
	port_uses_tick(s, now);
	return false;
}

static void on_freed(struct sandbox *b)
{
	ports_free(b);
	port_uses_free(b);
}

const struct sandbox_part port_part = {
	.name = "port",
	.tick = tick,
	.lost = on_lost,
	.freed = on_freed,
};
