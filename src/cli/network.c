/* Starts cloche-egress for `cloche run` and answers its questions. */
#include "cli/network.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/sys.h"
#include "engine/program.h"
#include "proto/net_rule.h"

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define EGRESS_UID 61988 /* as in cloche serve without a user cloche-egress */
#define IN_FORCE_MS 10000
#define LAST_MS 1000
#define SANDBOX 1U /* its number: there is one */

static uint8_t packet[EGRESS_MSG_MAX]; /* one at a time, in or out; large */

/* ---- its life --------------------------------------------------------------------------------------------------- */

/* After the fork. Nothing of a terminal's, nor of root's, is its. */
_Noreturn static void child(int program, int sock, pid_t parent)
{
	char fd_text[16], parent_text[16], path[32], name[] = "cloche-egress", fd_opt[] = "--owner-fd",
						     parent_opt[] = "--parent";
	char *const argv[] = { name, fd_opt, fd_text, parent_opt, parent_text, NULL }, *const envp[] = { NULL };
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	const char *what = NULL;

	snprintf(fd_text, sizeof(fd_text), "%d", sock);
	snprintf(parent_text, sizeof(parent_text), "%d", (int)parent);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", program);
	setsid(); /* Ctrl-C is for the command; we end it */
	if (null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 || fcntl(sock, F_SETFD, 0) < 0)
		what = "create its descriptors";
	else if (geteuid() == 0 && (setgroups(0, NULL) < 0 || setresgid(EGRESS_UID, EGRESS_UID, EGRESS_UID) < 0 ||
				    setresuid(EGRESS_UID, EGRESS_UID, EGRESS_UID) < 0))
		what = "find its user";
	else
		execve(path, argv, envp);
	dprintf(2, "cloche: start cloche-egress: %s%s%s\n", what ? what : "", what ? ": " : "", strerror(errno));
	_exit(127);
}

int network_start(struct network *n, const struct sandbox_spec *spec, struct err *e)
{
	AUTO_CLOSE int program = -1, ours = -1, theirs = -1;
	const int room = 1 << 20;
	char path[512];
	int pair[2], r;

	if (!(spec->flags & SPEC_NET))
		return 0;
	r = program_path("cloche-egress", path, sizeof(path), e);
	if (r < 0)
		return r;
	/* Started by its descriptor: egress's user may not be able to enter the program's folder. */
	program = sys_openat(AT_FDCWD, path, O_PATH | O_CLOEXEC, 0);
	if (program < 0)
		return err_sys(e, ERR_NOT_FOUND, program, "open %.200s", path);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_sys(e, ERR_EXHAUSTED, -errno, "make a socket pair");
	ours = pair[0];
	theirs = pair[1];
	for (int i = 0; i < 2; i++) /* a policy is one packet */
		(void)setsockopt(pair[i], SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
	r = fd_set_nonblock(ours);
	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "make a socket non-blocking");
	n->pid = fork();
	if (n->pid == 0)
		child(program, theirs, getppid());
	if (n->pid < 0) {
		n->pid = 0;
		return err_sys(e, ERR_EXHAUSTED, -errno, "start cloche-egress");
	}
	n->fd = TAKE_FD(ours);
	return 0;
}

void network_done(struct network *n)
{
	if (n->fd >= 0)
		fd_close(TAKE_FD(n->fd));
	if (!n->pid)
		return;
	kill(n->pid, SIGKILL);
	while (waitpid(n->pid, NULL, 0) < 0 && errno == EINTR)
		;
	n->pid = 0;
}

/* ---- messages --------------------------------------------------------------------------------------------------- */

static int send_packet(struct network *n, long len, const int *fds, size_t nfds)
{
	struct pollfd p = { .fd = n->fd, .events = POLLOUT };
	int r;

	if (len < 0)
		return (int)len;
	while ((r = fd_send_now(n->fd, packet, (size_t)len, fds, nfds)) == -EAGAIN)
		if (poll(&p, 1, IN_FORCE_MS) == 0)
			return -ETIMEDOUT;
	return r;
}

/* 1 and a message, 0: there is none now; -errno: egress is gone, or has sent an invalid message. */
static int next(struct network *n, struct egress_msg *ret)
{
	ssize_t len;

	do
		len = recv(n->fd, packet, sizeof(packet), MSG_DONTWAIT);
	while (len < 0 && errno == EINTR);
	if (len < 0 && errno == EAGAIN)
		return 0;
	if (len <= 0 || egress_decode(packet, (size_t)len, ret) < 0) {
		n->closed = true;
		return -EPIPE;
	}
	return 1;
}

/* ---- what was refused ------------------------------------------------------------------------------------------- */

static void clean(char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text < 0x20 || *text == 0x7f)
			*text = '?';
}

static void note(struct network *n, struct network_refusal *x)
{
	clean(x->to);
	clean(x->reason);
	clean(x->command);
	for (unsigned i = 0; i < n->n; i++) {
		struct network_refusal *old = &n->refusal[i];

		if (strcmp(old->to, x->to) != 0 || old->unreached != x->unreached)
			continue;
		old->times += x->times;
		if (!old->pid) {
			old->pid = x->pid;
			memcpy(old->command, x->command, sizeof(old->command));
		}
		return;
	}
	if (n->n == NETWORK_REFUSALS)
		n->more++;
	else
		n->refusal[n->n++] = *x;
}

/* "[::1]:80" */
static void place(const struct net_addr *a, uint16_t port, char *to, size_t size)
{
	char text[64];

	net_addr_text(a, text);
	snprintf(to, size, a->family == 6 ? "[%s]:%u" : "%s:%u", text, port);
}

/* Whether it was named as one that may be reached although it is not public. */
static bool is_private(const struct network_want *w, const struct net_addr *a, uint16_t port)
{
	struct net_rule r;

	for (uint32_t i = 0; w && i < w->privates; i++)
		if (net_rule_parse(w->private[i], &r, NULL) == 0 && net_rule_has_addr(&r, a, port))
			return true;
	return false;
}

/* A stream that went through, with the rule it would have needed. */
static void observe(struct network *n, const char *rule)
{
	struct net_rule r;

	if (net_rule_parse(rule, &r, NULL) < 0)
		return;
	for (unsigned i = 0; i < n->observed; i++)
		if (net_rule_join(&n->observation[i], &r))
			return;
	if (n->observed == NETWORK_LIST)
		n->unobserved++;
	else
		n->observation[n->observed++] = r;
}

static void on_stream(struct network *n, const struct egress_msg *m)
{
	struct network_refusal x = { 0 };
	struct egress_stream s;
	struct net_addr a;
	char at[80] = "";

	if (egress_stream_decode(m, &s) < 0)
		return;
	if (s.verdict != EGRESS_V_DENIED && s.verdict != EGRESS_V_BUDGET) {
		if (n->want && n->want->mode == EGRESS_OBSERVE && m->type != EGRESS_LOOKUP)
			observe(n, s.rule);
		/* A reset is all that a program with TLS hears of it. */
		x.unreached = egress_stream_unreached(&s);
		if (!x.unreached)
			return;
	}
	a.family = s.family;
	memcpy(a.addr, s.addr, sizeof(a.addr));
	if (s.family)
		place(&a, s.port, at, sizeof(at));
	if (*s.name && s.port)
		snprintf(x.to, sizeof(x.to), "%s:%u", s.name, s.port);
	else
		snprintf(x.to, sizeof(x.to), "%s", *s.name ? s.name : at);
	snprintf(x.reason, sizeof(x.reason), "%s", s.reason);
	snprintf(x.command, sizeof(x.command), "%s", s.command);
	x.pid = s.pid;
	x.times = s.times ? s.times : 1;
	if (x.unreached)
		x.fix[0] = '\0';
	else if (*s.rule)
		snprintf(x.fix, sizeof(x.fix), "--allow %s", s.rule);
	else if (s.family && !net_addr_public(&a, NULL) && !is_private(n->want, &a, s.port))
		snprintf(x.fix, sizeof(x.fix), "--allow-private %s", at);
	note(n, &x);
}

/* What the kernel said no to has never been at egress. */
static void add_denied(struct network *n, struct engine_sandbox *s)
{
	struct steer_denied all[STEER_DENIED];
	int k = warden_denied(engine_warden(s->engine), s->made, all, NULL);

	for (int i = 0; i < k; i++) {
		struct network_refusal x = { .times = all[i].count ? all[i].count : 1 };
		struct net_addr a = { .family = all[i].family };
		const char *what = NULL;

		memcpy(a.addr, all[i].addr, sizeof(a.addr));
		place(&a, all[i].port, x.to, sizeof(x.to));
		snprintf(x.reason, sizeof(x.reason), "no rule for this address");
		if (net_addr_public(&a, &what))
			snprintf(x.fix, sizeof(x.fix), "--allow %.80s", x.to);
		else
			snprintf(x.fix, sizeof(x.fix), "--allow %.80s --allow-private %.80s", x.to, x.to);
		note(n, &x);
	}
}

void network_tell(const struct network *n)
{
	for (unsigned i = 0; i < n->n; i++) {
		const struct network_refusal *x = &n->refusal[i];
		char by[96] = "", times[32] = "";

		if (x->pid)
			snprintf(by, sizeof(by), " by %s (pid %u)", *x->command ? x->command : "?", x->pid);
		if (x->times > 1)
			snprintf(times, sizeof(times), " %llu times", (unsigned long long)x->times);
		fprintf(stderr, "cloche: %s %s%s%s: %s%s%s\n", x->unreached ? "could not reach" : "refused", x->to,
			times, by, x->reason, x->fix[0] ? "; allow with " : "", x->fix);
	}
	if (n->more)
		fprintf(stderr, "cloche: and %u more refusals\n", n->more);
	if (!n->want || n->want->mode != EGRESS_OBSERVE)
		return;
	fprintf(stderr, "cloche: observed: %s",
		n->observed ? "sufficient rules:" : "no stream, `--network allow` is sufficient");
	for (unsigned i = 0; i < n->observed; i++) {
		char rule[NET_RULE_TEXT];

		net_rule_text(&n->observation[i], rule);
		fprintf(stderr, " --allow '%s'", rule);
	}
	fprintf(stderr, n->unobserved ? ", and more that do not fit into the list\n" : "\n");
}

void network_write(const struct network *n, struct json *j)
{
	if (!n->want)
		return;
	jout_object(j, "network");
	jout_array(j, "refusals");
	for (unsigned i = 0; i < n->n; i++) {
		const struct network_refusal *x = &n->refusal[i];

		jout_object(j, NULL);
		jout_str(j, "to", x->to);
		jout_u64(j, "times", x->times);
		if (x->pid)
			jout_u64(j, "pid", x->pid);
		else
			jout_null(j, "pid");
		jout_str(j, "command", *x->command ? x->command : NULL);
		jout_str(j, "reason", x->reason);
		jout_str(j, "fix", *x->fix ? x->fix : NULL);
		if (x->unreached)
			jout_bool(j, "unreachable", true);
		jout_end(j);
	}
	jout_end(j);
	jout_u64(j, "refusals_left_out", n->more);
	if (n->want->mode == EGRESS_OBSERVE) {
		jout_object(j, "observed");
		jout_array(j, "allow");
		for (unsigned i = 0; i < n->observed; i++) {
			char rule[NET_RULE_TEXT];

			net_rule_text(&n->observation[i], rule);
			jout_str(j, NULL, rule);
		}
		jout_end(j);
		jout_bool(j, "complete", !n->unobserved);
		jout_end(j);
	}
	jout_end(j);
}

/* ---- while it runs ---------------------------------------------------------------------------------------------- */

static void answer_who(struct network *n, struct engine_sandbox *s, const struct egress_msg *m)
{
	struct warden_who who = { 0 };
	struct socket_owner they = { 0 };
	struct egress_they to = { .command = "" };
	struct egress_who asked;

	if (egress_who_decode(m, &asked) < 0)
		return;
	who.family = asked.family;
	who.udp = asked.udp;
	who.client_port = asked.client_port;
	who.port = asked.port;
	memcpy(who.client, asked.client, sizeof(who.client));
	memcpy(who.addr, asked.addr, sizeof(who.addr));
	if (warden_who(engine_warden(s->engine), s->made, &who, &they, NULL) == 0) {
		to.pid = they.pid;
		to.command = they.command;
	}
	to.sandbox = asked.sandbox;
	(void)send_packet(n, egress_they_encode(&to, m->seq, packet, sizeof(packet)), NULL, 0);
}

/* One message. *ret_done: the policy's DONE came, with what it said. */
static void take(struct network *n, struct engine_sandbox *s, const struct egress_msg *m, int *ret_done)
{
	switch (m->type) {
	case EGRESS_STREAM:
	case EGRESS_SEEN:
	case EGRESS_LOOKUP:
		on_stream(n, m);
		break;
	case EGRESS_COUNTS:
		(void)egress_counts_decode(m, &n->counts);
		break;
	case EGRESS_WHO:
		answer_who(n, s, m);
		break;
	case EGRESS_DONE:
		if (ret_done)
			*ret_done = -(int)m->arg;
		break;
	case EGRESS_GONE:
		n->gone = true;
		break;
	default: /* nothing of what else there is concerns us */
		break;
	}
}

/* Reads for @ms at most, until *@done is not 1 or egress has let go. */
static int read_for(struct network *n, struct engine_sandbox *s, unsigned ms, int *done)
{
	uint64_t end = clock_mono_ns() + ms * 1000000ULL, now;
	struct egress_msg m;
	int r;

	while (!n->gone && (!done || *done == 1) && (now = clock_mono_ns()) < end) {
		struct pollfd p = { .fd = n->fd, .events = POLLIN };

		if (poll(&p, 1, (int)((end - now) / 1000000) + 1) < 0 && errno != EINTR)
			return -errno;
		while ((r = next(n, &m)) > 0)
			take(n, s, &m, done);
		if (r < 0)
			return r;
	}
	return n->gone || !done || *done != 1 ? 0 : -ETIMEDOUT;
}

int network_give(struct network *n, const struct network_want *w, struct engine_sandbox *s, struct err *e)
{
	struct egress_config c = { .resolver = w->resolver ? w->resolver : "", .hosts = w->hosts, .ca_file = "" };
	struct egress_sandbox *b;
	int done = 1, r;

	if (n->fd < 0)
		return 0;
	n->want = w;
	b = calloc(1, sizeof(*b));
	if (!b)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory");
	*b = (struct egress_sandbox){ .sandbox = SANDBOX,
				      .tree = SANDBOX,
				      .id = "run",
				      .mode = w->mode,
				      .rules = w->rules,
				      .privates = w->privates,
				      .ca_cert = "",
				      .ca_key = "" };
	memcpy(b->rule, w->rule, w->rules * sizeof(w->rule[0]));
	memcpy(b->private, w->private, w->privates * sizeof(w->private[0]));
	for (uint32_t i = 0; i < w->hosts; i++)
		c.host[i] = w->host[i];
	r = send_packet(n, egress_config_encode(&c, packet, sizeof(packet)), NULL, 0);
	if (r == 0)
		r = send_packet(n, egress_sandbox_encode(b, 1, packet, sizeof(packet)), s->net, STEER_SOCKETS);
	if (r == 0)
		r = send_packet(n, egress_plain_encode(EGRESS_KEEP, 2, 0, 0, packet, sizeof(packet)), NULL, 0);
	free(b);
	/* They are egress's now: nothing of ours keeps them open when it ends. */
	fd_close_many(s->net, STEER_SOCKETS);
	for (unsigned i = 0; i < STEER_SOCKETS; i++)
		s->net[i] = -1;
	if (r == 0)
		r = read_for(n, s, IN_FORCE_MS, &done);
	if (r == 0)
		r = done;
	return r < 0 ? err_sys(e, ERR_LOST, r, "cloche-egress does not accept the network") : 0;
}

void network_read(struct network *n, struct engine_sandbox *s)
{
	struct egress_msg m;

	while (next(n, &m) > 0)
		take(n, s, &m, NULL);
}

void network_finish(struct network *n, const struct network_want *w, struct engine_sandbox *s)
{
	if (n->fd < 0)
		return;
	if (!n->closed &&
	    send_packet(n, egress_plain_encode(EGRESS_GONE, 3, SANDBOX, 0, packet, sizeof(packet)), NULL, 0) == 0)
		(void)read_for(n, s, LAST_MS, NULL);
	if (w->mode == EGRESS_ALLOW)
		add_denied(n, s);
}
