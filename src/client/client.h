/*
 * The client's commands: what each needs to know, and what all of them share. A command collects its options, opens a
 * connection, asks and shows. It returns the process's exit code, or a negative errno with the detail in @e, which
 * main() prints as one line and turns into 125.
 */
#pragma once
#include <getopt.h>
#include <stdbool.h>

#include "base/err.h"
#include "client/conn.h"

#define EXIT_TIMEOUT 124
#define EXIT_OURS 125
#define EXIT_NOT_EXECUTABLE 126
#define EXIT_NOT_FOUND 127
#define EXIT_LIMIT 137

struct args;
struct thing;

/* What a shell may offer for the words of a command. */
enum complete { COMPLETE_NOTHING, COMPLETE_NAMES, COMPLETE_COPY, COMPLETE_FILES, COMPLETE_WORDS };

/*
 * A command, a noun (`cloche checkpoint …`), or the verb of a noun, whose name is both words. A noun's @run is called
 * when the arguments name none of its verbs.
 */
struct command {
	const char *name;
	const char *text; /* one line for lists */
	const char *help; /* usage and options, without the common ones */
	const char *more_help; /* that of @more */
	const char *letters; /* its short options, in the form of getopt; "+" first: options end at the first word */
	const struct option *options; /* its long options, ended by zeros */
	const struct option *more; /* and those it shares with others; NULL: none */
	enum complete complete;
	const char *words; /* of COMPLETE_WORDS, separated by spaces */
	const char *names; /* of COMPLETE_NAMES: the kinds of things, such as "sandbox checkpoint" */
	const struct command *const *verbs; /* of a noun, ended by NULL */
	bool first_verb; /* what names no verb means the first one */
	const struct thing *thing; /* of thing_ls, thing_inspect and thing_rm: what they are about */
	int (*run)(struct args *a, struct err *e);
};

/* All of them, ended by NULL. */
extern const struct command *const commands[];

extern const struct command cmd_run_code; /* `run` with --language */
extern const struct command cmd_run; /* only for stored images: not in the list */
extern const struct command cmd_create, cmd_exec, cmd_shell, cmd_repl, cmd_cp, cmd_ls, cmd_inspect, cmd_rm, cmd_kill,
	cmd_extend, cmd_rename, cmd_update, cmd_start, cmd_stop, cmd_pause, cmd_resume, cmd_hibernate, cmd_wake,
	cmd_checkpoint, cmd_restore, cmd_fork, cmd_diff, cmd_promote, cmd_template, cmd_pool, cmd_secret, cmd_image,
	cmd_logs, cmd_stats, cmd_top, cmd_events, cmd_audit, cmd_token, cmd_network, cmd_why, cmd_port,
	cmd_port_forward, cmd_tenant, cmd_completion;

#define ARGS_OPTIONS 64

struct args {
	const struct command *command;
	int argc;
	char **argv; /* [0] is the command's name */
	struct conn_opts conn;
	bool json; /* the answer as JSON */
	bool help; /* was shown: nothing is left to do */
	int error_code; /* of the process when the command fails; 0: 125 */
	char **rest; /* the words that are no options; set when args_next() has returned 0 */
	int nrest;
	struct option table[ARGS_OPTIONS];
	char letters[64];
};

/*
 * What @argv means: @c itself, or the verb of a noun, which then is moved to the front and the noun left out. Options
 * that all commands have may precede it.
 */
const struct command *args_verb(const struct command *c, int *argc, char ***argv);
/* The run() of a noun: help, or an error that says which verbs there are. */
int args_noun(struct args *a, struct err *e);
/* @argv[0] is the command's name. */
void args_init(struct args *a, const struct command *c, int argc, char **argv);
/* 1 and one of the command's options (its value in getopt's optarg), 0 when there are no more, or -EINVAL. */
int args_next(struct args *a, int *ret_opt, struct err *e);
/*
 * For commands that take a sandbox and then words of their own: hands every option before and behind the sandbox's name
 * to @apply, up to the next word or "--".
 */
int args_sandbox(struct args *a, int (*apply)(void *arg, int opt, const char *value, struct err *e), void *arg,
		 const char **ret_sandbox, struct err *e);
/* All options of a command that has none of its own. 0, or -EINVAL. */
int args_only(struct args *a, struct err *e);
/* How many words there must be; @max < 0: any number. */
int args_count(const struct args *a, int min, int max, const char *want, struct err *e);
/* args_count(), and then a connection to the daemon. */
int args_connect(const struct args *a, int min, int max, const char *want, struct conn **ret, struct err *e);
/* The options every command has, for completion. */
const struct option *args_common(void);
/* Puts NAME=VALUE, or NAME with our own value, into @body's object "env". */
int args_add_env(json_t *body, const char *arg, struct err *e);
/* Puts NAME=VALUE into @body's object "metadata". */
int args_add_meta(json_t *body, const char *arg, struct err *e);
int args_set_text(json_t *body, const char *key, const char *arg, struct err *e);
/* "30s" as seconds. */
int args_set_time(json_t *body, const char *key, const char *arg, struct err *e);
/* The value of --memory: nothing is true. */
int args_set_memory(json_t *body, const char *arg, struct err *e);
int args_set_copied(json_t *body, const char *arg, struct err *e); /* --network, of what copies memory */
/* Words as the array @key. */
int args_set_words(json_t *body, const char *key, char **words, int n, struct err *e);
/* One more "&metadata.NAME=VALUE" of a query. Writes into @arg. */
int args_query_meta(struct buf *query, char *arg, struct err *e);
