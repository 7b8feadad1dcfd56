/*
 * The API process. Opens its state, gives up every privilege, and serves until it gets the signal to drain. One loop;
 * two workers for calls that may wait on a disk.
 */
#include "api/api.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/room.h"
#include "base/sys.h"
#include "daemon/confine.h"
#include "daemon/daemon.h"
#include "daemon/identity.h"
#include "daemon/image_files.h"
#include "daemon/rebuild.h"
#include "engine/program.h"
#include "service/network/network.h"
#include "service/state/upkeep.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define DRAIN_MS 30000
#define RESERVE (2 * MIB)
#define ROOM_MS 2000
#define SETTLE_MS 5

struct serve {
	const struct daemon_start *start;
	uv_loop_t loop;
	struct db *db;
	struct audit *audit;
	struct turn *turn;
	struct turn_wait stored;
	struct access *access;
	struct service *service;
	struct api *api;
	struct http_server *http;
	uv_signal_t term, intr;
	uv_poll_t life;
	uv_timer_t deadline, settle, room;
	unsigned settle_left; /* tries */
	struct upkeep *upkeep;
	bool draining, ready, failed;
	char db_path[DAEMON_PATH + 16], tar[512];
	int shell_kernel, devices_program;
	struct image_files image;
};

/* --- the end --- */

/* Finishes what was answered, and removes what is incomplete and no request waits for. */
static void on_settle(uv_timer_t *t)
{
	struct serve *v = t->data;

	if (service_settled(v->service) || !v->settle_left--)
		uv_stop(&v->loop);
	else
		uv_timer_start(t, on_settle, SETTLE_MS, 0);
}

static void on_drained(void *arg)
{
	struct serve *v = arg;

	on_settle(&v->settle);
}

static void on_deadline(uv_timer_t *t)
{
	log_warn("some calls took longer than %d s and were aborted", DRAIN_MS / 1000);
	uv_stop(t->loop);
}

static void on_signal(uv_signal_t *h, int sig)
{
	struct serve *v = h->data;

	(void)sig;
	if (v->draining) {
		uv_stop(&v->loop);
		return;
	}
	v->draining = true;
	service_drain(v->service);
	api_end_streams(v->api);
	http_server_drain(v->http, on_drained, v);
	uv_timer_start(&v->deadline, on_deadline, DRAIN_MS, 0);
}

static void on_life(uv_poll_t *p, int status, int events)
{
	(void)status;
	(void)events;
	/* Without a supervisor this process would not be started again: it ends with what is stored. */
	log_error("the supervisor has ended");
	uv_stop(p->loop);
	((struct serve *)p->data)->failed = true;
}

/* --- the beginning --- */

static struct service_opts options(const struct serve *v)
{
	const struct daemon_config *c = v->start->config;

	struct service_opts o = {
		.memory = c->memory,
		.memory_max = c->memory_max,
		.disk = c->disk,
		.disk_max = c->disk_max,
		.output_limit = c->output_limit,
		.cpu_milli = c->cpu_milli,
		.cpu_milli_max = c->cpu_milli_max,
		.pids = c->pids,
		.pids_max = c->pids_max,
		.nofile = c->nofile,
		.warm_contexts = c->warm_contexts,
		.exec_timeout_ms = c->exec_timeout_ms,
		.exec_timeout_max_ms = c->exec_timeout_max_ms,
		.sandboxes_max = c->sandboxes_max,
		.spool_time_ms = c->spool_time_ms,
		.spool_max = c->spool_max,
		.spool_total = c->spool_total,
		.data = c->data,
		.images = c->images,
		.image_auth = v->image.auth,
		.image_ca = v->image.ca,
		.image_registries = v->image.registries,
		.image_stall_ms = c->image_timeout_ms,
		.nmounts = c->nallow_mount,
		.ndevices = c->nallow_device,
		.cdi = c->cdi_folders[0] ? c->cdi_folders : NULL,
		.devices_program = v->devices_program,
		.ntrusted = c->nexport_trust,
		.tar = v->tar,
		.shell_kernel = v->shell_kernel,
		.warden_place = v->start->warden_place,
		.egress_place = v->start->egress_place,
		.net = &c->network,
		.audit_output = c->audit_output,
		.kvm = v->start->kvm,
		.accel_why = v->start->accel_why,
		.secrets_key = v->start->secrets_key,
		.secrets_key_len = v->start->secrets_key_len,
		.secrets_old_key = v->start->secrets_old_key,
		.secrets_old_key_len = v->start->secrets_old_key_len,
		.recover = v->start->recover,
	};

	for (unsigned i = 0; i < c->nallow_mount; i++) {
		o.mount_path[i] = c->allow_mount[i];
		o.mount_tenant[i] = c->allow_mount_tenant[i];
	}
	for (unsigned i = 0; i < c->nallow_device; i++) {
		o.device_name[i] = c->allow_device[i];
		o.device_tenant[i] = c->allow_device_tenant[i];
	}
	for (unsigned i = 0; i < c->nexport_trust; i++)
		o.trusted[i] = c->export_trust[i];
	return o;
}

/*
 * Reserves some disk space. On a disk that has become full, the daemon starts with the space released: what runs can
 * then be listed and deleted, while new work is refused (service_room). It is reserved again when there is enough.
 */
static void take_room(const char *path, uint64_t left)
{
	AUTO_CLOSE int fd =
		left < 2 * RESERVE ? -1 : open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 || (uint64_t)st.st_size >= RESERVE)
		return;
	if (posix_fallocate(fd, 0, RESERVE) != 0)
		unlink(path);
}

static void keep_room(struct serve *v, bool start)
{
	const char *data = v->start->config->data;
	char path[DAEMON_PATH + 16];
	struct room disk;

	snprintf(path, sizeof(path), "%s/reserve", data);
	if (room_of(AT_FDCWD, data, &disk) < 0 || disk.left == UINT64_MAX)
		return;
	if (start && disk.left < RESERVE) {
		if (unlink(path) == 0)
			log_warn("the disk of the data folder is full: the space reserved for this case is released");
		return;
	}
	take_room(path, disk.left);
}

static void on_room(uv_timer_t *t)
{
	keep_room(t->data, false);
}

/* The room that the log and the state have ahead is used up, too. Where a reserve of the disk is root's alone, this gives us none. */
static bool on_full(void *arg)
{
	const struct serve *v = arg;
	char path[DAEMON_PATH + 16];

	snprintf(path, sizeof(path), "%s/reserve", v->start->config->data);
	return unlink(path) == 0;
}

static int open_state(struct serve *v, struct err *e)
{
	const struct daemon_config *c = v->start->config;
	char audit[DAEMON_PATH + 16];
	struct service_opts o;
	int r;

	keep_room(v, true);
	snprintf(v->db_path, sizeof(v->db_path), "%s/state.db", c->data);
	snprintf(audit, sizeof(audit), "%s/audit.log", c->data);
	r = audit_open(audit, &v->audit, e);
	if (r == 0)
		r = db_open_known(v->db_path,
				  &(struct db_opts){ .folder = c->data,
						     .beside = v->start->beside,
						     .recover = v->start->recover,
						     .sure = c->audit_sync_always },
				  &v->db, e);
	if (r == 0 && v->start->nlayers)
		r = rebuild(v->db, v->start->layers, v->start->nlayers, e);
	if (r == 0)
		r = turn_new(&v->loop, v->db, v->audit, &v->turn, e);
	if (r == 0)
		turn_on_full(v->turn, on_full, v);
	if (r == 0 && c->audit_sync_always)
		r = turn_sync_always(v->turn, e);
	if (r == 0)
		r = access_new(v->db, v->audit, &v->access, e);
	if (r == 0 && v->start->token[0])
		r = token_add_known(v->access, tenant_find(v->access, TENANT_DEFAULT), "initial", SCOPE_ADMIN,
				    v->start->token, NULL, e);
	if (r < 0)
		return r;
	r = upkeep_new(&v->loop, v->db, v->db_path, v->audit, v->turn, &v->upkeep, e);
	if (r < 0)
		return r;
	o = options(v);
	r = service_new(&v->loop, &o, v->db, v->audit, v->turn, v->access, &v->service, e);
	if (r == 0)
		r = api_new(v->service,
			    &(struct api_opts){ .loop = &v->loop,
						.access = v->access,
						.audit = v->audit,
						.turn = v->turn,
						.owner = v->start->owner,
						.noid_isolation = c->noid_isolation,
						.ports_domain = c->ports_domain },
			    &v->api, e);
	return r;
}

static int listen_all(struct serve *v, struct err *e)
{
	const struct daemon_config *c = v->start->config;
	int r = 0;

	for (unsigned i = 0; r == 0 && i < c->nlisten; i++)
		r = http_server_listen(v->http, v->start->listener[i], c->listen[i].tls, e);
	if (r == 0 && v->start->unix_listener >= 0)
		r = http_server_listen(v->http, v->start->unix_listener, false, e);
	return r;
}

static void tell_ready(void *arg)
{
	struct serve *v = arg;

	v->ready = true;
	if (write(v->start->ready, "1", 1) != 1)
		log_warn("cannot report to the supervisor that the daemon is ready");
}

/* Everything is known again: callers may come. */
static void on_ready(void *arg, int r, const struct err *e)
{
	struct serve *v = arg;
	struct audit_rec rec = { .kind = "daemon.start" };
	struct err why = { 0 };

	if (r < 0)
		why = *e;
	else
		r = listen_all(v, &why);
	if (r < 0) {
		log_error("%s%s%s", why.msg, why.remedy[0] ? "; " : "", why.remedy);
		v->failed = true;
		uv_stop(&v->loop);
		return;
	}
	jout_u64(audit_begin(v->audit, &rec), "sandboxes", service_counts(v->service).sandboxes);
	audit_end(v->audit, NULL);
	/* Not before it is stored: with that the supervisor shows a new token, and forgets it. */
	turn_after(v->turn, &v->stored, tell_ready, v);
}

static int watch_end(struct serve *v, struct err *e)
{
	int r = uv_signal_init(&v->loop, &v->term);

	if (r == 0)
		r = uv_signal_init(&v->loop, &v->intr);
	v->term.data = v->intr.data = v->life.data = v;
	if (r == 0)
		r = uv_signal_start(&v->term, on_signal, SIGTERM);
	/* Ctrl-C reaches the whole process group, but the supervisor sends its own signal. */
	signal(SIGINT, SIG_IGN);
	if (r == 0)
		r = uv_poll_init(&v->loop, &v->life, v->start->life);
	if (r == 0)
		r = uv_poll_start(&v->life, UV_READABLE, on_life);
	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "watch for the end");
	uv_timer_init(&v->loop, &v->deadline);
	uv_timer_init(&v->loop, &v->settle);
	v->settle.data = v;
	v->settle_left = 400;
	uv_timer_init(&v->loop, &v->room);
	v->room.data = v;
	uv_timer_start(&v->room, on_room, ROOM_MS, ROOM_MS);
	return 0;
}

static void on_request(void *arg, struct http_req *q)
{
	api_request(((struct serve *)arg)->api, q);
}

static bool on_foreign(void *arg, const struct http_req *q)
{
	return api_foreign(((struct serve *)arg)->api, q);
}

static int become(const char *user, struct err *e)
{
	struct identity who;
	int r = identity_find(user, &who, e);

	return r < 0 ? r : identity_become(&who, getppid(), e);
}

/*
 * Opened as root, and started by its descriptor: the API's user may not be able to enter its folder, for example a home
 * folder.
 */
static int find_tar(struct serve *v, struct err *e)
{
	int fd, r = program_path("cloche-tar", v->tar, sizeof(v->tar), e);

	if (r < 0)
		return r;
	fd = sys_openat(AT_FDCWD, v->tar, O_PATH | O_CLOEXEC, 0);
	if (fd >= 0) {
		/* Above what a child's descriptors are put on. */
		r = sys_fcntl(fd, F_DUPFD_CLOEXEC, 64);
		fd_close(fd);
		fd = r;
	}
	if (fd < 0)
		return err_sys(e, ERR_INTERNAL, fd, "open cloche-tar");
	snprintf(v->tar, sizeof(v->tar), "/proc/self/fd/%d", fd); /* for as long as we live */
	return 0;
}

/* Likewise. It is read, and started in sandboxes only. Without it there are no shell contexts. */
static void find_shell_kernel(struct serve *v)
{
	char path[512];
	int fd = program_path("cloche-shell-kernel", path, sizeof(path), NULL) < 0 ?
			 -1 :
			 sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);

	v->shell_kernel = fd < 0 ? -1 : sys_fcntl(fd, F_DUPFD_CLOEXEC, 64);
	fd_close(fd);
}

static void find_devices_program(struct serve *v)
{
	char path[512];
	int fd = program_path("cloche-devices", path, sizeof(path), NULL) < 0 ?
			 -1 :
			 sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);

	v->devices_program = fd < 0 ? -1 : sys_fcntl(fd, F_DUPFD_CLOEXEC, 64);
	fd_close(fd);
}

static int begin(struct serve *v, struct err *e)
{
	const struct daemon_config *c = v->start->config;
	struct http_opts h = {
		.loop = &v->loop,
		.request = on_request,
		.foreign = on_foreign,
		.arg = v,
		.conns_max = c->conns_max,
		.tls_cert = c->tls_cert[0] ? c->tls_cert : NULL,
		.tls_key = c->tls_key[0] ? c->tls_key : NULL,
	};
	int r = uv_loop_init(&v->loop);

	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "make a loop");
	/* What only root can read is read before: the TLS key. */
	r = http_server_new(&h, &v->http, e);
	if (r == 0)
		r = find_tar(v, e);
	if (r == 0)
		find_shell_kernel(v);
	if (r == 0)
		find_devices_program(v);
	if (r == 0)
		r = image_files_read(c, &v->image, e);
	if (r == 0)
		r = become(c->user, e);
	if (r == 0)
		r = open_state(v, e);
	if (r == 0)
		r = watch_end(v, e);
	if (r == 0)
		r = confine(e);
	if (r < 0)
		return r;
	service_start(v->service, on_ready, v);
	return 0;
}

int daemon_serve(const struct daemon_start *s)
{
	struct serve *v = calloc(1, sizeof(*v));
	struct err e = { 0 };

	if (!v)
		return 1;
	v->start = s;
	signal(SIGPIPE, SIG_IGN);
	if (begin(v, &e) < 0) {
		log_error("%s%s%s", e.msg, e.remedy[0] ? "; " : "", e.remedy);
		if (e.errnum == ENODATA || e.errnum == EXDEV || e.errnum == ESTALE || e.errnum == EBADMSG)
			return DAEMON_EXIT_STATE;
		return turn_exit_of(e.errnum);
	}
	uv_run(&v->loop, UV_RUN_DEFAULT);
	/* The process ends here; what counts is on disk, and nothing that was not stored has been answered. */
	sandbox_nets_store(v->service);
	db_settle(v->db, NULL);
	db_commit(v->db, NULL);
	audit_flush(v->audit, NULL);
	fdatasync(audit_fd(v->audit));
	return v->failed ? 1 : 0;
}
