/*
 * cloche-layers: work on the files of layers that needs fewer rights than the warden has.
 *
 * Theory of operation. The warden starts it for a piece of work, with descriptors at fixed places and one socket:
 *
 *  * diff one comparison of two states of a sandbox's files (layers/diff_task.h); then it ends
 *  * check whether a layer's files match its manifest (layers/task.h)
 *  * make layers: copying, summing up, writing to the disk (layers/making.h); until the socket ends
 *
 * The files that it reads are hostile. So before it looks at the first name it gives up all rights that it does not
 * need (rights.c). The warden freezes and thaws sandboxes, and gives a layer its name: until then it is a folder that
 * is removed, by the warden or when the next one starts. So no failure needs a cleanup here. The warden ends it by a
 * signal, SIGTERM makes it give up its work, and it dies with the warden's thread that started it.
 */
#include "base/base.h"
#include "base/score.h"
#include "base/sys.h"
#include "layers/rights.h"
#include "layers/diff_task.h"
#include "layers/serve.h"
#include "layers/task.h"
#include "linux/spawn.h"

#include <signal.h>
#include <unistd.h>

static int stop; /* atomic; set by SIGTERM */

static void on_term(int signal)
{
	(void)signal;
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
}

static int take_task(struct diff_task *ret)
{
	size_t nfds = 0;
	ssize_t n = fd_recv(SPAWN_FIRST + DIFF_CONTROL, ret, sizeof(*ret), NULL, 0, &nfds);

	if (n < 0)
		return (int)n;
	return n == (ssize_t)sizeof(*ret) ? 0 : -EBADMSG;
}

static int compare(void)
{
	static struct diff_task t;
	int fd[DIFF_PLACES], r = take_task(&t);

	for (int i = 0; i < DIFF_PLACES; i++)
		fd[i] = t.places & 1U << i ? SPAWN_FIRST + i : -1;
	if (r == 0)
		r = rights_drop(RIGHTS_DIFF);
	if (r < 0)
		diff_refuse(SPAWN_FIRST + DIFF_OUT, r, "cloche-layers cannot give up its privileges");
	else
		r = diff_run(&t, fd);
	/* The reader waits for the end of the stream: by then the folders are closed, and the warden knows it. */
	for (int i = DIFF_STORE; i < DIFF_PLACES; i++)
		fd_close(fd[i]);
	fd_close(SPAWN_FIRST + DIFF_CONTROL);
	return r;
}

static int work(bool makes)
{
	const int control = SPAWN_FIRST + LAYER_CONTROL;
	int r = rights_drop(makes ? RIGHTS_MAKE : RIGHTS_CHECK), store;

	if (r < 0)
		return serve_refusal(control, r, "cloche-layers cannot give up its privileges");
	/* The descriptor is of a mount, which cannot be synced. */
	store = sys_openat(SPAWN_FIRST + LAYER_STORE, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	if (store < 0)
		return serve_refusal(control, store, "cloche-layers cannot open the layers");
	return serve(control, store, makes, &stop);
}

int main(int argc, char **argv)
{
	const char *what = argc == 2 ? argv[1] : "";

#ifdef CLOCHE_FAULTS
	sys_test_parse(getenv("CLOCHE_FAULT_LAYERS"));
#endif
	if (strcmp(what, "diff") && strcmp(what, "check") && strcmp(what, "make")) {
		fputs("cloche-layers: started by cloche-warden only\n", stderr);
		return 2;
	}
	score_sandbox_self("/proc/self/oom_score_adj"); /* killing it at any moment harms no other process */
	signal(SIGPIPE, SIG_IGN);
	if (!strcmp(what, "diff"))
		return compare() < 0 ? 1 : 0;
	sigaction(SIGTERM, &(struct sigaction){ .sa_handler = on_term, .sa_flags = SA_RESTART }, NULL);
	return work(!strcmp(what, "make")) < 0 ? 1 : 0;
}
