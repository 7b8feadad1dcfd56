/* Counts what all sandboxes of a tenant use. */
#include "egress/tenant.h"
#include "base/base.h"
#include "base/fd.h"

#include <fcntl.h>

#define PORTS 28232U /* as many as a kernel has without configuration */

struct tenant *tenant_get(struct egress *g, uint64_t number)
{
	struct tenant *t = g->tenants;

	while (t && t->number != number)
		t = t->next;
	if (!t) {
		t = calloc(1, sizeof(*t));
		if (!t)
			return NULL;
		t->number = number;
		t->next = g->tenants;
		g->tenants = t;
	}
	t->sandboxes++;
	return t;
}

void tenant_put(struct egress *g, struct tenant *t)
{
	struct tenant **at = &g->tenants;

	if (!t || --t->sandboxes)
		return;
	while (*at != t)
		at = &(*at)->next;
	*at = t->next;
	free(t);
}

bool tenant_full(const struct egress *g, const struct tenant *t)
{
	const uint32_t room = egress_room(g), most = room < g->ports ? room : g->ports;

	return t->number && t->streams >= (most + 1) / 2;
}

uint32_t tenant_ports(void)
{
	unsigned first, last;
	char text[64];

	if (fd_get(AT_FDCWD, "/proc/sys/net/ipv4/ip_local_port_range", text, sizeof(text)) <= 0 ||
	    sscanf(text, "%u %u", &first, &last) != 2 || last < first || last > 65535)
		return PORTS;
	return last - first + 1;
}
