/* The client of a warden in another process: sends requests, and checks replies and descriptors. One thread. */
#pragma once
#include <stdint.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "base/id.h"
#include "engine/sandbox/sandbox.h"

struct client;

struct client_sandbox {
	uint64_t handle;
	int sock; /* the agent's socket; the caller's own copy */
	int pidfd; /* the first process; likewise */
	int group; /* by which processes join exec group 1; likewise, -1 = none */
	int net[STEER_SOCKETS]; /* sockets of its network, with SPEC_NET; likewise */
	struct warden_receipt receipt;
};

/*
 * Takes over @fd, a connected SOCK_SEQPACKET socket, even on an error. When the warden does not answer, or its answer
 * is invalid, the connection is given up: every later call is -EPIPE, ERR_LOST. A refusal is returned as the warden's
 * own error.
 */
int client_connect(int fd, struct client **ret, struct err *e);
void client_free(struct client *c);
DEFINE_AUTO(struct client, client_free)

int client_create(struct client *c, const struct sandbox_spec *spec, struct client_sandbox *ret, struct err *e);
/*
 * For a sandbox that another connection, or another daemon, has made: a socket to its agent, and the pidfd. No ->group.
 */
int client_attach(struct client *c, uint64_t handle, struct client_sandbox *ret, struct err *e);
/* Closes what client_create() gave. The sandbox itself stays. */
void client_sandbox_done(struct client_sandbox *s);

int client_destroy(struct client *c, uint64_t handle, struct err *e);
int client_stat(struct client *c, uint64_t handle, struct warden_stat *ret, struct err *e);
int client_freeze(struct client *c, uint64_t handle, struct err *e);
int client_thaw(struct client *c, uint64_t handle, struct err *e);
int client_counts(struct client *c, struct warden_counts *ret, struct err *e);
/* The next larger handle after @after (0: the first), 0 at the end. */
int client_next(struct client *c, uint64_t after, uint64_t *ret, struct warden_receipt *ret_receipt, struct err *e);
/* A new exec group: its number, and the descriptor by which processes join it, which is the caller's. */
int client_group(struct client *c, uint64_t handle, uint32_t *ret, int *ret_fd, struct err *e);
/* The same for processes that run as @uid inside. */
int client_group_for(struct client *c, uint64_t handle, uint32_t uid, uint32_t *ret, int *ret_fd, int *ret_user,
		     struct err *e);
int client_group_kill(struct client *c, uint64_t handle, uint32_t group, struct err *e);
/* Describes a layer; the parent's id is "" when it is based on the image. */
struct client_layer {
	char id[ID_SIZE], parent[ID_SIZE];
	uint64_t tenant, made, entries, files, size;
	uint64_t memory; /* bytes of its memory image, 0: none */
	uint32_t depth, users;
	bool bad;
	uint8_t sum[32];
};
/* Makes layer @id of the sandbox's changes; @ret_pause: for how many ns it was stopped. */
int client_seal(struct client *c, uint64_t handle, const char *id, struct client_layer *ret, uint64_t *ret_pause,
		struct err *e);
/* The same with its processes. */
int client_seal_memory(struct client *c, uint64_t handle, const char *id, struct client_layer *ret, uint64_t *ret_pause,
		       struct err *e);
int client_unseal(struct client *c, const char *id, struct err *e);
/* The next larger id after @after ("": the first). 1, or 0 at the end. */
int client_layers(struct client *c, const char *after, struct client_layer *ret, struct err *e);
/*
 * Differences as a stream of proto/change.h: *ret_fd is the caller's. From the sandbox @from, or else the layers of
 * @older, to the sandbox @to, or else the layers of @spec. @flags: DIFF_*; @max: entries, 0 = all.
 */
struct client_diff {
	uint64_t from, to;
	const struct sandbox_spec *older, *spec;
	uint32_t flags, max;
};
int client_diff(struct client *c, const struct client_diff *d, int *ret_fd, struct err *e);
/* See engine/sandbox/sandbox.h. @ret_sockets: NULL = changes only the rules. */
int client_net(struct client *c, uint64_t handle, const struct steer_rules *rules, int *ret_sockets, struct err *e);
int client_socket(struct client *c, uint64_t handle, unsigned family, int *ret_fd, struct err *e);
int client_who(struct client *c, uint64_t handle, const struct warden_who *who, struct socket_owner *ret,
	       struct err *e);
int client_denied(struct client *c, uint64_t handle, struct steer_denied ret[STEER_DENIED], struct err *e);
int client_group_end(struct client *c, uint64_t handle, uint32_t group, struct err *e);
