/* The warden's end of cloche-watch. */
#include "engine/kernel_memory/link.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/sys.h"
#include "engine/kernel_memory/quick.h"
#include "engine/kernel_memory/watch_msg.h"
#include "linux/spawn.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

#define START_MS 5000 /* ms until it must be READY */
#define FULL_MS 1000 /* its socket has been full this long: it does not read */
#define AGAIN_MS 10 /* delay between two failing starts */
#define OWNER_S 1 /* how long the caller waits for the owner of a socket */
#define BLIND_AGAIN_MS 500 /* interval of ending all sandboxes while there is no watch */
#define NS(ms) ((ms)*1000000ULL)

struct link {
	struct kernel_looker_opts o;
	pthread_t thread;
	int stop; /* an eventfd */
	pid_t pid; /* id of cloche-watch, for the thread; 0: not running */
	pthread_mutex_t lock; /* protects all members below */
	pthread_cond_t begun; /* ->first or ->owner has changed, or it has ended */
	int sock; /* -1: not running */
	bool blind; /* unwatched too long: no sandbox may be added */
	bool first; /* the first one has started, or failed */
	struct err error; /* why it failed */
	uint64_t adds; /* number of ADD messages sent to the present process */
	bool idle; /* it has reported that it has no sandbox, and none was added since */
	uint64_t asked; /* number of the last ASK */
	struct watch_msg owner; /* the answer to it; ->kind 0: none yet */
	uint64_t ended[WATCH_LIVES]; /* when the last processes ended; a ring */
	unsigned nended;
};

/* ---- the program ------------------------------------------------------------------------------------------------ */

static void fill(const struct link *k, int fd[static WATCH_PLACES], struct watch_msg *start)
{
	const struct cgroup_host *h = k->o.host;

	*start = (struct watch_msg){ .kind = WATCH_START };
	start->start.version = (uint64_t)h->version;
	start->start.have = h->have;
	start->start.percent = k->o.percent;
	fd[WATCH_CONTROL] = -1;
	for (unsigned i = 0; i < CGROUP_CONTROLLERS; i++) {
		fd[WATCH_BASE + i] = h->version == 2 && i ? -1 : h->base[i];
		start->start.places |= fd[WATCH_BASE + i] >= 0 ? 1U << i : 0;
	}
}

static void reap(struct link *k)
{
	spawn_end(k->pid);
	k->pid = 0;
}

/* Waits until it is READY, for START_MS at most: 0. */
static int wait_ready(int sock)
{
	struct pollfd p = { .fd = sock, .events = POLLIN };
	struct watch_msg m;
	size_t nfds;
	ssize_t n;

	if (poll(&p, 1, START_MS) != 1)
		return -ETIMEDOUT;
	n = fd_recv(sock, &m, sizeof(m), NULL, 0, &nfds);
	return n == (ssize_t)sizeof(m) && m.kind == WATCH_READY ? 0 : n < 0 ? (int)n : -EPIPE;
}

/* Starts it. Returns its socket once it is ready, or -errno. */
static int launch(struct link *k)
{
	char name[] = "cloche-watch";
	char *argv[] = { name, NULL };
	int fd[WATCH_PLACES], r;
	struct spawn s = { .program = k->o.program, .fd = fd, .fds = WATCH_PLACES, .argv = argv };
	struct watch_msg start;
	AUTO_CLOSE int sock = -1;

	fill(k, fd, &start);
	r = spawn_talking(&s, &sock);
	if (r < 0)
		return r;
	k->pid = r;
	r = fd_send_now(sock, &start, sizeof(start), NULL, 0);
	if (r == 0)
		r = wait_ready(sock);
	if (r < 0)
		reap(k);
	return r < 0 ? r : TAKE_FD(sock);
}

/* ---- what is sent ----------------------------------------------------------------------------------------------- */

/* Called with ->lock held. A process that does not read is ended, and its successor gets the whole list. */
static void send_it(struct link *k, const struct watch_msg *m, const int *fds, size_t nfds)
{
	struct pollfd p = { .fd = k->sock, .events = POLLOUT };
	int r = k->sock < 0 ? 0 : -EAGAIN;

	while (r == -EAGAIN) {
		r = fd_send_now(k->sock, m, sizeof(*m), fds, nfds);
		if (r == -EAGAIN && poll(&p, 1, FULL_MS) == 0)
			r = -ETIMEDOUT;
	}
	if (r < 0)
		shutdown(k->sock, SHUT_RDWR); /* the thread notices the end */
}

static void tell(struct link *k, const struct watch_msg *m)
{
	pthread_mutex_lock(&k->lock);
	send_it(k, m, NULL, 0);
	pthread_mutex_unlock(&k->lock);
}

static int link_add(void *l, const struct kernel_subject *s, const int fd[KERNEL_FDS])
{
	struct watch_msg m = { .kind = WATCH_ADD, .id = s->id, .add = *s };
	int fds[KERNEL_FDS], n = 0, r;
	struct link *k = l;

	for (unsigned i = 0; i < KERNEL_FDS; i++)
		if (fd[i] >= 0) {
			m.add.fds |= 1U << i;
			fds[n++] = fd[i];
		}
	pthread_mutex_lock(&k->lock);
	r = k->blind ? -EHOSTDOWN : 0;
	if (r == 0 && k->sock >= 0) {
		k->adds++;
		k->idle = false;
		send_it(k, &m, fds, (size_t)n);
	}
	pthread_mutex_unlock(&k->lock);
	return r;
}

static void link_remove(void *l, uint64_t id)
{
	tell(l, &(struct watch_msg){ .kind = WATCH_REMOVE, .id = id });
}

static void link_limit(void *l, uint64_t id, uint64_t memory)
{
	tell(l, &(struct watch_msg){ .kind = WATCH_LIMIT, .id = id, .memory = memory });
}

static bool link_owner(void *l, pid_t first, uint64_t inode, struct socket_owner *ret)
{
	struct watch_msg m = { .kind = WATCH_ASK, .ask = { (uint64_t)first, inode } };
	struct link *k = l;
	struct timespec t;
	bool found;

	clock_gettime(CLOCK_REALTIME, &t);
	t.tv_sec += OWNER_S;
	pthread_mutex_lock(&k->lock);
	m.id = ++k->asked;
	k->owner.kind = 0;
	send_it(k, &m, NULL, 0);
	while (k->sock >= 0 && !k->owner.kind && pthread_cond_timedwait(&k->begun, &k->lock, &t) == 0)
		;
	found = k->owner.kind && k->owner.owner.found;
	*ret = k->owner.kind ? k->owner.owner.is : (struct socket_owner){ 0 };
	pthread_mutex_unlock(&k->lock);
	ret->command[sizeof(ret->command) - 1] = '\0';
	return found;
}

/* ---- what comes ------------------------------------------------------------------------------------------------- */

static void take_alive(struct link *k, const struct watch_msg *m)
{
	pthread_mutex_lock(&k->lock);
	k->idle = m->alive.idle && m->alive.adds == k->adds;
	pthread_mutex_unlock(&k->lock);
}

/* One that comes late is the answer to no question. */
static void take_owner(struct link *k, const struct watch_msg *m)
{
	pthread_mutex_lock(&k->lock);
	if (m->id == k->asked)
		k->owner = *m;
	pthread_cond_broadcast(&k->begun);
	pthread_mutex_unlock(&k->lock);
}

/* False: it is not a valid message. */
static bool take(struct link *k, const struct watch_msg *m)
{
	const struct kernel_sink *s = &k->o.sink;

	if (m->kind == WATCH_FIGURES)
		s->figures(s->arg, m->id, &m->figures);
	else if (m->kind == WATCH_OWNER)
		take_owner(k, m);
	else if (m->kind == WATCH_ACT)
		tell(k, &(struct watch_msg){ .kind = WATCH_DONE, .id = m->id, .done = s->act(s->arg, m->id, &m->act) });
	else if (m->kind == WATCH_ALIVE)
		take_alive(k, m);
	else
		return false;
	return true;
}

/* Serves it until it ends, or must be ended. True: the link itself is closed. */
static bool serve(struct link *k, int sock)
{
	struct pollfd p[] = { { .fd = sock, .events = POLLIN }, { .fd = k->stop, .events = POLLIN } };
	uint64_t heard = clock_mono_ns();

	for (;;) {
		struct watch_msg m;
		size_t nfds;
		ssize_t n;
		bool quiet;
		int r;

		pthread_mutex_lock(&k->lock);
		quiet = k->idle; /* when a sandbox is added again, the next round sets the clock */
		pthread_mutex_unlock(&k->lock);
		r = poll(p, 2, WATCH_ALIVE_MS);

		if (p[1].revents)
			return true;
		if (r == 0 && !quiet && clock_mono_ns() - heard > NS(WATCH_SILENT_MS)) {
			log_error("cloche-watch does not look at sandboxes any more, and is ended");
			return false;
		}
		heard = quiet ? clock_mono_ns() : heard;
		if (r <= 0)
			continue;
		n = fd_recv(sock, &m, sizeof(m), NULL, 0, &nfds);
		if (n != (ssize_t)sizeof(m) || !take(k, &m))
			return false;
		heard = clock_mono_ns();
	}
}

/* ---- its lives -------------------------------------------------------------------------------------------------- */

/* From here it gets all changes. */
static void begin(struct link *k, int sock)
{
	pthread_mutex_lock(&k->lock);
	k->sock = sock;
	k->adds = 0;
	k->idle = true;
	k->blind = false;
	k->first = true;
	pthread_cond_broadcast(&k->begun);
	pthread_mutex_unlock(&k->lock);
	k->o.sink.again(k->o.sink.arg);
}

static void end(struct link *k)
{
	pthread_mutex_lock(&k->lock);
	fd_close(TAKE_FD(k->sock));
	pthread_cond_broadcast(&k->begun);
	k->ended[k->nended++ % WATCH_LIVES] = clock_mono_ns();
	pthread_mutex_unlock(&k->lock);
	reap(k);
}

static bool too_often(const struct link *k, uint64_t now)
{
	return k->nended >= WATCH_LIVES && now - k->ended[k->nended % WATCH_LIVES] < NS(WATCH_LIVES_MS);
}

static void go_blind(struct link *k, int r)
{
	pthread_mutex_lock(&k->lock);
	k->blind = true;
	if (!k->first)
		err_sys(&k->error, ERR_INTERNAL, r, "start cloche-watch");
	k->first = true;
	pthread_cond_broadcast(&k->begun);
	pthread_mutex_unlock(&k->lock);
	log_error("sandboxes are not watched by cloche-watch (errno %d): all that have a memory limit are ended", -r);
	k->o.sink.blind(k->o.sink.arg);
}

static void *run(void *arg)
{
	struct link *k = arg;
	uint64_t since = clock_mono_ns();
	struct pollfd p = { .fd = k->stop, .events = POLLIN };
	int pause = 0;

	sys_test_spare();
	kernel_quick(true);
	while (poll(&p, 1, pause) <= 0) {
		int sock = launch(k);
		const uint64_t now = clock_mono_ns();

		if (sock >= 0 && !too_often(k, now)) {
			begin(k, sock);
			if (serve(k, sock)) {
				end(k);
				break;
			}
			end(k);
			log_warn("cloche-watch has ended, and is started again");
			since = clock_mono_ns();
			pause = 0;
			continue;
		}
		if (sock >= 0) {
			fd_close(sock);
			reap(k);
			sock = -ELOOP;
		}
		if (!k->blind && (sock == -ELOOP || !k->first || now - since > NS(WATCH_BLIND_MS)))
			go_blind(k, sock);
		pause = k->blind ? BLIND_AGAIN_MS : AGAIN_MS;
	}
	return NULL;
}

static void link_free(void *l)
{
	struct link *k = l;

	if (!k)
		return;
	eventfd_write(k->stop, 1);
	pthread_join(k->thread, NULL);
	fd_close(k->stop);
	pthread_cond_destroy(&k->begun);
	pthread_mutex_destroy(&k->lock);
	free(k);
}

static int link_new(const struct kernel_looker_opts *o, void **ret, struct err *e)
{
	struct link *k = o->program < 0 ? NULL : calloc(1, sizeof(*k));
	int r;

	if (o->program < 0)
		return err_advise(e, ERR_UNSUPPORTED, -ENOENT, "install it beside cloche-warden",
				  "memory limits cannot be watched: cloche-watch is not installed");
	if (!k)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory to watch sandboxes");
	k->o = *o;
	k->sock = -1;
	pthread_mutex_init(&k->lock, NULL);
	pthread_cond_init(&k->begun, NULL);
	k->stop = eventfd(0, EFD_CLOEXEC);
	r = k->stop < 0 ? -errno : -pthread_create(&k->thread, NULL, run, k);
	if (r < 0) {
		fd_close(k->stop);
		free(k);
		return err_sys(e, ERR_EXHAUSTED, r, "start a thread for cloche-watch");
	}
	pthread_mutex_lock(&k->lock);
	while (!k->first)
		pthread_cond_wait(&k->begun, &k->lock);
	r = k->blind ? -k->error.errnum : 0;
	if (r < 0 && e)
		*e = k->error;
	pthread_mutex_unlock(&k->lock);
	if (r < 0)
		link_free(k);
	else
		*ret = k;
	return r;
}

const struct kernel_looker kernel_looker_process = { .apart = true,
						     .new = link_new,
						     .add = link_add,
						     .remove = link_remove,
						     .limit = link_limit,
						     .owner = link_owner,
						     .free = link_free };
