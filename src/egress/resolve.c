/* Asks the host's resolver, through c-ares. */
#include "egress/resolve.h"
#include "base/base.h"

#include <ares.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/time.h>

#define CACHE 256
#define CACHE_SEC 30U
#define SOCKETS 64
#define RUNNING 8192U /* names; each is two queries */

struct host {
	char name[NET_NAME_MAX];
	struct net_addr addr;
};

struct cached {
	char *name;
	uint64_t until;
	struct resolve_answer answer;
};

struct watched {
	struct loop_fd f; /* first */
	struct resolve *r;
};

struct resolve {
	struct loop *loop;
	ares_channel channel;
	struct host *host;
	uint32_t hosts;
	struct watched socket[SOCKETS];
	struct loop_timer timer;
	uint32_t running;
	struct cached cache[CACHE];
};

struct resolve_query {
	struct resolve *r;
	struct loop *loop; /* one that is answered outlives ->r */
	struct resolve_asker *asker;
	resolve_fn *fn; /* NULL: the query was cancelled */
	void *arg;
	char name[NET_NAME_MAX];
	bool inside; /* of ares_getaddrinfo(): an answer has to wait */
	struct loop_timer timer; /* that it does with */
	struct resolve_answer answer;
};

static void set_timer(struct resolve *r)
{
	struct timeval tv, *t = ares_timeout(r->channel, NULL, &tv);

	if (!t)
		loop_timer_stop(r->loop, &r->timer);
	else if (loop_timer_set(r->loop, &r->timer,
				r->loop->now + LOOP_MS + (uint64_t)t->tv_sec * LOOP_SEC + (uint64_t)t->tv_usec * 1000) <
		 0)
		ares_cancel(r->channel);
}

static void timer_due(struct loop_timer *t)
{
	struct resolve *r = (struct resolve *)((char *)t - offsetof(struct resolve, timer));

	ares_process_fd(r->channel, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
	set_timer(r);
}

static void socket_ready(struct loop_fd *f, uint32_t events)
{
	struct resolve *r = ((struct watched *)f)->r;
	int fd = f->fd;

	ares_process_fd(r->channel, events & (EPOLLIN | EPOLLERR | EPOLLHUP) ? fd : ARES_SOCKET_BAD,
			events & EPOLLOUT ? fd : ARES_SOCKET_BAD);
	set_timer(r);
}

/* c-ares reports which events it needs of one of its sockets. */
static void socket_state(void *data, ares_socket_t fd, int readable, int writable)
{
	struct resolve *r = data;
	uint32_t events = (readable ? EPOLLIN : 0) | (writable ? EPOLLOUT : 0);
	struct watched *w = NULL, *hole = NULL;

	for (unsigned i = 0; i < SOCKETS; i++) {
		if (r->socket[i].f.fd == fd)
			w = &r->socket[i];
		else if (r->socket[i].f.fd < 0)
			hole = &r->socket[i];
	}
	if (w && !events)
		loop_forget(r->loop, &w->f);
	else if (w)
		loop_change(r->loop, &w->f, events);
	else if (events && hole) {
		hole->f.fd = fd;
		if (loop_add(r->loop, &hole->f, events) < 0)
			hole->f.fd = -1; /* its query times out */
	}
}

/* ---- hosts ------------------------------------------------------------------------------------------------------- */

static int read_host(const char *text, struct host *ret, struct err *e)
{
	size_t n = strcspn(text, " ");

	if (!text[n] || net_name_parse(text, n, ret->name) < 0 || net_addr_parse(text + n + 1, &ret->addr) < 0) {
		err_set(e, ERR_INVALID, -EINVAL, "host '%.80s': must be a name and an address", text);
		err_remedy(e, "write it as: name 192.0.2.1");
		return -EINVAL;
	}
	return 0;
}

static bool in_hosts(const struct resolve *r, const char *name, struct resolve_answer *ret)
{
	*ret = (struct resolve_answer){ 0 };
	for (uint32_t i = 0; i < r->hosts && ret->n < RESOLVE_MAX; i++)
		if (!strcmp(r->host[i].name, name))
			ret->addr[ret->n++] = r->host[i].addr;
	return ret->n;
}

/* ---- what was answered a moment ago ------------------------------------------------------------------------------ */

static struct cached *cached(struct resolve *r, const char *name)
{
	uint32_t h = 2166136261U;

	for (const char *p = name; *p; p++)
		h = (h ^ (uint8_t)*p) * 16777619U;
	return &r->cache[(h ^ h >> 16) % CACHE];
}

static void keep(struct resolve *r, const char *name, const struct resolve_answer *a, uint32_t ttl)
{
	struct cached *c = cached(r, name);
	char *copy;

	if (!ttl || !(copy = strdup(name)))
		return;
	free(c->name);
	*c = (struct cached){ copy, r->loop->now + (ttl < CACHE_SEC ? ttl : CACHE_SEC) * LOOP_SEC, *a };
}

/* ---- queries ----------------------------------------------------------------------------------------------------- */

static void tell(struct resolve_query *q)
{
	if (q->fn)
		q->fn(q->arg, &q->answer);
	loop_timer_stop(q->loop, &q->timer);
	free(q);
}

static void told_later(struct loop_timer *t)
{
	tell((struct resolve_query *)((char *)t - offsetof(struct resolve_query, timer)));
}

static void take_nodes(const struct ares_addrinfo *info, struct resolve_answer *a, uint32_t *ttl)
{
	for (const struct ares_addrinfo_node *i = info->nodes; i && a->n < RESOLVE_MAX; i = i->ai_next) {
		char text[INET6_ADDRSTRLEN];
		const char *at = (const char *)i->ai_addr;

		at += i->ai_family == AF_INET ? offsetof(struct sockaddr_in, sin_addr) :
						offsetof(struct sockaddr_in6, sin6_addr);

		/* Through its text, so that mapped ones become what they are. */
		if ((i->ai_family != AF_INET && i->ai_family != AF_INET6) ||
		    !ares_inet_ntop(i->ai_family, at, text, sizeof(text)) || net_addr_parse(text, &a->addr[a->n]) < 0)
			continue;
		a->n++;
		if (i->ai_ttl >= 0 && (uint32_t)i->ai_ttl < *ttl)
			*ttl = (uint32_t)i->ai_ttl;
	}
}

static const char *status_text(int status)
{
	switch (status) {
	case ARES_ENOTFOUND:
		return "the name does not exist";
	case ARES_ENODATA:
		return "the name has no address";
	case ARES_ETIMEOUT:
		return "the resolver does not answer";
	case ARES_ECONNREFUSED:
		return "the resolver is unreachable";
	default:
		return "the name cannot be resolved";
	}
}

void resolve_asker_free(struct resolve_asker *a)
{
	if (a && a->running)
		a->gone = true; /* its last query frees it */
	else
		free(a);
}

static void ran(struct resolve_query *q)
{
	q->r->running--;
	if (!--q->asker->running && q->asker->gone)
		free(q->asker);
	q->asker = NULL;
}

static void answered(void *arg, int status, int timeouts, struct ares_addrinfo *info)
{
	struct resolve_query *q = arg;
	uint32_t ttl = CACHE_SEC;

	(void)timeouts;
	ran(q);
	if (status == ARES_SUCCESS && info)
		take_nodes(info, &q->answer, &ttl);
	if (info)
		ares_freeaddrinfo(info);
	if (!q->answer.n)
		q->answer.why = status == ARES_SUCCESS ? "the name has no address" : status_text(status);
	else
		keep(q->r, q->name, &q->answer, ttl);
	/* While ares still holds the pen its caller has not got the query yet. */
	if (q->inside && loop_timer_set(q->r->loop, &q->timer, q->r->loop->now) == 0)
		return;
	if (!q->inside)
		tell(q);
	else
		q->fn = NULL; /* resolve_name() sees it */
}

int resolve_name(struct resolve *r, struct resolve_asker *a, const char *name, struct resolve_answer *ret,
		 struct resolve_query **ret_query, resolve_fn *fn, void *arg)
{
	const struct ares_addrinfo_hints hints = { .ai_family = AF_UNSPEC,
						   .ai_flags = ARES_AI_NOSORT,
						   .ai_socktype = SOCK_STREAM };
	struct cached *c = cached(r, name);
	struct resolve_query *q;

	if (in_hosts(r, name, ret))
		return 1;
	if (c->name && c->until > r->loop->now && !strcmp(c->name, name)) {
		*ret = c->answer;
		return 1;
	}
	if (a->running >= (RUNNING - r->running) / 2)
		return -EBUSY;
	q = calloc(1, sizeof(*q));
	if (!q)
		return -ENOMEM;
	r->running++;
	a->running++;
	*q = (struct resolve_query){ .r = r,
				     .loop = r->loop,
				     .asker = a,
				     .fn = fn,
				     .arg = arg,
				     .inside = true,
				     .timer = { .due = told_later } };
	memcpy(q->name, name, strlen(name) + 1);
	ares_getaddrinfo(r->channel, name, NULL, &hints, answered, q);
	q->inside = false;
	set_timer(r);
	if (!q->fn) {
		free(q);
		return -ENOMEM;
	}
	*ret_query = q;
	return 0;
}

void resolve_cancel(struct resolve_query *q)
{
	if (!q)
		return;
	if (q->timer.slot) { /* answered, but ->fn was not called yet */
		loop_timer_stop(q->loop, &q->timer);
		free(q);
		return;
	}
	q->fn = NULL;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

static int use_servers(struct resolve *r, const char *resolver, struct err *e)
{
	AUTO_FREE char *csv = strdup(resolver);

	if (!csv)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory");
	for (char *p = csv; *p; p++)
		if (*p == ' ')
			*p = ',';
	if (*csv && ares_set_servers_ports_csv(r->channel, csv) != ARES_SUCCESS) {
		err_set(e, ERR_INVALID, -EINVAL, "resolver '%.80s' is invalid", resolver);
		err_remedy(e, "write addresses separated by spaces: 192.0.2.1 [2001:db8::1]:5353");
		return -EINVAL;
	}
	return 0; /* NOLINT(clang-analyzer-unix.Malloc): @csv is AUTO_FREE */
}

int resolve_new(struct loop *loop, const char *resolver, const char *const *host, uint32_t hosts, struct resolve **ret,
		struct err *e)
{
	char lookups[] = "b";
	struct ares_options o = { .flags = ARES_FLAG_NOSEARCH,
				  .timeout = 2000,
				  .tries = 3,
				  .sock_state_cb = socket_state,
				  .lookups = lookups };
	struct resolve *r = calloc(1, sizeof(*r));
	int k = 0;

	if (!r || !(r->host = calloc(hosts + 1, sizeof(*r->host)))) {
		free(r);
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a resolver");
	}
	r->loop = loop;
	r->timer.due = timer_due;
	for (unsigned i = 0; i < SOCKETS; i++)
		r->socket[i] = (struct watched){ { socket_ready, -1 }, r };
	for (; k == 0 && r->hosts < hosts; r->hosts += k == 0)
		k = read_host(host[r->hosts], &r->host[r->hosts], e);
	o.sock_state_cb_data = r;
	if (k == 0 && ares_init_options(&r->channel, &o,
					ARES_OPT_FLAGS | ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_SOCK_STATE_CB |
						ARES_OPT_LOOKUPS) != ARES_SUCCESS)
		k = err_set(e, ERR_INTERNAL, -ENOMEM, "the resolver cannot be set up");
	if (k == 0)
		k = use_servers(r, resolver, e);
	if (k < 0) {
		resolve_free(r);
		return k;
	}
	*ret = r;
	return 0;
}

void resolve_free(struct resolve *r)
{
	if (!r)
		return;
	if (r->channel)
		ares_destroy(r->channel); /* answers what runs */
	loop_timer_stop(r->loop, &r->timer);
	for (unsigned i = 0; i < CACHE; i++)
		free(r->cache[i].name);
	free(r->host);
	free(r);
}
