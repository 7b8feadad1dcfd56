/* Processes of cloche-layers that work on the store: starting, asking, keeping and ending them. */
#include "layers/children.h"
#include "base/base.h"
#include "base/log.h"
#include "base/sys.h"
#include "layers/tree.h"
#include "linux/mount.h"
#include "linux/spawn.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>

#define SLICE_MS 5 /* how often a waiting request checks whether it must give up */

struct layer_child {
	pid_t pid;
	int sock;
	int store; /* the store; the caller's */
	bool used; /* by ->tenant */
	bool bad; /* killed, or asked to give up: not to be used again */
	uint64_t tenant;
	char ready[LAYER_NAME]; /* the folder that it made ahead; "" = none */
	bool spent; /* ->ready has become a layer */
};

struct layer_children {
	int program, store;
	/*
	 * by role: detached copies of the store's mount; one for all processes, since no link can cross from one mount
	 * to another
	 */
	int mount[2];
	pthread_mutex_t lock; /* of ->spare */
	struct layer_child *spare;
};

struct layer_children *layer_children_new(int program, int store)
{
	struct layer_children *c = calloc(1, sizeof(*c));

	const uint64_t attrs = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;

	if (!c)
		return NULL;
	c->program = program;
	c->store = store;
	c->mount[LAYER_CHECKS] = program < 0 ? -1 : mount_clone(store, "", attrs | MOUNT_ATTR_RDONLY, -1);
	c->mount[LAYER_MAKES] = program < 0 ? -1 : mount_clone(store, "", attrs, -1);
	pthread_mutex_init(&c->lock, NULL);
	return c;
}

static int child_new(const struct layer_children *c, enum layer_role role, struct layer_child **ret, struct err *e)
{
	char name[] = "cloche-layers", check[] = "check", make[] = "make";
	char *argv[] = { name, role == LAYER_MAKES ? make : check, NULL };
	int fd[LAYER_PLACES] = { [LAYER_STORE] = c->mount[role] }, sock, r;
	struct spawn s = { .program = c->program, .fd = fd, .fds = LAYER_PLACES, .argv = argv };
	struct layer_child *k;

	if (c->program < 0)
		return err_advise(e, ERR_UNSUPPORTED, -EOPNOTSUPP, "install it beside cloche-warden",
				  "checkpoints cannot be made or used: cloche-layers is not installed");
	if (c->mount[role] < 0)
		return err_sys(e, ERR_INTERNAL, c->mount[role], "copy the mount of the layers");
	k = calloc(1, sizeof(*k));
	if (!k)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory to start cloche-layers");
	r = spawn_talking(&s, &sock);
	if (r < 0) {
		free(k);
		return err_sys(e, ERR_EXHAUSTED, r, "start cloche-layers");
	}
	*k = (struct layer_child){ .pid = r, .sock = sock, .store = c->store, .spent = true };
	*ret = k;
	return 0;
}

static void child_end(struct layer_child *k)
{
	if (!k)
		return;
	spawn_end(k->pid);
	fd_close(k->sock);
	/* Otherwise the next start removes it. */
	if (k->ready[0] && tree_remove(k->store, k->ready) < 0)
		log_error("cannot remove '%s' before the next start", k->ready);
	free(k);
}

void layer_children_free(struct layer_children *c)
{
	if (!c)
		return;
	child_end(c->spare);
	fd_close_many(c->mount, ARRAY_LEN(c->mount));
	pthread_mutex_destroy(&c->lock);
	free(c);
}

static struct layer_child *spare_swap(struct layer_children *c, struct layer_child *k)
{
	struct layer_child *was;

	pthread_mutex_lock(&c->lock);
	was = c->spare;
	c->spare = k;
	pthread_mutex_unlock(&c->lock);
	return was;
}

/* The process has read hostile files, so every field of its answer is checked. */
static int check(struct layer_answer *a)
{
	a->name[sizeof(a->name) - 1] = '\0';
	err_clean(a->name);
	return spawn_answered(a->result, &a->e) ? 0 : -ECHILD;
}

int layer_child_ask(struct layer_child *k, const struct layer_ask *ask, const int *fds, unsigned n, const int *stop,
		    struct layer_answer *ret, int *ret_fds, unsigned max)
{
	struct pollfd p = { .fd = k->sock, .events = POLLIN };
	bool told = false;
	size_t nfds = 0;
	ssize_t len;
	int r = fd_send_now(k->sock, ask, sizeof(*ask), fds, n);

	for (unsigned i = 0; i < max; i++)
		ret_fds[i] = -1;
	while (r == 0 && poll(&p, 1, told ? -1 : SLICE_MS) < 1)
		if (!told && stop && __atomic_load_n(stop, __ATOMIC_RELAXED)) {
			told = k->bad = true;
			kill(k->pid, SIGTERM); /* our child, and not reaped */
		}
	len = r == 0 ? fd_recv(k->sock, ret, sizeof(*ret), ret_fds, max, &nfds) : r;
	if (len == (ssize_t)sizeof(*ret) && check(ret) == 0)
		return 0;
	for (unsigned i = 0; i < max; i++)
		fd_close(TAKE_FD(ret_fds[i]));
	k->bad = true;
	return -ECHILD;
}

/* Ends what @k has made, and makes the folder for the next layer, unless there is one. */
static bool fill(struct layer_child *k)
{
	const struct layer_ask ask = { .op = LAYER_FILL };
	struct layer_answer a;

	if (k->bad || layer_child_ask(k, &ask, NULL, 0, NULL, &a, NULL, 0) < 0 || a.result < 0)
		return false;
	memcpy(k->ready, a.name, sizeof(k->ready));
	k->spent = false;
	return true;
}

void layer_children_fill(struct layer_children *c)
{
	struct layer_child *k = c ? spare_swap(c, NULL) : NULL;

	if (!c || c->program < 0)
		return;
	if (!k && child_new(c, LAYER_MAKES, &k, NULL) < 0)
		return;
	layer_child_give(c, k);
}

void layer_child_give(struct layer_children *c, struct layer_child *k)
{
	if (k && (!k->spent || fill(k)))
		k = spare_swap(c, k);
	child_end(k);
}

int layer_child_take(struct layer_children *c, uint64_t tenant, struct layer_child **ret, struct err *e)
{
	struct layer_child *k = spare_swap(c, NULL);
	int r = 0;

	/* A process that was killed meanwhile is noticed here: its socket has ended. */
	if (k && ((k->used && k->tenant != tenant) ||
		  poll(&(struct pollfd){ .fd = k->sock, .events = POLLIN }, 1, 0) == 1)) {
		child_end(k);
		k = NULL;
	}
	if (!k)
		r = child_new(c, LAYER_MAKES, &k, e);
	if (r < 0)
		return r;
	k->used = true;
	k->tenant = tenant;
	k->spent = true;
	*ret = k;
	return 0;
}

int layer_children_do(struct layer_children *c, enum layer_role role, const struct layer_ask *ask, const int *stop,
		      struct layer_answer *ret)
{
	struct layer_child *k;
	int r = child_new(c, role, &k, NULL);

	if (r < 0)
		return r;
	r = layer_child_ask(k, ask, NULL, 0, stop, ret, NULL, 0);
	child_end(k);
	return r;
}
