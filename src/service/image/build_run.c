/* RUN: one command in a sandbox on the layers so far, as the stage's user. */
#include "base/base.h"
#include "dockerfile/heredoc.h"
#include "service/exec/exec.h"
#include "service/file/file.h"
#include "service/image/build_impl.h"

#include <signal.h>

#define SCRIPT "/dev/shm/build-script"
#define TIMEOUT_MS (6U * 3600 * 1000)

struct build_run {
	struct build *b;
	struct exec *exec; /* referenced */
	struct exec_sink sink;
	struct exec_watch watch;
	struct file_op *op;
	char *script; /* a here-document that names its interpreter */
	/* For a user by number: the step's own /etc/passwd. */
	struct buf passwd;
	char ids[64], home[256];
};

static void fail_at(struct build *b, int r, const struct err *e)
{
	struct err why = *e;

	err_wrap(&why, r, "line %u: RUN", b->step.in->line);
	build_fail(b, r, &why);
}

void build_run_free(struct build_run *x)
{
	if (!x)
		return;
	if (x->op)
		file_cancel(x->op);
	if (x->exec) {
		exec_unwatch(&x->watch);
		exec_leave(x->exec, &x->sink);
		if (!exec_has_exited(x->exec))
			exec_signal(x->exec, SIGKILL, EXEC_TREE, NULL);
		exec_unref(x->exec);
	}
	free(x->script);
	buf_done(&x->passwd);
	free(x);
}

void build_run_read(struct build_run *x)
{
	if (x && x->exec && !exec_over(x->exec))
		exec_go(x->exec);
}

/* --- the command --- */

static json_t *words_json(char *const *item, size_t n)
{
	json_t *list = json_array();

	for (size_t i = 0; i < n; i++)
		json_array_append_new(list, json_string(item[i]));
	return list;
}

/* Whether the whole command is one "<<NAME". */
static bool only_heredoc(const struct instruction *in)
{
	return in->heredocs == 1 && in->args.n == 1 &&
	       !strpbrk(in->args.at[0] + strspn(in->args.at[0], "<- \t"), " \t;&|<>") &&
	       !strncmp(in->args.at[0], "<<", 2);
}

/* The text that is passed to the shell. */
static int shell_text(struct build_run *x, const struct instruction *in, struct buf *out)
{
	int r;

	if (only_heredoc(in)) {
		AUTO_FREE char *content = strdup(in->heredoc[0].content);

		if (!content)
			return -ENOMEM;
		if (in->heredoc[0].chomp)
			heredoc_chomp(content);
		if (!strncmp(content, "#!", 2)) {
			free(x->script); /* the command is made once for the step's key, and once to run */
			x->script = TAKE_PTR(content);
			return 0;
		}
		return buf_adds(out, content);
	}
	r = buf_adds(out, in->args.n ? in->args.at[0] : "");
	for (size_t i = 0; r == 0 && i < in->heredocs; i++)
		r = buf_addf(out, "\n%s%s", in->heredoc[i].content, in->heredoc[i].name);
	return r;
}

static json_t *command(struct build_run *x, const struct instruction *in)
{
	const struct oci_config *c = &build_stage_now(x->b)->config;
	AUTO(buf_done) struct buf text = BUF_INIT(2 * DOCKERFILE_MAX);
	json_t *cmd;

	if (in->json)
		return words_json(in->args.at, in->args.n);
	if (shell_text(x, in, &text) < 0)
		return NULL;
	if (x->script)
		return json_pack("[s]", SCRIPT);
	cmd = c->shell.n ? words_json(c->shell.item, c->shell.n) : json_pack("[ss]", "/bin/sh", "-c");
	json_array_append_new(cmd, json_string(buf_str(&text)));
	return cmd;
}

static void env_put(json_t *env, const char *assignment)
{
	const char *eq = strchr(assignment, '=');
	AUTO_FREE char *name = eq && env_name_ok(assignment, (size_t)(eq - assignment)) ?
				       strndup(assignment, (size_t)(eq - assignment)) :
				       NULL;

	if (name) /* a base image may have others, which no request may have */
		json_object_set_new(env, name, json_string(eq + 1));
}

/* ARG first: ENV overrides a variable of the same name. */
static json_t *environment(const struct build_stage *g)
{
	json_t *env = json_object();

	env_put(env, SPEC_PATH_DEFAULT);
	for (unsigned i = 0; i < g->args.n; i++)
		env_put(env, g->args.item[i]);
	for (unsigned i = 0; i < g->config.env.n; i++)
		env_put(env, g->config.env.item[i]);
	return env;
}

static json_t *body_of(struct build_run *x)
{
	struct build *b = x->b;
	const struct build_stage *g = build_stage_now(b);
	const char *user = g->config.user && *g->config.user ? g->config.user : "root";
	const char *dir = g->config.workdir && *g->config.workdir ? g->config.workdir : "/";
	json_t *cmd = command(x, b->step.in), *body = NULL;

	if (cmd)
		body = json_pack("{s:o, s:o, s:s}", "cmd", cmd, "env", environment(g), "cwd", dir);
	if (body)
		json_object_set_new(body, "user", json_string(x->ids[0] ? x->ids : user));
	if (body && x->home[0] && !json_object_get(json_object_get(body, "env"), "HOME"))
		json_object_set_new(json_object_get(body, "env"), "HOME", json_string(x->home));
	return body;
}

/* --- a user by number --- */

static bool by_number(const char *user)
{
	return user && *user && strspn(user, "0123456789") == strcspn(user, ":") && strlen(user) < 16;
}

/* The line of @uid: "name:password:uid:gid:text:home:shell". */
static bool find_line(const char *text, const char *uid, size_t n, char gid[16], char home[256])
{
	for (const char *line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
		const char *field[7];
		size_t len[7], k = 0;
		const char *p = line;

		for (; k < 7; k++) {
			field[k] = p;
			len[k] = strcspn(p, ":\n");
			p += len[k];
			if (*p != ':')
				break;
			p++;
		}
		if (k < 5 || len[2] != n || memcmp(field[2], uid, n) != 0 || len[3] >= 8 || len[5] >= 256)
			continue;
		snprintf(gid, 16, "%.*s", (int)len[3], field[3]);
		snprintf(home, 256, "%.*s", (int)len[5], field[5]);
		return true;
	}
	return false;
}

static void start_now(struct build_run *x);

static void on_passwd_data(void *arg, const uint8_t *p, size_t len)
{
	struct build_run *x = arg;

	buf_add(&x->passwd, p, len); /* only the first megabyte is read */
}

/* As in other builders: the user's group and home; root's group, and "/", when the user is not listed. */
static void on_passwd(void *arg, int r, const struct file_end *end, unsigned flags, const struct err *e)
{
	struct build_run *x = arg;
	const char *user = build_stage_now(x->b)->config.user, *colon = strchr(user, ':');
	size_t n = strcspn(user, ":");
	char gid[16] = "0";

	(void)flags;
	(void)end;
	x->op = NULL;
	if (r < 0 && e && e->kind != ERR_NOT_FOUND) {
		fail_at(x->b, r, e);
		return;
	}
	if (!find_line(buf_str(&x->passwd), user, n, gid, x->home))
		snprintf(x->home, sizeof(x->home), "/");
	if (colon)
		snprintf(x->ids, sizeof(x->ids), "%s", user);
	else
		snprintf(x->ids, sizeof(x->ids), "%s:%s", user, gid);
	start_now(x);
}

static const struct file_calls passwd_calls = { .data = on_passwd_data, .done = on_passwd };

static void look_up(struct build_run *x)
{
	const struct file_request q = { .path = "/etc/passwd", .length = 1 * MIB };
	const struct user_request root = { .text = "root" };
	struct err e = { 0 };
	int r;

	x->passwd.max = 1 * MIB;
	r = file_begin(build_box_sandbox(x->b->step.box), &root, FILE_READ, 0, &q, &passwd_calls, x, &x->op, &e);
	if (r < 0)
		fail_at(x->b, r, &e);
}

/* --- the exec --- */

static void on_data(void *arg, enum exec_stream which, const char *p, size_t len)
{
	struct build_run *x = arg;

	build_output(x->b, which == EXEC_OUT ? "stdout" : "stderr", p, len);
	if (!x->b->told && x->b->calls->full(x->b->arg))
		exec_hold(x->exec);
}

static void on_change(void *arg, struct exec *c)
{
	struct build_run *x = arg;
	struct build *b = x->b;
	const struct err *why;
	struct err e = { 0 };
	int code;

	if (!exec_over(c))
		return;
	exec_unwatch(&x->watch);
	why = exec_failure(c);
	if (why)
		e = *why;
	code = exec_exit_code(c);
	if (!why && exec_timed_out(c))
		err_set(&e, WHY_NO_PROGRESS, -ETIMEDOUT, "the command did not end within 6 hours");
	else if (!why && code != 0) {
		err_set(&e, WHY_COMMAND_FAILED, -EIO, "the command failed with exit code %d", code);
		if (!b->step.network)
			err_remedy(&e, "if it needs a network: a step has none unless the build allows one, with "
				       "--allow HOST or --network open (`network`)");
	}
	if (b->ended)
		return;
	b->run = NULL;
	build_run_free(x);
	if (e.msg[0])
		fail_at(b, -EIO, &e);
	else if (b->mounts)
		build_mounts_empty(b->mounts, b->step.network ? build_resolver_undo : build_step_seal);
	else if (b->step.network)
		build_resolver_undo(b);
	else
		build_step_seal(b);
}

static int start(struct build_run *x, struct err *e)
{
	struct build *b = x->b;
	struct sandbox *box = build_box_sandbox(b->step.box);
	AUTO(json_decref) json_t *body = body_of(x);
	struct exec_request *w = NULL;
	int r;

	if (!body)
		return err_set(e, ERR_INVALID, -EINVAL, "the command is not UTF-8, or too long");
	if (b->mounts)
		build_mounts_env(b->mounts, json_object_get(body, "env"));
	if (!box)
		return err_set(e, WHY_SANDBOX_LOST, -EIO, "the sandbox of the step has ended");
	r = exec_request_read(box, body, &w, e);
	if (r < 0)
		return r;
	w->timeout_ms = TIMEOUT_MS;
	w->plain_env = true;
	x->sink = (struct exec_sink){ .data = on_data, .arg = x };
	r = exec_new(box, &b->who, w, &x->sink, &x->exec, e);
	if (r < 0)
		return r;
	exec_watch(x->exec, &x->watch, on_change, x);
	return 0;
}

static void start_now(struct build_run *x)
{
	struct err e = { 0 };
	int r = start(x, &e);

	if (r < 0)
		fail_at(x->b, r, &e);
}

/* Starts the command once the user is known. */
static void start_as(struct build_run *x)
{
	if (by_number(build_stage_now(x->b)->config.user))
		look_up(x);
	else
		start_now(x);
}

static void on_script(void *arg, int r, const struct file_end *end, unsigned flags, const struct err *e)
{
	struct build_run *x = arg;

	(void)flags;
	(void)end;
	x->op = NULL;
	if (r < 0)
		fail_at(x->b, r, e);
	else
		start_as(x);
}

static const struct file_calls script_calls = { .done = on_script };

static void write_script(struct build_run *x)
{
	const struct file_request q = { .path = SCRIPT, .mode = 0755 };
	const struct user_request root = { .text = "root" };
	struct err e = { 0 };
	int r = file_begin(build_box_sandbox(x->b->step.box), &root, FILE_WRITE, FILE_MODE, &q, &script_calls, x,
			   &x->op, &e);

	if (r < 0) {
		fail_at(x->b, r, &e);
		return;
	}
	file_feed(x->op, x->script, strlen(x->script));
	file_feed_end(x->op);
}

static void begin(struct build *b)
{
	if (b->run->script)
		write_script(b->run);
	else
		start_as(b->run);
}

static void on_box(void *arg, const struct err *e)
{
	struct build *b = arg;

	if (b->ended)
		return;
	if (e)
		fail_at(b, -EIO, e);
	else if (b->mounts)
		build_mounts_fill(b->mounts, begin);
	else
		begin(b);
}

/* The key of a RUN: everything that the command can depend on. */
static void key_of_run(struct build *b, const json_t *body, bool network)
{
	const struct instruction *in = b->step.in;
	AUTO_FREE char *text = json_dumps(body, JSON_COMPACT | JSON_SORT_KEYS);
	const char *all[] = { "RUN", text ? text : in->text, network ? "network" : "",
			      in->heredocs ? in->heredoc[0].content : "" };

	memcpy(b->step.key, build_stage_now(b)->key, sizeof(b->step.key));
	build_key(b->step.key, all, ARRAY_LEN(all));
	for (size_t i = 0; i < in->flags.n; i++)
		build_key(b->step.key, (const char *const *)&in->flags.at[i], 1);
}

/* Called when everything that the step depends on is known. */
static void after_key(struct build *b)
{
	const char *net = instruction_flag(b->step.in, "network", NULL);
	struct build_box_plan p = { .chain = build_chain(build_stage_now(b)),
				    .runs = true,
				    .network = net && !strcmp(net, "none") ? NULL : b->network };
	struct err e = { 0 };
	int r;

	if (build_step_cached(b)) {
		build_run_free(TAKE_PTR(b->run));
		return;
	}
	if (b->mounts)
		build_mounts_plan(b->mounts, &p);
	b->step.network = p.network != NULL;
	r = build_box_make(b->s, &b->who, &p, on_box, b, &b->step.box, &e);
	if (r < 0)
		fail_at(b, r, &e);
}

void build_run(struct build *b)
{
	struct build_run *x = calloc(1, sizeof(*x));
	const char *net = instruction_flag(b->step.in, "network", NULL);
	AUTO(json_decref) json_t *body = NULL;
	struct err e = { 0 };
	int r = 0;

	if (!x)
		abort();
	x->b = b;
	b->run = x;
	body = body_of(x);
	if (!body)
		r = err_set(&e, ERR_INVALID, -EINVAL, "the command is not UTF-8, or too long");
	if (r == 0 && instruction_flag(b->step.in, "mount", NULL))
		r = build_mounts_new(b, &b->mounts, &e);
	if (r < 0) {
		fail_at(b, r, &e);
		return;
	}
	key_of_run(b, body, b->network && !(net && !strcmp(net, "none")));
	if (b->mounts)
		build_mounts_key(b->mounts, b->step.key, after_key);
	else
		after_key(b);
}
