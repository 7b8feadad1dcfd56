/* Starts, watches and ends the daemon's processes. */
#include "daemon/supervisor.h"
#include "base/base.h"
#include "base/score.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/room.h"
#include "base/sys.h"
#include "daemon/folder.h"
#include "daemon/key_command.h"
#include "daemon/listen.h"
#include "daemon/memory_key.h"
#include "daemon/places.h"
#include "daemon/ready.h"
#include "daemon/restart.h"
#include "linux/kvm.h"
#include "service/state/turn.h"
#include "vm/host/verdict.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define HURRY_MS 1000 /* after a second signal */
#define WARDEN_END_MS 15000
#define WARDEN_END_ALL_MS 60000
#define EGRESS_REST_MS 10000
#define NO_ROOM_MS 2000
#define NEVER UINT64_MAX

enum phase { SERVING, DRAINING, ENDING, OVER };

struct child {
	const char *name;
	pid_t pid; /* 0: not running */
	int pidfd;
	uint64_t start_at; /* ms, when it does not run: NEVER = not again */
	struct restart restart;
};

struct supervisor {
	const struct supervisor_opts *o;
	struct places places;
	struct child api, warden, egress;
	int egress_program; /* O_PATH: egress's user may not be able to enter its folder */
	int signals, life[2];
	int ready; /* what the API process says; -1 after it did */
	bool was_ready;
	enum phase phase;
	uint64_t deadline;
	sigset_t mask; /* as we were started */
	uint8_t key[DAEMON_KEY]; /* of secrets, as the command gave it: each API process gets it */
	size_t key_len;
	uint8_t old_key[DAEMON_KEY]; /* the one of before, likewise */
	size_t old_key_len;
	int memory_keys; /* for the warden: see daemon/memory_key.h; -1: none */
	bool kvm; /* see daemon.h */
	char accel_why[160];
	struct err failed; /* why it ends, unless it was asked to */
	int result;
};

static uint64_t now_ms(void)
{
	return clock_mono_ns() / 1000000;
}

/* ---- starting ---------------------------------------------------------------------------------------------------- */

/* In a child: out of our terminal's signals, and gone when we are. */
static void child_begin(pid_t parent, int death)
{
	setsid();
	if (sys_prctl(PR_SET_PDEATHSIG, (unsigned long)death, 0, 0, 0) < 0 || getppid() != parent)
		_exit(125);
	unsetenv("NOTIFY_SOCKET");
	unsetenv("WATCHDOG_PID");
	unsetenv("WATCHDOG_USEC");
}

static int child_started(struct child *c, pid_t pid, struct err *e)
{
	c->pidfd = sys_pidfd_open(pid, 0);
	if (c->pidfd < 0) {
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		return err_sys(e, ERR_EXHAUSTED, c->pidfd, "start %s", c->name);
	}
	c->pid = pid;
	c->start_at = NEVER;
	return 0;
}

_Noreturn static void api_child(struct supervisor *s, pid_t parent, int ready)
{
	struct places *p = &s->places;
	struct daemon_start start = {
		.config = &p->config,
		.unix_listener = p->unix_listener,
		.warden_place = p->warden_place,
		.egress_place = p->egress_place,
		.ready = ready,
		.life = s->life[0],
		.owner = p->owner,
		.kvm = s->kvm,
		.accel_why = s->accel_why,
		.secrets_key = s->key_len ? s->key : NULL,
		.secrets_key_len = s->key_len,
		.secrets_old_key = s->old_key_len ? s->old_key : NULL,
		.secrets_old_key_len = s->old_key_len,
		.beside = p->beside || s->was_ready,
		.recover = p->recover,
		.layers = p->layers,
		.nlayers = p->nlayers,
	};

	child_begin(parent, SIGKILL);
	umask(077);
	memcpy(start.listener, p->listener, sizeof(start.listener));
	memcpy(start.token, p->token, sizeof(start.token));
	/* The lock stays open: as long as any of us lives, no other daemon starts on this folder. */
	fd_close(p->warden_listener);
	fd_close(p->egress_listener);
	fd_close(s->egress_program);
	fd_close(s->memory_keys);
	if (p->reached)
		fd_close(p->data);
	else /* it stays open, for as long as we live */
		snprintf(p->config.data, sizeof(p->config.data), "/proc/self/fd/%d", p->data);
	fd_close(s->life[1]);
	fd_close(s->signals);
	fd_close(s->warden.pidfd);
	fd_close(s->egress.pidfd);
	sigprocmask(SIG_SETMASK, &s->mask, NULL);
	signal(SIGPIPE, SIG_DFL);
	exit(s->o->serve(&start));
}

static int start_api(struct supervisor *s, struct err *e)
{
	pid_t parent = getpid(), pid;
	int pipe[2], r;

	r = sys_pipe2(pipe, O_CLOEXEC);
	if (r < 0)
		return err_sys(e, ERR_EXHAUSTED, r, "make a pipe");
	pid = fork();
	if (pid == 0) {
		fd_close(pipe[0]);
		api_child(s, parent, pipe[1]);
	}
	r = pid < 0 ? -errno : 0;
	fd_close(pipe[1]);
	fd_close(s->ready);
	s->ready = pipe[0];
	return r < 0 ? err_sys(e, ERR_EXHAUSTED, r, "fork") : child_started(&s->api, pid, e);
}

#define WARDEN_ARGS 112

struct warden_args {
	char *argv[WARDEN_ARGS];
	unsigned n;
	char fd[16], uid[16], pool[16], parent[16], keys[16];
	char disks[DAEMON_PATH + 8], layers[DAEMON_PATH + 8], vm[DAEMON_PATH + 8], vm_ready[16], sockets[16], share[16];
};

static void add_arg(struct warden_args *a, const char *option, const char *value)
{
	assert(a->n + 2 < WARDEN_ARGS);
	a->argv[a->n++] = (char *)(uintptr_t)option;
	if (value)
		a->argv[a->n++] = (char *)(uintptr_t)value;
}

static void warden_command(const struct supervisor *s, struct warden_args *a)
{
	const struct daemon_config *c = &s->places.config;

	*a = (struct warden_args){ 0 };
	snprintf(a->fd, sizeof(a->fd), "%d", s->places.warden_listener);
	snprintf(a->uid, sizeof(a->uid), "%u", s->places.who.uid);
	snprintf(a->pool, sizeof(a->pool), "%u", c->pool);
	snprintf(a->parent, sizeof(a->parent), "%d", getpid());
	add_arg(a, "cloche-warden", NULL);
	add_arg(a, "--keep", NULL);
	add_arg(a, "--state", s->places.state);
	add_arg(a, "--socket-fd", a->fd);
	add_arg(a, "--uid", a->uid);
	add_arg(a, "--pool", a->pool);
	add_arg(a, "--parent", a->parent);
	if (c->layers[0])
		snprintf(a->layers, sizeof(a->layers), "%s", c->layers);
	else
		snprintf(a->layers, sizeof(a->layers), "%s/layers", c->data);
	add_arg(a, "--layers", a->layers);
	snprintf(a->disks, sizeof(a->disks), "%s/disks", c->data);
	add_arg(a, "--disks", a->disks);
	if (c->vm[0])
		snprintf(a->vm, sizeof(a->vm), "%s", c->vm);
	else
		snprintf(a->vm, sizeof(a->vm), "%s/vm", c->data);
	snprintf(a->vm_ready, sizeof(a->vm_ready), "%u", c->vm_ready);
	add_arg(a, "--vm", a->vm);
	add_arg(a, "--vm-ready", a->vm_ready);
	add_arg(a, "--vm-accel",
		!strcmp(c->vm_accel, "kvm") ? "2" :
		!strcmp(c->vm_accel, "tcg") ? "1" :
					      "0"); /* enum env_accel */
	snprintf(a->sockets, sizeof(a->sockets), "%u", c->sandbox_sockets);
	add_arg(a, "--sockets", a->sockets);
	snprintf(a->share, sizeof(a->share), "%u", c->tenant_share);
	add_arg(a, "--tenant-share", a->share);
	if (!c->share_memory)
		add_arg(a, "--no-share", NULL);
	if (s->memory_keys >= 0) {
		snprintf(a->keys, sizeof(a->keys), "%d", s->memory_keys);
		add_arg(a, "--memory-keys-fd", a->keys);
	}
	if (c->images[0])
		add_arg(a, "--images", c->images);
	for (unsigned i = 0; i < c->nallow_mount; i++)
		add_arg(a, "--allow-mount", c->allow_mount[i]);
	for (unsigned i = 0; i < c->nallow_device; i++)
		add_arg(a, "--allow-device", c->allow_device[i]);
	if (c->cdi_folders[0])
		add_arg(a, "--cdi", c->cdi_folders);
}

static int start_warden(struct supervisor *s, struct err *e)
{
	pid_t parent = getpid(), pid;
	struct warden_args a;
	int r;

	warden_command(s, &a);
	pid = fork();
	if (pid < 0)
		return err_sys(e, ERR_EXHAUSTED, -errno, "fork");
	if (pid == 0) {
		/*
		 * Our signals stay blocked in it until it has made its signalfd: one that comes early waits instead of
		 * killing it in the middle of finding its sandboxes again.
		 */
		child_begin(parent, SIGTERM);
		signal(SIGPIPE, SIG_DFL);
		r = sys_fcntl(s->places.warden_listener, F_SETFD, 0);
		if (r == 0 && s->memory_keys >= 0)
			r = sys_fcntl(s->memory_keys, F_SETFD, 0);
		if (r == 0)
			r = sys_execve(s->o->warden, a.argv, environ);
		log_error("start %s: %s", s->o->warden, strerror(-r));
		_exit(127);
	}
	return child_started(&s->warden, pid, e);
}

/* It gets only its listening socket, by which its owner connects; no other descriptor stays open in it. */
_Noreturn static void egress_child(struct supervisor *s, pid_t parent)
{
	char listen[16], pid[16], name[] = "cloche-egress", fd_opt[] = "--listen-fd", parent_opt[] = "--parent";
	char *argv[] = { name, fd_opt, listen, parent_opt, pid, NULL };
	char path[32];
	struct identity who;
	struct err e = { 0 };
	int r;

	child_begin(parent, SIGKILL);
	sigprocmask(SIG_SETMASK, &s->mask, NULL);
	signal(SIGPIPE, SIG_DFL);
	snprintf(listen, sizeof(listen), "%d", s->places.egress_listener);
	snprintf(pid, sizeof(pid), "%d", parent);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", s->egress_program);
	r = identity_find(IDENTITY_EGRESS, &who, &e);
	if (r == 0)
		r = identity_become(&who, parent, &e);
	if (r == 0) {
		r = sys_fcntl(s->places.egress_listener, F_SETFD, 0);
		if (r == 0)
			r = sys_execve(path, argv, environ);
		err_sys(&e, ERR_INTERNAL, r, "start %.200s", s->o->egress);
	}
	log_error("%s", e.msg);
	_exit(127);
}

static int start_egress(struct supervisor *s, struct err *e)
{
	pid_t parent = getpid(), pid = fork();

	if (pid < 0)
		return err_sys(e, ERR_EXHAUSTED, -errno, "fork");
	if (pid == 0)
		egress_child(s, parent);
	return child_started(&s->egress, pid, e);
}

/* ---- ending ------------------------------------------------------------------------------------------------------ */

static void end_warden(struct supervisor *s)
{
	bool all = s->places.config.stop_sandboxes && s->result == 0;
	struct err e = { 0 };

	/* What it left running can only be ended by one that finds it again. */
	if (!s->warden.pid && all && start_warden(s, &e) < 0)
		log_error("%s", e.msg);
	s->warden.start_at = s->egress.start_at = NEVER;
	if (s->egress.pid) /* it has nothing to finish: its streams are reset, so that their ends do not look regular */
		sys_pidfd_send_signal(s->egress.pidfd, SIGKILL);
	if (!s->warden.pid) {
		s->phase = OVER;
		return;
	}
	s->phase = ENDING;
	s->deadline = now_ms() + (all ? WARDEN_END_ALL_MS : WARDEN_END_MS);
	sys_pidfd_send_signal(s->warden.pidfd, all ? SIGUSR1 : SIGTERM);
}

static void drain_api(struct supervisor *s)
{
	ready_notify("STOPPING=1");
	s->api.start_at = NEVER;
	if (!s->api.pid) {
		end_warden(s);
		return;
	}
	s->phase = DRAINING;
	s->deadline = now_ms() + SUPERVISOR_DRAIN_MS;
	sys_pidfd_send_signal(s->api.pidfd, SIGTERM);
}

static void hurry(struct supervisor *s)
{
	uint64_t soon = now_ms() + HURRY_MS;

	if (s->deadline > soon)
		s->deadline = soon;
	if (s->phase == DRAINING && s->api.pid)
		sys_pidfd_send_signal(s->api.pidfd, SIGTERM);
}

static void told_to_end(struct supervisor *s)
{
	switch (s->phase) {
	case SERVING:
		drain_api(s);
		break;
	case DRAINING:
	case ENDING:
		hurry(s);
		break;
	case OVER:
		break;
	}
}

/* @r and s->failed say why. */
static void give_up(struct supervisor *s, int r)
{
	s->result = r;
	if (s->phase == SERVING)
		drain_api(s);
}

static void too_late(struct supervisor *s)
{
	struct child *c = s->phase == DRAINING ? &s->api : &s->warden;

	log_warn("%s did not end in time and was killed", c->name);
	if (c->pid)
		sys_pidfd_send_signal(c->pidfd, SIGKILL);
	s->deadline = NEVER;
}

/* ---- deaths ------------------------------------------------------------------------------------------------------ */

static void tell_death(const struct child *c, int status, char *text, size_t size)
{
	if (WIFSIGNALED(status))
		snprintf(text, size, "%s was killed by signal %d", c->name, WTERMSIG(status));
	else
		snprintf(text, size, "%s ended with exit code %d", c->name, WEXITSTATUS(status));
}

/* The API process has no room for its state. Of a page of a file that the disk has none for the kernel says it by SIGBUS. */
static bool lacks_room(const struct supervisor *s, int status)
{
	struct room disk;

	if (WIFEXITED(status))
		return WEXITSTATUS(status) == EXIT_NO_ROOM;
	return WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS && room_of_fd(s->places.data, &disk) == 0 &&
	       disk.left < room_low(&disk, ROOM_WORK);
}

/* It ended by itself: it is started again, unless that is useless. */
static void died(struct supervisor *s, struct child *c, int status)
{
	char text[100];
	int pause;

	tell_death(c, status, text, sizeof(text));
	if (!s->was_ready && WIFEXITED(status)) {
		/* It has said why. Trying ten times would say it ten times. */
		give_up(s, err_set(&s->failed, ERR_LOST, -ECHILD, "%s before it was ready", text));
		return;
	}
	if (c == &s->api && WIFEXITED(status) && WEXITSTATUS(status) == DAEMON_EXIT_STATE) {
		give_up(s, err_set(&s->failed, ERR_CONFLICT, -ESTALE,
				   "the API process refuses the state in the data folder; sandboxes continue to run"));
		return;
	}
	if (c == &s->api && lacks_room(s, status)) {
		log_error("the API process has no space for its state; it is started again every %d s until there is "
			  "space",
			  NO_ROOM_MS / 1000);
		c->start_at = now_ms() + NO_ROOM_MS;
		return;
	}
	pause = restart_after(&c->restart, now_ms(), WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	/*
	 * Traffic of sandboxes may be what kills it. Sandboxes without a network, and the API, must not suffer from
	 * that: it is started again after a pause, and until then sandboxes have no network.
	 */
	if (pause < 0 && c == &s->egress) {
		log_error("%s: %d times within %d s; the next start is in %d s, until then sandboxes have no network",
			  text, RESTART_DEATHS, RESTART_WITHIN_MS / 1000, EGRESS_REST_MS / 1000);
		c->restart = (struct restart){ 0 };
		c->start_at = now_ms() + EGRESS_REST_MS;
		return;
	}
	if (pause < 0) {
		err_set(&s->failed, ERR_LOST, -ECHILD, "%s: %d times within %d s, giving up", text, RESTART_DEATHS,
			RESTART_WITHIN_MS / 1000);
		err_remedy(&s->failed, "see the lines above for the reason; running sandboxes are kept");
		give_up(s, -ECHILD);
		return;
	}
	log_warn("%s; starting it again", text);
	c->start_at = now_ms() + (unsigned)pause;
}

static void reap(struct supervisor *s, struct child *c)
{
	int status = 0;
	char text[100];

	if (waitpid(c->pid, &status, WNOHANG) != c->pid)
		return;
	fd_close(c->pidfd);
	c->pidfd = -1;
	c->pid = 0;
	switch (s->phase) {
	case SERVING:
		died(s, c, status);
		break;
	case DRAINING:
		if (c == &s->api)
			end_warden(s);
		else
			died(s, c, status); /* the API still needs it for its last calls */
		break;
	case ENDING:
		if (c == &s->warden) { /* the last */
			tell_death(c, status, text, sizeof(text));
			if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
				log_warn("%s while ending", text);
			s->phase = OVER;
		}
		break;
	case OVER:
		break;
	}
}

/* ---- the loop ---------------------------------------------------------------------------------------------------- */

static void warn_of_plain_http(const struct daemon_config *c)
{
	for (size_t i = 0; i < c->nlisten; i++)
		if (!c->listen[i].tls && !listen_is_local(c->listen[i].text))
			log_warn("%s is reachable from other machines without TLS: tokens and all data are sent in "
				 "clear text; use --tls-cert and --tls-key, or 127.0.0.1 behind a proxy with TLS",
				 c->listen[i].text);
}

static void say_ready(struct supervisor *s)
{
	AUTO(buf_done) struct buf text = BUF_INIT(16384);
	struct places *p = &s->places;
	char state[256];
	int r = 0;

	s->was_ready = true;
	folder_used(p->data, &p->who);
	snprintf(state, sizeof(state), "READY=1\nMAINPID=%d\nSTATUS=serving on %s", getpid(), p->config.listen[0].text);
	if (ready_notify(state) < 0)
		log_warn("cannot report to NOTIFY_SOCKET that the daemon is ready");
	r = ready_lines(&(struct ready_text){ .config = &p->config, .shown = p->shown, .token = p->token }, &text);
	if (r == 0)
		r = fd_write_all(s->o->out, text.data, text.len);
	if (r < 0)
		log_warn("cannot print the address and token: %s", strerror(-r));
	warn_of_plain_http(&p->config);
	if (text.data)
		explicit_bzero(text.data, text.len);
	/* The token is in the state now. One from a file is passed at every start, since the state may be a backup. */
	if (!p->config.token_file[0])
		explicit_bzero(p->token, sizeof(p->token));
}

static void read_ready(struct supervisor *s)
{
	char byte;
	ssize_t n = sys_read(s->ready, &byte, 1);

	if (n == -EINTR || n == -EAGAIN)
		return;
	fd_close(s->ready);
	s->ready = -1;
	if (n == 1 && !s->was_ready)
		say_ready(s);
}

static void read_signals(struct supervisor *s)
{
	struct signalfd_siginfo i;

	while (sys_read(s->signals, &i, sizeof(i)) == (ssize_t)sizeof(i))
		told_to_end(s);
}

static uint64_t next_time(const struct supervisor *s)
{
	uint64_t t = s->deadline;

	if (s->api.start_at < t)
		t = s->api.start_at;
	if (s->egress.start_at < t)
		t = s->egress.start_at;
	return s->warden.start_at < t ? s->warden.start_at : t;
}

static void do_due(struct supervisor *s)
{
	uint64_t now = now_ms();
	int r = 0;

	if (s->deadline <= now)
		too_late(s);
	if (s->warden.start_at <= now)
		r = start_warden(s, &s->failed);
	if (r == 0 && s->egress.start_at <= now)
		r = start_egress(s, &s->failed);
	if (r == 0 && s->api.start_at <= now)
		r = start_api(s, &s->failed);
	if (r < 0) {
		s->warden.start_at = s->api.start_at = s->egress.start_at = NEVER;
		give_up(s, r);
	}
}

static int turn(struct supervisor *s, struct err *e)
{
	struct pollfd p[] = {
		{ .fd = s->signals, .events = POLLIN },	     { .fd = s->api.pidfd, .events = POLLIN },
		{ .fd = s->warden.pidfd, .events = POLLIN }, { .fd = s->ready, .events = POLLIN },
		{ .fd = s->egress.pidfd, .events = POLLIN },
	};
	uint64_t t = next_time(s), now = now_ms();
	int wait = t == NEVER ? -1 : t <= now ? 0 : t - now > 60000 ? 60000 : (int)(t - now);

	if (poll(p, ARRAY_LEN(p), wait) < 0) {
		if (errno == EINTR)
			return 0;
		return err_sys(e, ERR_INTERNAL, -errno, "poll");
	}
	if (p[0].revents)
		read_signals(s);
	if (p[3].revents)
		read_ready(s);
	if (p[1].revents)
		reap(s, &s->api);
	if (p[2].revents)
		reap(s, &s->warden);
	if (p[4].revents)
		reap(s, &s->egress);
	if (s->phase != OVER)
		do_due(s);
	return 0;
}

static int begin(struct supervisor *s, struct err *e)
{
	sigset_t set;
	int r;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, &s->mask);
	/* The warden's; see start_warden(). The API process gets the mask from before. */
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, NULL);
	sigdelset(&set, SIGUSR1);
	signal(SIGCHLD, SIG_DFL);
	signal(SIGPIPE, SIG_IGN);
	s->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (s->signals < 0)
		return err_sys(e, ERR_EXHAUSTED, -errno, "make a signalfd");
	r = sys_pipe2(s->life, O_CLOEXEC);
	return r < 0 ? err_sys(e, ERR_EXHAUSTED, r, "make a pipe") : 0;
}

/* What is known of KVM without a test: the warden tests it when it makes the first virtual machine. */
static void try_kvm(struct supervisor *s)
{
	const char *accel = s->places.config.vm_accel;
	struct vm_verdict v;
	struct kvm_trial t;

	if (!strcmp(accel, "tcg")) {
		snprintf(s->accel_why, sizeof(s->accel_why), "vm_accel is tcg");
		return;
	}
	kvm_try(&t);
	memcpy(s->accel_why, t.why, sizeof(s->accel_why));
	s->kvm = t.state == KVM_WORKS || !strcmp(accel, "kvm");
	if (strcmp(accel, "auto") || (t.state != KVM_WORKS && t.state != KVM_NESTED))
		return;
	/* What a boot has shown counts more. */
	if (vm_verdict_load(-1, &v) == 0) {
		s->kvm = v.kvm;
		memcpy(s->accel_why, v.why, sizeof(s->accel_why));
	} else if (t.state == KVM_NESTED) {
		snprintf(s->accel_why, sizeof(s->accel_why),
			 "not known yet: this host is itself a virtual machine, and the first sandbox in a VM tries "
			 "KVM");
	}
}

static int get_keys(struct supervisor *s, struct err *e)
{
	const struct daemon_config *c = &s->places.config;
	int r = 0;

	if (c->secrets_key_command[0]) {
		r = key_command_run(c->secrets_key_command, KEY_COMMAND_MS, s->key, sizeof(s->key), &s->key_len, e);
		if (r < 0)
			return err_wrap(e, r, "secrets_key_command");
	}
	if (c->secrets_old_key_command[0]) {
		r = key_command_run(c->secrets_old_key_command, KEY_COMMAND_MS, s->old_key, sizeof(s->old_key),
				    &s->old_key_len, e);
		if (r < 0)
			return err_wrap(e, r, "secrets_old_key_command");
	}
	if (c->encrypt_memory) {
		char data[32];
		struct vault_opts o = { .data = data,
					.given = s->key_len ? s->key : NULL,
					.given_len = s->key_len,
					.old = s->old_key_len ? s->old_key : NULL,
					.old_len = s->old_key_len };

		/* Its path may be closed to its user. */
		snprintf(data, sizeof(data), "/proc/self/fd/%d", s->places.data);
		r = memory_keys_get(&o, &s->places.who, &s->memory_keys, e);
	}
	return r;
}

int supervisor_run(const struct supervisor_opts *o, struct err *e)
{
	struct supervisor s = {
		.o = o,
		.api = { .name = "the API process", .pidfd = -1 },
		.warden = { .name = "the warden", .pidfd = -1 },
		.egress = { .name = "cloche-egress", .pidfd = -1 },
		.egress_program = -1,
		.memory_keys = -1,
		.signals = -1,
		.life = { -1, -1 },
		.ready = -1,
		.phase = SERVING,
		.deadline = NEVER,
	};
	int r;

	umask(022);
	r = score_daemon_self();
	if (r < 0)
		log_info("oom_score_adj is not changed: %s", strerror(-r));
	s.places.check = o->check;
	s.places.recover = o->recover;
	r = places_open(&s.places, o->config, o->activated, e);
	if (r == 0) {
		s.egress_program = sys_openat(AT_FDCWD, o->egress, O_PATH | O_CLOEXEC, 0);
		if (s.egress_program < 0)
			r = err_sys(e, ERR_INTERNAL, s.egress_program, "open %.200s", o->egress);
	}
	if (r == 0)
		r = get_keys(&s, e);
	if (r == 0)
		try_kvm(&s);
	if (r == 0)
		r = begin(&s, e);
	while (r == 0 && s.phase != OVER)
		r = turn(&s, e);
	if (s.egress.pid) {
		sys_pidfd_send_signal(s.egress.pidfd, SIGKILL);
		waitpid(s.egress.pid, NULL, 0);
	}
	if (s.phase == OVER)
		folder_state_done(s.places.state);
	places_close(&s.places);
	explicit_bzero(s.key, sizeof(s.key));
	explicit_bzero(s.old_key, sizeof(s.old_key));
	fd_close(s.signals);
	fd_close(s.ready);
	fd_close_many(s.life, 2);
	fd_close(s.api.pidfd);
	fd_close(s.warden.pidfd);
	fd_close(s.egress.pidfd);
	fd_close(s.egress_program);
	fd_close(s.memory_keys);
	if (r == 0 && s.result < 0) {
		if (e)
			*e = s.failed;
		r = s.result;
	}
	return r;
}
