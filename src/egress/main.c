/*
 * cloche-egress: the only way out of a sandbox.
 *
 * Theory of operation. A sandbox's network namespace has loopback and nothing else; the kernel steers every TCP
 * connection and DNS query of it to sockets that the warden made inside and that this program holds. It knows a sandbox
 * by its sockets, never by an address. One thread, one epoll; no capabilities, no files, a filter (confine.c). It parses
 * the bytes of every sandbox and of the internet, so the design assumes that an attacker may take it over: the attacker
 * could then use the network, as sandboxes do through this program, and would know their injected secrets.
 *
 * Its owner (the API process, or `cloche run`) sends policies and gets reports (egress/msg.h). Streams continue when an
 * owner ends: without an owner the policies in force do not change. When this program dies its sockets close, and the
 * kernel refuses what was steered to them.
 */
#include "base/base.h"
#include "base/log.h"
#include "base/str.h"
#include "egress/confine.h"
#include "egress/egress.h"

#include <getopt.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

struct options {
	uint64_t listen_fd, owner_fd, parent;
	bool listen, owner, help;
};

static void usage(FILE *to)
{
	fputs("usage: cloche-egress --listen-fd N | --owner-fd N [--parent PID]\n"
	      "\n"
	      "  --listen-fd N  a listening SOCK_SEQPACKET socket; one owner at a time\n"
	      "  --owner-fd N   a connected socket; the program ends with it\n"
	      "  --parent PID   end when this process, the parent, has ended\n",
	      to);
}

static int parse(int argc, char **argv, struct options *o, struct err *e)
{
	static const struct option known[] = {
		{ "listen-fd", required_argument, NULL, 'l' },
		{ "owner-fd", required_argument, NULL, 'o' },
		{ "parent", required_argument, NULL, 'P' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	int c, r = 0;

	opterr = 0;
	while (r == 0 && (c = getopt_long(argc, argv, "", known, NULL)) != -1) {
		if (c == 'l')
			o->listen = true, r = parse_u64(optarg, &o->listen_fd, e);
		else if (c == 'o')
			o->owner = true, r = parse_u64(optarg, &o->owner_fd, e);
		else if (c == 'P')
			r = parse_u64(optarg, &o->parent, e);
		else if (c == 'h')
			o->help = true;
		else
			r = err_set(e, ERR_INVALID, -EINVAL, "unknown option or missing value: '%s'", argv[optind - 1]);
	}
	if (r == 0 && !o->help &&
	    (o->listen == o->owner || optind != argc || o->listen_fd > INT32_MAX || o->owner_fd > INT32_MAX ||
	     o->parent > INT32_MAX))
		r = err_set(e, ERR_INVALID, -EINVAL, "either --listen-fd or --owner-fd is required");
	return r;
}

static int run(const struct options *o, struct err *e)
{
	static struct egress g;
	int r;

	if (o->parent && (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || getppid() != (pid_t)o->parent))
		return err_set(e, ERR_LOST, -ESRCH, "the parent process has ended");
	signal(SIGPIPE, SIG_IGN);
	r = egress_init(&g, o->listen ? (int)o->listen_fd : -1, o->owner ? (int)o->owner_fd : -1, e);
	if (r == 0)
		r = confine(e);
	g.confined = r == 0;
	while (r == 0 && !g.link.ended) {
		r = egress_turn(&g, -1);
		if (r < 0)
			err_sys(e, ERR_INTERNAL, r, "cannot continue");
	}
	egress_done(&g);
	return r;
}

int main(int argc, char **argv)
{
	struct options o = { 0 };
	struct err e = { 0 };
	int r = parse(argc, argv, &o, &e);

	prctl(PR_SET_NAME, "cloche-egress"); /* started by a descriptor it would be called by that */
	if (r < 0) {
		log_error("cloche-egress: %s", e.msg);
		usage(stderr);
		return 2;
	}
	if (o.help) {
		usage(stdout);
		return 0;
	}
	r = run(&o, &e);
	if (r < 0)
		log_error("cloche-egress: %s", e.msg);
	return r < 0;
}
