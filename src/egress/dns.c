/* Answers the DNS requests of a sandbox. */
#include "egress/dns.h"
#include "base/base.h"
#include "egress/report.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#define HEAD 12U
#define A_TURN 8
#define A_SECOND 200U /* queries answered properly */
#define CONNS 32U /* TCP connections; all queries of a virtual machine come by TCP (vm/guest/net.c) */
#define CONN_PATIENCE (10 * LOOP_SEC)
#define ASKED 8U /* refused queries of a sandbox that wait for the owner's word */
#define WHO_PATIENCE (500 * LOOP_MS) /* it takes a millisecond as a rule; resolvers wait for two seconds */
#define WHO_PAUSE (2 * LOOP_SEC)

static uint16_t get16(const uint8_t *p)
{
	return (uint16_t)(p[0] << 8 | p[1]);
}

/* ---- packets ----------------------------------------------------------------------------------------------------- */

int dns_parse(const uint8_t *query, size_t len, struct dns_question *ret)
{
	char text[NET_NAME_MAX + 1];
	size_t at = HEAD, n = 0;

	*ret = (struct dns_question){ 0 };
	if (len < HEAD || query[2] & 0x80)
		return -EINVAL;
	/* A plain query, one question, nothing else but an OPT at most. */
	if (len > DNS_QUERY_MAX || query[2] & 0x7a || get16(query + 4) != 1 || get16(query + 6) || get16(query + 8) ||
	    get16(query + 10) > 1)
		return -EBADMSG;
	for (;;) {
		size_t label = at < len ? query[at++] : 64;

		if (!label)
			break;
		if (label > 63 || at + label > len || n + label + 1 > NET_NAME_MAX)
			return -EBADMSG;
		for (size_t i = 0; i < label; i++) {
			/* A dot within a label would make another name of it; so would a NUL. */
			char c = (char)query[at++];

			text[n++] = c == '.' || c == '\0' ? '?' : c;
		}
		text[n++] = '.';
	}
	if (at + 4 > len || get16(query + at + 2) != 1)
		return -EBADMSG;
	ret->type = get16(query + at);
	ret->end = at + 4;
	if (n && net_name_parse(text, n - 1, ret->name) < 0)
		ret->name[0] = '\0';
	return 0;
}

size_t dns_answer(const uint8_t *query, size_t len, const struct dns_question *q, enum dns_code code,
		  const uint8_t *addr, uint8_t out[DNS_ANSWER_MAX])
{
	size_t n = q->end && q->end <= len ? q->end : HEAD, size = q->type == DNS_A ? 4 : 16;
	const uint8_t record[] = { 0xc0, HEAD, 0, (uint8_t)q->type, 0, 1, 0, 0, 0, DNS_TTL, 0, (uint8_t)size };

	memcpy(out, query, n);
	out[2] = (uint8_t)(0x84 | (query[2] & 0x01)); /* an authoritative answer; "recursion desired" is copied */
	out[3] = (uint8_t)(0x80 | code);
	memset(out + 4, 0, 8);
	out[5] = n > HEAD;
	if (code == DNS_OK && addr && n > HEAD) {
		out[7] = 1;
		memcpy(out + n, record, sizeof(record));
		memcpy(out + n + sizeof(record), addr, size);
		n += sizeof(record) + size;
	}
	return n;
}

/* ---- deciding ---------------------------------------------------------------------------------------------------- */

/* The report of a refused query: the first is sent, repetitions are counted. */
struct news {
	uint8_t verdict;
	const char *reason; /* NULL: nothing */
	char name[NET_NAME_MAX];
};

static struct egress_stream as_report(const struct news *n)
{
	struct egress_stream s = { .verdict = n->verdict, .name = n->name, .reason = n->reason };

	if (n->verdict == EGRESS_V_DENIED)
		s.rule = n->name;
	return s;
}

static void refused(struct sandbox *b, const struct dns_question *q, uint8_t verdict, const char *reason,
		    struct news *ret)
{
	struct egress_stream s;

	b->meter.counts.dns_refused++;
	b->tree->meter.counts.dns_refused++;
	/* A query for the name of an address is refused without a report: no rule would allow it. */
	if (q->type == DNS_PTR || !q->name[0])
		return;
	*ret = (struct news){ .verdict = verdict, .reason = reason };
	memcpy(ret->name, q->name, sizeof(ret->name));
	s = as_report(ret);
	if (!report_is_new(b, &s, true))
		ret->reason = NULL;
}

static void tell(struct sandbox *b, const struct news *n, uint32_t pid, const char *command)
{
	struct egress_stream s = as_report(n);

	s.pid = pid;
	s.command = command;
	report_refused(b, &s, true);
}

static bool too_fast(struct sandbox *b)
{
	uint64_t now = b->g->loop.now;

	if (now - b->dns_at >= LOOP_SEC) {
		b->dns_at = now;
		b->dns_tokens = A_SECOND;
	}
	if (!b->dns_tokens)
		return true;
	b->dns_tokens--;
	return false;
}

static enum dns_code decide(struct sandbox *b, const struct dns_question *q, uint8_t addr[16], bool *ret_addr,
			    struct news *ret_news)
{
	const char *why = meter_dns(&b->meter, &b->tree->meter);
	struct name *n;

	if (why || too_fast(b)) {
		refused(b, q, EGRESS_V_BUDGET, why ? why : "too many DNS queries per second", ret_news);
		return DNS_REFUSED;
	}
	b->meter.counts.dns++;
	b->tree->meter.counts.dns++;
	if (!q->name[0] || !policy_knows(b->policy, sandbox_outer(b), q->name)) {
		refused(b, q, EGRESS_V_DENIED,
			b->policy->mode == EGRESS_NONE ? "the sandbox has no network" : "no rule names this host",
			ret_news);
		return DNS_NO_NAME;
	}
	if (q->type != DNS_A && q->type != DNS_AAAA)
		return DNS_OK;
	n = names_get(&b->names, q->name, (uint32_t)(b->g->loop.now / LOOP_SEC));
	if (!n) {
		refused(b, q, EGRESS_V_BUDGET, "too many names are in use", ret_news);
		return DNS_FAILED;
	}
	if (q->type == DNS_A)
		names_v4(n->index, addr);
	else
		names_v6(n->index, addr);
	*ret_addr = true;
	return DNS_OK;
}

static size_t serve(struct sandbox *b, const uint8_t *query, size_t len, uint8_t out[DNS_ANSWER_MAX],
		    struct news *ret_news)
{
	struct dns_question q;
	enum dns_code code = DNS_REFUSED;
	bool has = false;
	uint8_t addr[16];
	int r = dns_parse(query, len, &q);

	ret_news->reason = NULL;
	if (r == -EINVAL)
		return 0;
	report_counts(b);
	if (r == 0)
		code = decide(b, &q, addr, &has, ret_news);
	else
		b->meter.counts.dns_refused++;
	return dns_answer(query, len, &q, code, has ? addr : NULL, out);
}

/* ---- whose was it ------------------------------------------------------------------------------------------------ */

/* A datagram that came, or goes back. */
struct dns_mail {
	struct sockaddr_in6 from; /* the client */
	struct in6_pktinfo to; /* where it went; ->ipi6_ifindex 0 */
	bool has_to;
};

/* The client has its socket as long as it waits for the answer: so that comes when the owner has looked. */
struct dns_asked {
	struct sandbox *b;
	struct dns_asked *next;
	struct loop_timer timer;
	uint32_t who;
	struct news news;
	struct dns_mail mail;
	bool tcp;
	struct dns_conn *conn; /* by TCP: it goes there, not by ->mail; NULL: that has ended */
	size_t len;
	uint8_t answer[DNS_ANSWER_MAX];
};

static void conn_told(struct dns_conn *c, const uint8_t *answer, size_t len);

/* The answer comes from the address that was asked: some clients look. */
static void post(struct sandbox *b, struct dns_mail *mail, uint8_t *data, size_t len)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(mail->to))] = { 0 };
	struct iovec v = { data, len };
	struct msghdr m = {
		.msg_name = &mail->from, .msg_namelen = sizeof(mail->from), .msg_iov = &v, .msg_iovlen = 1
	};

	if (mail->has_to) {
		struct cmsghdr *c = (struct cmsghdr *)(void *)control;

		c->cmsg_level = IPPROTO_IPV6;
		c->cmsg_type = IPV6_PKTINFO;
		c->cmsg_len = CMSG_LEN(sizeof(mail->to));
		memcpy(CMSG_DATA(c), &mail->to, sizeof(mail->to));
		m.msg_control = control;
		m.msg_controllen = sizeof(control);
	}
	sendmsg(b->udp.fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void asked_end(struct dns_asked *a, uint32_t pid, const char *command)
{
	struct sandbox *b = a->b;
	struct dns_asked **at = &b->dns_asked;

	while (*at != a)
		at = &(*at)->next;
	*at = a->next;
	b->dns_asked_count--;
	b->g->asked--;
	loop_timer_stop(&b->g->loop, &a->timer);
	tell(b, &a->news, pid, command);
	sandbox_report_again(b);
	if (a->conn)
		conn_told(a->conn, a->answer, a->len);
	else if (!a->tcp && b->udp.fd >= 0)
		post(b, &a->mail, a->answer, a->len);
	free(a);
}

static void asked_late(struct loop_timer *t)
{
	struct dns_asked *a = (struct dns_asked *)((char *)t - offsetof(struct dns_asked, timer));

	a->b->who_late = a->b->g->loop.now + WHO_PAUSE;
	asked_end(a, 0, "");
}

void dns_they(struct sandbox *b, uint32_t seq, const struct egress_they *t)
{
	struct dns_asked *a = b->dns_asked;

	while (a && a->who != seq)
		a = a->next;
	if (a)
		asked_end(a, t->pid, t->command);
}

static void put_addr(const struct in6_addr *from, uint8_t *ret_family, uint8_t ret[16])
{
	bool v4 = IN6_IS_ADDR_V4MAPPED(from);

	*ret_family = v4 ? 4 : 6;
	memset(ret, 0, 16);
	memcpy(ret, from->s6_addr + (v4 ? 12 : 0), v4 ? 4 : 16);
}

/* The question is in the air, and the answer goes out later. NULL: the owner could not be asked. */
static struct dns_asked *ask(struct sandbox *b, const struct dns_mail *mail, const struct news *news,
			     const uint8_t *answer, size_t len, struct dns_conn *conn)
{
	struct egress *g = b->g;
	struct egress_who w = {
		.sandbox = b->number, .udp = !conn, .client_port = ntohs(mail->from.sin6_port), .port = 53
	};
	struct dns_asked *a;
	uint8_t family;

	if (!mail->has_to || b->dns_asked_count == ASKED || g->loop.now < b->who_late)
		return NULL;
	put_addr(&mail->from.sin6_addr, &w.family, w.client);
	put_addr(&mail->to.ipi6_addr, &family, w.addr);
	a = family == w.family ? calloc(1, sizeof(*a)) : NULL;
	if (!a)
		return NULL;
	*a = (struct dns_asked){ .b = b,
				 .next = b->dns_asked,
				 .timer.due = asked_late,
				 .news = *news,
				 .mail = *mail,
				 .tcp = conn != NULL,
				 .conn = conn,
				 .len = len };
	memcpy(a->answer, answer, len);
	if (loop_timer_set(&g->loop, &a->timer, g->loop.now + WHO_PATIENCE) < 0 || !(a->who = report_who(b, &w))) {
		loop_timer_stop(&g->loop, &a->timer);
		free(a);
		return NULL;
	}
	g->asked++;
	b->dns_asked = a;
	b->dns_asked_count++;
	return a;
}

/* ---- UDP --------------------------------------------------------------------------------------------------------- */

static ssize_t fetch(struct sandbox *b, uint8_t *query, size_t size, struct dns_mail *ret)
{
	_Alignas(struct cmsghdr) char control[256];
	struct iovec v = { query, size };
	struct msghdr m = { .msg_name = &ret->from,
			    .msg_namelen = sizeof(ret->from),
			    .msg_iov = &v,
			    .msg_iovlen = 1,
			    .msg_control = control,
			    .msg_controllen = sizeof(control) };
	ssize_t n = recvmsg(b->udp.fd, &m, MSG_DONTWAIT);

	ret->has_to = false;
	for (struct cmsghdr *c = n < 0 ? NULL : CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
		if (c->cmsg_level != IPPROTO_IPV6 || c->cmsg_type != IPV6_PKTINFO)
			continue;
		memcpy(&ret->to, CMSG_DATA(c), sizeof(ret->to));
		ret->to.ipi6_ifindex = 0;
		ret->has_to = true;
	}
	return n;
}

bool dns_turn(struct sandbox *b)
{
	for (int i = 0; i < A_TURN; i++) {
		uint8_t query[DNS_QUERY_MAX + 1], out[DNS_ANSWER_MAX];
		struct dns_mail mail;
		struct news news;
		ssize_t n = fetch(b, query, sizeof(query), &mail);
		size_t len;

		if (n < 0)
			return false;
		len = serve(b, query, (size_t)n, out, &news);
		if (news.reason && ask(b, &mail, &news, out, len, NULL))
			continue;
		if (news.reason)
			tell(b, &news, 0, "");
		if (len)
			post(b, &mail, out, len);
	}
	return true;
}

/* ---- TCP --------------------------------------------------------------------------------------------------------- */

struct dns_conn {
	struct loop_fd f; /* first */
	struct sandbox *b;
	struct dns_conn *next;
	struct loop_timer timer;
	struct dns_asked *asked; /* one of its queries: those behind it wait */
	size_t have;
	uint8_t data[2 + DNS_QUERY_MAX];
};

static void conn_end(struct dns_conn *c)
{
	struct sandbox *b = c->b;
	struct dns_conn **at = &b->dns_conns;

	while (*at && *at != c)
		at = &(*at)->next;
	if (*at)
		*at = c->next;
	b->dns_conn_count--;
	if (c->asked)
		c->asked->conn = NULL; /* the refusal is still reported; its answer is dropped */
	loop_timer_stop(&b->g->loop, &c->timer);
	loop_close(&b->g->loop, &c->f);
	loop_bury(&b->g->loop, c);
}

/* False: the client does not read its answers and gets no more. */
static bool conn_say(struct dns_conn *c, const uint8_t *answer, size_t len)
{
	uint8_t out[2 + DNS_ANSWER_MAX] = { (uint8_t)(len >> 8), (uint8_t)len };

	memcpy(out + 2, answer, len);
	return !len || send(c->f.fd, out, len + 2, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)len + 2;
}

static struct dns_asked *conn_ask(struct dns_conn *c, const struct news *news, const uint8_t *answer, size_t len)
{
	struct sockaddr_in6 to = { 0 };
	struct dns_mail mail = { .has_to = true };
	socklen_t flen = sizeof(mail.from), tlen = sizeof(to);

	if (getpeername(c->f.fd, (struct sockaddr *)&mail.from, &flen) < 0 ||
	    getsockname(c->f.fd, (struct sockaddr *)&to, &tlen) < 0 || to.sin6_family != AF_INET6)
		return NULL;
	mail.to.ipi6_addr = to.sin6_addr;
	return ask(c->b, &mail, news, answer, len, c);
}

/* One query that is complete; false: not yet, or one before it waits. */
static bool conn_answer(struct dns_conn *c, bool *ret_bad)
{
	uint8_t out[DNS_ANSWER_MAX];
	size_t len = get16(c->data), n;
	struct news news;

	if (c->asked || c->have < 2)
		return false;
	if (len > DNS_QUERY_MAX) {
		*ret_bad = true;
		return false;
	}
	if (c->have < 2 + len)
		return false;
	n = serve(c->b, c->data + 2, len, out, &news);
	if (news.reason)
		c->asked = conn_ask(c, &news, out, n);
	if (news.reason && !c->asked)
		tell(c->b, &news, 0, "");
	if (!c->asked && !conn_say(c, out, n))
		*ret_bad = true;
	c->have -= 2 + len;
	memmove(c->data, c->data + 2 + len, c->have);
	return true;
}

/* What is complete is answered; and while one waits nothing more is read. */
static void conn_go_on(struct dns_conn *c)
{
	bool bad = false;

	while (!bad && conn_answer(c, &bad))
		;
	if (bad || loop_change(&c->b->g->loop, &c->f, c->asked ? 0 : EPOLLIN) < 0)
		conn_end(c);
}

static void conn_told(struct dns_conn *c, const uint8_t *answer, size_t len)
{
	c->asked = NULL;
	if (conn_say(c, answer, len))
		conn_go_on(c);
	else
		conn_end(c);
}

static void conn_ready(struct loop_fd *f, uint32_t events)
{
	struct dns_conn *c = (struct dns_conn *)f;
	ssize_t n;

	(void)events;
	if (c->asked) { /* it has hung up */
		conn_end(c);
		return;
	}
	n = recv(f->fd, c->data + c->have, sizeof(c->data) - c->have, MSG_DONTWAIT);
	if (n < 0 && errno == EAGAIN)
		return;
	if (n <= 0) {
		conn_end(c);
		return;
	}
	c->have += (size_t)n;
	conn_go_on(c);
}

static void conn_late(struct loop_timer *t)
{
	conn_end((struct dns_conn *)((char *)t - offsetof(struct dns_conn, timer)));
}

void dns_accept(struct sandbox *b)
{
	struct egress *g = b->g;
	int fd = accept4(b->dns.fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	struct dns_conn *c;

	if (fd < 0) {
		if (errno == EMFILE || errno == ENFILE)
			egress_give_spare(g, b->dns.fd);
		return;
	}
	c = b->dns_conn_count < CONNS ? calloc(1, sizeof(*c)) : NULL;
	if (!c) {
		close(fd);
		return;
	}
	c->f = (struct loop_fd){ conn_ready, fd };
	c->b = b;
	c->timer.due = conn_late;
	c->next = b->dns_conns;
	b->dns_conns = c;
	b->dns_conn_count++;
	if (loop_add(&g->loop, &c->f, EPOLLIN) < 0 ||
	    loop_timer_set(&g->loop, &c->timer, g->loop.now + CONN_PATIENCE) < 0)
		conn_end(c);
}

void dns_close(struct sandbox *b)
{
	while (b->dns_conns)
		conn_end(b->dns_conns);
	while (b->dns_asked)
		/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): it does not see that the first one leaves the list */
		asked_end(b->dns_asked, 0, "");
}
