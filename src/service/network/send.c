/* Encodes and sends the policies of sandboxes to egress. */
#include "service/network/internal.h"

#include <strings.h>

#include "base/base.h"
#include "base/log.h"
#include "service/network/conf.h"

void net_send_config(struct nets *n)
{
	struct egress_config *c = calloc(1, sizeof(*c));
	uint8_t *out = egress_link_room(n->link);
	long len;

	if (!c)
		abort();
	net_conf_egress(n->service->o.net, c);
	len = egress_config_encode(c, out, EGRESS_MSG_MAX);
	free(c);
	if (len < 0)
		log_error("the configuration of networks is too large for cloche-egress");
	else
		egress_link_send(n->link, out, (size_t)len, NULL, 0);
}

/* What it knew before, so that addresses its programs remember stay what they were. */
static void send_names(struct net_run *r)
{
	const struct net_state *st = r->state;
	struct egress_names *m = r->nets->names;
	uint8_t *out = egress_link_room(r->nets->link);
	long len;

	for (uint32_t i = 0; i < st->nnames; i += m->n) {
		m->sandbox = r->number;
		for (m->n = 0; m->n < EGRESS_BATCH && i + m->n < st->nnames; m->n++) {
			m->name[m->n].index = st->names[i + m->n].index;
			m->name[m->n].name = st->names[i + m->n].name;
		}
		len = egress_names_encode(EGRESS_NAMES, m, out, EGRESS_MSG_MAX);
		if (len < 0)
			log_error("sandbox %s: its names do not fit into a message", r->id);
		else
			egress_link_send(r->nets->link, out, (size_t)len, NULL, 0);
	}
}

void net_send_sandbox(struct net_run *r)
{
	struct egress_sandbox *m = r->nets->sandbox;
	uint8_t *out = egress_link_room(r->nets->link);
	struct net_state *st = net_state_now(r->state);
	struct service *s = r->nets->service;
	bool fresh = r->sock[0] >= 0;
	long len;

	memset(m, 0, sizeof(*m));
	m->sandbox = r->number;
	m->tree = st->tree->id;
	m->tenant = r->sandbox->tenant->number;
	memcpy(m->id, r->id, sizeof(m->id));
	m->ca_cert = m->ca_key = "";
	r->less = !net_request_policy(s->o.net, r->sandbox->request->net, m);
	if (fresh) {
		m->counts = st->counts;
		m->tree_counts = st->tree->counts;
		r->last = st->counts;
	}
	m->counts.sandbox = m->tree_counts.sandbox = r->number;
	if (s->net_inject)
		s->net_inject(r->sandbox, m);
	r->seq = egress_link_seq(r->nets->link);
	r->in_force = false;
	len = egress_sandbox_encode(m, r->seq, out, EGRESS_MSG_MAX);
	if (len < 0) {
		log_error("sandbox %s: its policy does not fit into a message", r->id);
		r->seq = 0;
		net_put_done(r, EMSGSIZE);
		return;
	}
	egress_link_send(r->nets->link, out, (size_t)len, r->sock, fresh ? EGRESS_SOCKETS : 0);
	explicit_bzero(out, (size_t)len);
	r->held = true;
	if (fresh)
		send_names(r);
}
