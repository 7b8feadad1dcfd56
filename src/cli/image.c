/* `cloche image vm-kernel`; the other verbs are those of cloche-client. */
#include "base/base.h"
#include "base/sys.h"
#include "cli/commands.h"
#include "engine/program.h"

#include <unistd.h>

static void usage(FILE *to)
{
	fputs("usage: cloche image vm-kernel\n"
	      "Fetches the kernel for virtual machines (Debian's cloud kernel, unpacked, never installed) and the modules that it\n"
	      "needs. Requires apt, lz4, xz-utils and python3, and permission to write to the folder of the programs.\n",
	      to);
}

/* Made beside the program that makes it, which is where vm_file() looks. */
static int fetch_kernel(void)
{
	char program[512], folder[520], python[] = "/usr/bin/python3";
	struct err e = { 0 };
	int r = program_path("cloche-vm-kernel", program, sizeof(program), &e);

	if (r == 0) {
		snprintf(folder, sizeof(folder), "%.*s/vm", (int)(strrchr(program, '/') - program), program);
		r = sys_execve(python, (char *[]){ python, program, folder, NULL }, environ);
		err_sys(&e, ERR_UNSUPPORTED, r, "start %s", python);
		err_remedy(&e, "install python3");
	}
	fprintf(stderr, "cloche: %s%s%s\n", e.msg, e.remedy[0] ? "; " : "", e.remedy);
	return 125;
}

int cmd_image(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	const char *last = argc > 1 ? argv[argc - 1] : "";

	if (argc == 2 && !strcmp(what, "vm-kernel"))
		return fetch_kernel();
	if (strcmp(what, "vm-kernel") != 0)
		return cmd_client(argc, argv);
	if (!strcmp(last, "--help") || !strcmp(last, "-h")) {
		usage(stdout);
		return 0;
	}
	fprintf(stderr,
		"cloche: image: vm-kernel takes no arguments, not '%.60s'; see `cloche image vm-kernel --help`\n",
		argv[2]);
	return 125;
}
