/*
 * cloche-devices: finds out what a device is, for the warden, `cloche run`, `cloche doctor` and the API process.
 *
 * Theory of operation. What devices a sandbox can get is described by files of the Container Device Interface, which are root's and
 * YAML. Neither the warden nor an agent reads YAML: this program does, once for each request, with libyaml. It is asked by its
 * arguments: `plan` for what names of devices mean (struct device_plan, one message on descriptor 3), `list` for all that there is
 * (JSON on descriptor 3, or stdout), `text` for the same in words. Before the first byte of a file it gives up root (it is user 65534 then), may read files and write none, and has a
 * list of system calls. It reads files that root alone could have written, the driver's folders in /proc, and looks whether nodes and
 * libraries are there. The warden checks every field of its answer again, and opens each path itself.
 *
 * It lives for one answer. If it dies or hangs, that one request fails.
 */
#include "base/base.h"
#include "base/json.h"
#include "base/sys.h"
#include "devices/list.h"
#include "devices/plan.h"
#include "linux/confine.h"
#include "linux/landlock.h"
#include "linux/spawn.h"

#include <fcntl.h>
#include <getopt.h>
#include <linux/prctl.h>
#include <unistd.h>

struct asked {
	struct catalog_opts in;
	struct plan_opts plan;
	const char *const *name;
	unsigned names;
	bool list, text;
};

static int parse(int argc, char **argv, struct asked *a)
{
	static const struct option options[] = {
		{ "folder", required_argument, NULL, 'f' },
		{ "root", required_argument, NULL, 'r' },
		{ "host", no_argument, NULL, 'h' },
		{ "rootless", no_argument, NULL, 'l' },
		{ NULL, 0, NULL, 0 },
	};
	char *save;
	int c;

	*a = (struct asked){ .in = { .root = "" } };
	opterr = 0;
	while ((c = getopt_long(argc, argv, "+", options, NULL)) != -1) {
		if (c == 'f') {
			for (char *at = strtok_r(optarg, ":", &save); at; at = strtok_r(NULL, ":", &save)) {
				if (a->in.folders == CATALOG_FOLDERS || at[0] != '/')
					return -EINVAL;
				a->in.folder[a->in.folders++] = at;
			}
		} else if (c == 'r' && (optarg[0] == '/' || !optarg[0]))
			a->in.root = optarg;
		else if (c == 'l')
			a->in.any_owner = true;
		else if (c == 'h')
			a->plan.host = true;
		else
			return -EINVAL;
	}
	if (optind == argc)
		return -EINVAL;
	a->text = !strcmp(argv[optind], "text");
	a->list = a->text || !strcmp(argv[optind], "list");
	a->name = (const char *const *)argv + optind + 1;
	a->names = (unsigned)(argc - optind - 1);
	a->plan.root = a->in.root;
	a->in.owner = geteuid();
	return !a->list && strcmp(argv[optind], "plan") ? -EINVAL : 0;
}

/* Root becomes user 65534, but in a user namespace without another user. Other callers keep their own user. */
static int drop(bool rootless)
{
	struct confine c = {
		.user = CONFINE_NOBODY,
#ifndef __SANITIZE_ADDRESS__ /* AddressSanitizer reserves terabytes */
		.memory = 256 * MIB,
#endif
	};
	int r = sys_prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);

	if (r == 0)
		r = landlock_no_writes();
	/* The API process has a filter that does not know Landlock, and is not root. */
	if (geteuid() != 0 || rootless)
		return 0;
	if (r < 0 && r != -EOPNOTSUPP)
		return r;
	confine_file_programs(&c);
	return confine_self(&c);
}

static int answer(const struct asked *a, struct catalog *c, int why, const struct err *e)
{
	static struct device_plan plan;
	size_t done = 0;
	ssize_t n;

	plan.e = *e;
	plan.result = why < 0 ? why : plan_make(c, a->name, a->names, &a->plan, &plan, &plan.e);
	if (plan.result < 0) {
		const struct err keep = plan.e;

		plan = (struct device_plan){ .result = plan.result, .e = keep };
	}
	while (done < sizeof(plan)) {
		n = write(SPAWN_FIRST, (const char *)&plan + done, sizeof(plan) - done);
		if (n <= 0)
			return 1;
		done += (size_t)n;
	}
	return 0;
}

int main(int argc, char **argv)
{
	static struct catalog catalog;
	struct asked a;
	struct err e = { 0 };
	const int out = fcntl(SPAWN_FIRST, F_GETFD) < 0 ? STDOUT_FILENO : SPAWN_FIRST;
	int r = parse(argc, argv, &a);

	if (r < 0 || (!a.list && (!a.names || fcntl(SPAWN_FIRST, F_GETFD) < 0))) {
		fputs("usage: cloche-devices [--folder FOLDER[:FOLDER]…]… [--root FOLDER] list|text\n", stderr);
		return 2;
	}
	r = drop(a.in.any_owner);
	if (r < 0)
		err_sys(&e, ERR_INTERNAL, r, "cloche-devices cannot give up its privileges");
	else
		r = catalog_load(&a.in, &catalog, &e);
	if (!a.list)
		return answer(&a, &catalog, r, &e);
	if (r == 0)
		r = a.text ? list_text(&catalog, &a.plan, out, &e) :
			     list_print(&catalog, &a.plan, a.name, a.names, out, &e);
	if (r == 0)
		return 0;
	fprintf(stderr, "cloche-devices: %s%s%s\n", e.msg, e.remedy[0] ? "; " : "", e.remedy);
	return 1;
}
