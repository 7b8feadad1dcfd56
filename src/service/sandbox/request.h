/*
 * What a sandbox, or an exec, should be: read from JSON (a request, or our own row in the store), with every default
 * filled in, and written back as the same JSON.
 */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "base/id.h"
#include "base/json.h"
#include "engine/spec.h"
#include "proto/account.h"
#include "service/network/request.h"
#include "service/secret/request.h"
#include "service/service.h"

#define NAME_MAX_LEN 64
#define KEY_MAX_LEN 128
#define META_MAX 64
#define ENV_MAX 1000
#define USER_ID 1000U /* of a command that names no user */
#define OUTPUT_LIMIT_MAX (16 * MIB) /* answers are built in one go, while all other requests wait */

struct kv { /* "NAME=VALUE" each, in the order given */
	char **item;
	uint32_t n;
};
void kv_done(struct kv *k);
int kv_copy(struct kv *to, const struct kv *from);

struct user_request {
	char text[ACCOUNT_TEXT]; /* as given */
	bool named; /* looked up in the sandbox by its agent: ->uid and ->gid say nothing */
	uint32_t uid, gid;
};
/* Whether this user may have rights in /usr: root, and the system's groups. */
static inline bool user_is_system(const struct user_request *u)
{
	return u->named || u->uid < 1000 || u->gid < 1000;
}

/* Where a sandbox comes from. Kept in its row, beside what was asked. */
struct sandbox_origin {
	char template[NAME_MAX_LEN + 1]; /* "" = none */
	uint64_t version; /* of the template */
	char pool[ID_SIZE]; /* counts for that one, "" = none */
	bool pooled; /* it was ready before it was asked for */
	bool reseeds; /* its warm process draws new random numbers for each exec; not kept */
	bool ready; /* to be made ready for a pool; not kept, the row's state says it */
	bool run; /* then: for one run of code, service/run/run.h */
	bool ahead; /* then: before it is asked for; no other gives way to it */
	bool work; /* then: for work of the daemon's own, and of no pool: service/image/work_sandbox.h */
};

struct idle_request { /* ms without a call until it is …; 0 = never */
	uint64_t pause_ms, hibernate_ms, delete_ms;
};
struct json_read;
struct mask;
/* memory, disk, cpus and pids, for a sandbox that is there; what is missing is 0. False: none is there. */
bool limits_read(const struct service_opts *o, struct json_read *j, bool admin, struct spec_limits *ret);
/* A number of seconds is ->delete_ms; or {pause, hibernate, delete}. Whether it was there. */
bool idle_read(struct json_read *j, struct idle_request *ret);

struct sandbox_request {
	char name[NAME_MAX_LEN + 1]; /* "" = none */
	char key[KEY_MAX_LEN + 1]; /* "" = none */
	struct sandbox_spec *spec; /* shortened when it has neither mounts, tmpfs nor devices */
	uint64_t nofile, output_limit, timeout_ms, exec_timeout_ms;
	struct idle_request idle;
	char gpus[128]; /* all, any, any:N, numbers or ids with commas; "" = none */
	bool gpus_shared;
	/* the one whose place it takes, while it is checked: its devices are free for it */
	const struct sandbox *replaces;
	uint32_t ngpus; /* how many of ->spec->device[], the last, are what ->gpus means. Not part of the JSON */
	uint32_t gpu_count; /* of all its devices: for the quota */
	char image[256]; /* the name of a stored image that was asked for, "" = none (service/image/part.c) */
	/* how many of ->spec->layer[], the lowest, are its image's; all others were made of sandboxes. Not part of the JSON */
	uint32_t image_layers;
	bool image_kept; /* what ->image means is in other hands: it is not looked for; not kept */
	bool user_given, workdir_given; /* else the image's own are used; not kept */
	struct user_request user;
	struct net_request *net; /* NULL = none */
	struct kv env, metadata;
	struct secret_uses secrets;
	struct sandbox_origin origin;
	json_t *start; /* an exec to begin with, or NULL; not kept */
	/* that it comes from; ->spec->layer[] are its layers. "" = none. Not part of the JSON */
	char checkpoint[ID_SIZE];
	char *restored; /* then: what that does, as JSON */
	bool memory; /* then: its processes continue */
	bool wake; /* it continues from its own hibernation */
	char *names; /* then: behind its synthetic addresses; NULL = none */
	char *execs; /* those of them that were execs, as exec_save wrote them; NULL = none */
	char disk[ID_SIZE]; /* its disk's, when that outlives it; kept in its row. "" = none */
	bool disk_again; /* that is there already; not kept */
	bool open; /* for its files, while its state stays; not kept */
	json_t *again; /* commands to begin again with it (service/sandbox/disk.h), or NULL; kept in its row */
	char idem[KEY_MAX_LEN + 1]; /* the request's Idempotency-Key, "" = none */
	uint8_t idem_body[32];
};

/* The layers of a spec as text, and back: ids, a space between. Behind the @image lowest, those of its image, is a "/". */
#define LAYERS_TEXT (SPEC_LAYERS * ID_SIZE + 3)
void layers_text(const struct sandbox_spec *s, uint32_t image, char text[LAYERS_TEXT]);
int layers_parse(const char *text, struct sandbox_spec *s, uint32_t *ret_image, struct err *e);

/* The value of `isolation`. */
const char *tier_name(const struct sandbox_spec *s);
/* A whole spec again, from one that may be short. */
void request_spec(const struct sandbox_request *w, struct sandbox_spec *ret);
/* Of two that may be short. */
bool request_tmpfs_same(const struct sandbox_spec *a, const struct sandbox_spec *b);
/* @admin: may lift limits, and go beyond the configured ones. */
int sandbox_request_parse(const struct service_opts *o, const json_t *from, bool admin, struct sandbox_request **ret,
			  struct err *e);
/* From a row: what sandbox_request_write and sandbox_origin_write wrote. */
int sandbox_request_load(const struct service_opts *o, json_t *from, struct sandbox_request **ret, struct err *e);
void sandbox_origin_write(const struct sandbox_request *w, struct json *j);
/* The fields of a create, inside of an open object; name and key too. */
void sandbox_request_write(const struct sandbox_request *w, struct json *j);
/* Whether one that was made for @a is what @b asks for: all but name, key, metadata, timeout and idle are the same. */
bool request_like(const struct sandbox_request *a, const struct sandbox_request *b);
void sandbox_request_write_config(const struct sandbox_request *w, struct json *j); /* without them */
void sandbox_request_free(struct sandbox_request *w);
DEFINE_AUTO(struct sandbox_request, sandbox_request_free)
/* Checks and reads {"K":"V"}; @what names the field. */
int kv_parse(const json_t *o, const char *what, uint32_t max, bool env, struct kv *ret, struct err *e);
#define KV_NAME_MAX 256U
/* Whether a variable of a sandbox may have this name. */
bool env_name_ok(const char *name, size_t n);
/* Thousandths as a number with as many digits as it needs. */
void write_milli(struct json *j, const char *key, uint64_t milli);
void kv_write(const struct kv *k, const char *key, struct json *j);
int name_check(const char *name, struct err *e);

enum exec_way {
	EXEC_PROGRAM,
	EXEC_CODE, /* a fork of the sandbox's warm Python runs it: argv is "python" and the code */
	EXEC_WARM, /* a warm process: it reports to the agent when it is ready */
};

struct exec_request {
	enum exec_way way;
	bool resident; /* part of what the sandbox is: it may be idle all the same */
	char **argv;
	uint32_t argc;
	size_t cmd_bytes; /* 0, or how long the command was: ->argv is its beginning */
	struct kv env;
	char *cwd; /* NULL: the sandbox's */
	struct user_request user;
	char *stdin_data; /* NULL = none */
	size_t stdin_len;
	bool stdin_open, background, tty, base64, merge; /* merge: stderr goes where stdout goes */
	bool echo; /* its result repeats the command */
	/* PATH and HOME alone are added: a step of a build, whose result must be that of other builders */
	bool plain_env;
	bool stdin_given; /* ->stdin_fd is its stdin, by requests of the daemon itself */
	int stdin_fd; /* closed with the request */
	uint32_t rows, cols;
	uint64_t timeout_ms, cpu_ms, output_limit, nofile;
	json_t *again; /* with `restart`: the request, to be begun again by; or NULL */
	char idem[KEY_MAX_LEN + 1];
	uint8_t idem_body[32];
	/* JSON: it is the kernel of this context (service/context/context.h), or NULL; kept in its row */
	char *context;
};

/* @w: the sandbox's defaults. */
int exec_request_parse(const struct service_opts *o, const struct sandbox_request *w, const json_t *from,
		       struct exec_request **ret, struct err *e);
/* For the audit log: no environment, no stdin, nothing that @m (may be NULL) masks. */
void exec_request_write(const struct exec_request *x, struct mask *m, struct json *j);
void exec_request_write_kept(const struct exec_request *x, struct mask *m,
			     struct json *j); /* only the beginning of the command */
void exec_request_write_cmd(const struct exec_request *x, struct mask *m,
			    struct json *j); /* that alone: `cmd`, and `cmd_bytes` of a longer one */
#define COMMAND_KEPT 1024U /* bytes of a command that are kept, eight for each argument included */
size_t exec_request_bytes(const struct exec_request *x); /* about, of memory */
/* Once it was started: no environment, no stdin, the beginning of the command. */
void exec_request_trim(struct exec_request *x, struct mask *m);
void exec_request_free(struct exec_request *x);
DEFINE_AUTO(struct exec_request, exec_request_free)
/* "user", "root", "UID", "UID:GID"; and with ->named: NAME, NAME:GROUP, UID:GROUP. */
int user_parse(const char *text, struct user_request *ret, struct err *e);
/* Numeric ids only, where names cannot be looked up. */
int user_parse_ids(const char *text, struct user_request *ret, struct err *e);
