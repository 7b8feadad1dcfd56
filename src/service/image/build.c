/* Starts and ends a build, and reports its events. */
#include "base/base.h"
#include "base/map.h"
#include "base/sha256.h"
#include "service/file/file.h"
#include "service/image/assemble.h"
#include "service/image/build_impl.h"
#include "service/image/operation.h"
#include "service/image/usage.h"
#include "service/network/conf.h"
#include "service/state/json_read.h"

#include <stdarg.h>
#include <sys/socket.h>
#include <unistd.h>

#define SMALL_CONTEXT (256 * MIB) /* kept in memory */
#define OUTPUT_MAX (64 * KIB) /* bytes of one event */

void build_key(char key[BUILD_KEY], const char *const *text, size_t n)
{
	uint8_t sum[SHA256_SIZE];
	struct sha256 s;

	sha256_init(&s);
	sha256_add(&s, key, strlen(key) + 1);
	for (size_t i = 0; i < n; i++)
		sha256_add(&s, text[i], strlen(text[i]) + 1);
	sha256_end(&s, sum);
	for (size_t i = 0; i < SHA256_SIZE; i++)
		snprintf(key + 2 * i, 3, "%02x", sum[i]);
}

void build_event(struct build *b, struct buf *object)
{
	char *fields;

	if (!b->told)
		b->calls->event(b->arg, object);
	fields = object->len > 2 ? strndup(object->data + 1, object->len - 2) : NULL; /* without its braces */
	if (fields)
		operation_progress(b->operation, fields);
	free(fields);
}

void build_output(struct build *b, const char *stream, const char *p, size_t len)
{
	while (len) {
		AUTO(buf_done) struct buf out = BUF_INIT(8 * OUTPUT_MAX);
		struct json j = JSON_INIT(&out);
		size_t n = len < OUTPUT_MAX ? len : OUTPUT_MAX;

		jout_object(&j, NULL);
		jout_str(&j, "type", "output");
		jout_u64(&j, "step", b->number);
		jout_str(&j, "stream", stream);
		jout_strn(&j, "text", p, n);
		jout_end(&j);
		if (jout_done(&j) == 0 && !b->told) /* it is too long for the operation */
			b->calls->event(b->arg, &out);
		p += n;
		len -= n;
	}
}

void build_warn(struct build *b, unsigned line, const char *fmt, ...)
{
	AUTO(buf_done) struct buf out = BUF_INIT(16 * KIB);
	struct json j = JSON_INIT(&out);
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	jout_object(&j, NULL);
	jout_str(&j, "type", "warning");
	if (line)
		jout_u64(&j, "line", line);
	jout_str(&j, "text", text);
	jout_end(&j);
	if (jout_done(&j) == 0)
		build_event(b, &out);
}

/* --- the end --- */

static void build_free(struct build *b)
{
	b->who.tenant->calls.builds -= b->counted;
	if (b->assembly)
		assembly_cancel(b->assembly);
	build_run_free(b->run);
	build_mounts_free(b->mounts);
	build_resolver_free(b->resolver);
	build_box_free(b->step.box);
	build_box_free(b->step.from);
	build_box_free(b->context);
	buf_done(&b->step.spec);
	build_plan_done(b);
	image_bytes_give(b->who.tenant, b->taken);
	if (b->r < 0 && b->e.kind == ERR_QUOTA)
		image_sweep(b->s, NULL); /* a layer that could not be kept */
	fd_close(b->context_worker);
	image_unref(b->image);
	json_decref(b->request);
	turn_cancel(&b->wait);
	free(b);
}

static void end_operation(struct build *b)
{
	AUTO(buf_done) struct buf out = BUF_INIT(4 * KIB);
	struct json j = JSON_INIT(&out);

	if (b->r < 0) {
		operation_end(b->operation, NULL, &b->e);
		return;
	}
	jout_object(&j, NULL);
	image_write_result(b->image, &j);
	jout_end(&j);
	operation_end(b->operation, buf_str(&out), NULL);
}

static void on_told(void *arg)
{
	struct build *b = arg;

	end_operation(b);
	if (!b->told) {
		b->told = true;
		b->calls->done(b->arg, b->r < 0 ? NULL : b->image, b->r < 0 ? &b->e : NULL);
	}
	if (b->r == 0)
		build_cache_expire(b->s, b->who.tenant);
	build_free(b);
}

/* A child must still report its end: then everything is freed. */
static void end(struct build *b)
{
	if (!b->child)
		turn_after(b->s->turn, &b->wait, on_told, b);
}

void build_child_gone(struct build *b)
{
	end(b);
}

void build_fail(struct build *b, int r, const struct err *e)
{
	if (b->ended)
		return;
	b->ended = true;
	b->r = r;
	if (e)
		b->e = *e;
	if (b->child)
		tar_child_kill(b->child);
	end(b);
}

static void cancel(struct build *b)
{
	struct err e = { 0 };

	build_fail(b, err_set(&e, WHY_CANCELED, -ECANCELED, "the build was canceled"), &e);
}

void build_cancel(struct build *b)
{
	b->told = true;
	cancel(b);
}

static void on_operation_cancel(void *arg)
{
	cancel(arg);
}

static int begin_operation(struct build *b, struct err *e)
{
	const char *tag = json_string_value(json_array_get(json_object_get(b->request, "tags"), 0));
	const struct operation_new n = {
		.kind = "build", .what = tag ? tag : "", .cancel = on_operation_cancel, .arg = b
	};

	return operation_begin(b->s, &b->who, &n, &b->operation, e);
}

void build_read(struct build *b)
{
	build_run_read(b->run);
}

/* --- the context --- */

/* The names that the ARGs of the Dockerfile have. 512 arguments times each of up to half a million names takes seconds. */
static int arg_names(const struct dockerfile *file, struct map *ret)
{
	int r = map_init(ret);

	for (size_t i = 0; r == 0 && i < file->n; i++) {
		const struct instruction *in = &file->at[i];

		for (size_t k = 0; r == 0 && in->kind == DOCKER_ARG && k < in->args.n; k++) {
			AUTO_FREE char *name = strndup(in->args.at[k], strcspn(in->args.at[k], "="));

			r = name ? map_put(ret, name, ret) : -ENOMEM;
		}
	}
	return r;
}

static void warn_args(struct build *b)
{
	const json_t *args = json_object_get(b->request, "args");
	struct map names = { 0 };
	const char *name;
	json_t *v;

	if (json_object_size(args) && arg_names(b->file, &names) == 0)
		json_object_foreach((json_t *)(uintptr_t)args, name, v)
		{
			if (!map_get(&names, name))
				build_warn(b, 0, "--build-arg %s: no ARG of the Dockerfile has this name", name);
		}
	map_done(&names);
}

static void on_context(void *arg, int r, json_t *result, const struct err *e)
{
	struct build *b = arg;
	struct err why = { 0 };
	json_t *skipped = json_object_get(result, "skipped"), *one;
	size_t i;

	b->child = NULL;
	if (b->ended) {
		end(b);
		return;
	}
	if (r < 0) {
		why = *e;
		err_wrap(&why, r, "the context");
		build_fail(b, r, &why);
		return;
	}
	json_array_foreach(skipped, i, one)
	{
		build_warn(b, 0, "the context: '%s' is left out: %s", json_string_value(json_object_get(one, "name")),
			   json_string_value(json_object_get(one, "why")));
	}
	b->context_ready = true;
	warn_args(b);
	build_go_on(b);
}

static void on_context_box(void *arg, const struct err *e)
{
	const struct user_request root = { .text = "root" };
	struct build *b = arg;
	struct err why = { 0 };
	int r;

	if (b->ended)
		return;
	if (e) {
		build_fail(b, -EIO, e);
		return;
	}
	r = file_worker_give(build_box_sandbox(b->context), &root, b->context_worker, &why);
	fd_close(b->context_worker);
	b->context_worker = -1;
	if (r < 0)
		build_fail(b, r, &why);
}

static int start_context(struct build *b, int *ret_stream, struct err *e)
{
	AUTO_CLOSE int files = -1, stream = -1, theirs = -1;
	struct tar_child_plan p = { .mode = "context", .option = { "--files", "--stream" }, .tenant = b->who.tenant };
	const json_t *bytes = json_object_get(b->request, "context_bytes");
	const struct build_box_plan box = { .chain = "",
					    .memory = bytes && json_integer_value(bytes) <= (json_int_t)SMALL_CONTEXT };
	const uint64_t size = bytes ? (uint64_t)json_integer_value(bytes) : 0;
	int pair[2], r = image_bytes_take_in(b->s, b->who.tenant, size, e);

	if (r < 0)
		return err_wrap(e, r, "the context");
	b->taken = size;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return err_sys(e, ERR_EXHAUSTED, -errno, "make a socket");
	files = pair[0];
	b->context_worker = pair[1];
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return err_sys(e, ERR_EXHAUSTED, -errno, "make a socket");
	stream = pair[0];
	theirs = pair[1];
	r = build_box_make(b->s, &b->who, &box, on_context_box, b, &b->context, e);
	if (r < 0)
		return r;
	p.fd[0] = files;
	p.fd[1] = theirs;
	r = tar_child_start(b->s, &p, on_context, b, &b->child, e);
	if (r < 0)
		return r;
	fd_set_nonblock(stream);
	*ret_stream = TAKE_FD(stream);
	return 0;
}

/* --- the request --- */

static int texts(struct json_read *j, const char *key, size_t max, size_t len)
{
	const json_t *list = json_read_array(j, key, max);

	for (size_t i = 0; list && j->r == 0 && i < json_array_size(list); i++) {
		const char *text = json_string_value(json_array_get(list, i));

		if (!text || strlen(text) > len)
			return json_read_bad(j, key, "must be an array of strings of at most %zu bytes", len);
	}
	return j->r;
}

static int objects(struct json_read *j, const char *key, size_t max)
{
	const json_t *o = json_read_object(j, key);
	const char *name;
	json_t *v;

	if (o && json_object_size(o) > max)
		return json_read_bad(j, key, "at most %zu entries", max);
	json_object_foreach((json_t *)(uintptr_t)o, name, v)
	{
		if (!json_is_string(v) || !*name || strchr(name, '='))
			return json_read_bad(j, key, "must be an object of strings");
	}
	return j->r;
}

/* The administrator's set `builds` is what RUN may reach when the request does not say. */
static int default_network(struct build *b, struct err *e)
{
	const char *rule[EGRESS_RULES_MAX];
	json_t *network;

	if (b->network || net_conf_set(b->s->o.net, "builds", rule) < 0)
		return 0;
	network = json_pack("{s:[s]}", "allow", "@builds");
	if (!network || json_object_set_new(b->request, "network", network) < 0)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a build");
	b->network = network;
	return 0;
}

static int read_request(struct build *b, struct err *e)
{
	struct json_read j = JIN_INIT(b->request, e);
	const char *text = NULL;
	uint64_t bytes = 0;
	bool context = true;
	int r;

	json_read_str(&j, "dockerfile", &text, DOCKERFILE_MAX);
	if (!text)
		json_read_bad(&j, "dockerfile", "must be the text of a Dockerfile");
	json_read_str(&j, "target", &b->target, 256);
	json_read_bool(&j, "no_cache", &b->no_cache);
	json_read_bool(&j, "context", &context);
	json_read_u64(&j, "context_bytes", &bytes, 0, INT64_MAX);
	b->network = json_read_any(&j, "network");
	texts(&j, "tags", BUILD_TAGS_MAX, OCI_NAME_MAX - 1);
	objects(&j, "args", BUILD_ARGS_MAX);
	objects(&j, "labels", BUILD_ARGS_MAX);
	objects(&j, "secrets", 64);
	b->has_context = context;
	r = json_read_end(&j);
	for (size_t i = 0; r == 0 && i < json_array_size(json_object_get(b->request, "tags")); i++) {
		const char *tag = json_string_value(json_array_get(json_object_get(b->request, "tags"), i));
		struct oci_name n;

		r = oci_name_parse(tag, &n, e);
		if (r == 0 && n.digest[0])
			r = err_set(e, ERR_INVALID, -EINVAL, "tags: '%.100s' must not have a digest", tag);
	}
	if (r == 0)
		r = default_network(b, e);
	if (r == 0 && b->network) {
		struct net_request *net = NULL;

		r = net_request_parse(b->network, &net, e);
		if (r == 0)
			r = net_request_check(b->s->o.net, net, e);
		net_request_free(net);
	}
	return r;
}

static void begin(void *arg)
{
	struct build *b = arg;

	warn_args(b);
	build_go_on(b);
}

/* Sandboxes of builds are in no quota. */
static int count(struct build *b, struct err *e)
{
	unsigned *running = &b->who.tenant->calls.builds;

	if (*running >= BUILDS_RUNNING) {
		err_set(e, ERR_EXHAUSTED, -EAGAIN, "%u builds of this tenant are running, which is the limit",
			*running);
		err_remedy(e, "wait for one to end, or cancel one");
		return -EAGAIN;
	}
	++*running;
	b->counted = true;
	return 0;
}

int build_start(struct service *s, const struct who *who, const json_t *request, const struct build_calls *calls,
		void *arg, struct build_begun *ret, struct err *e)
{
	struct build *b = calloc(1, sizeof(*b));
	int r;

	if (!b)
		abort();
	*b = (struct build){
		.s = s, .who = *who, .calls = calls, .arg = arg, .context_worker = -1, .work = EXPAND_WORK
	};
	b->request = json_deep_copy(request);
	r = count(b, e);
	if (r == 0 && !b->request)
		r = err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a build");
	if (r == 0)
		r = read_request(b, e);
	if (r == 0)
		r = build_plan(b, e);
	*ret = (struct build_begun){ .stream = -1 };
	if (r == 0)
		r = begin_operation(b, e);
	if (r == 0 && b->has_context) {
		r = start_context(b, &ret->stream, e);
		if (r < 0)
			operation_end(b->operation, NULL, e);
	}
	if (r < 0) {
		memcpy(ret->missing, b->missing, sizeof(ret->missing));
		build_free(b);
		return r;
	}
	b->context_ready = !b->has_context;
	/* A context comes first: the events must follow the request's body. */
	if (!b->has_context)
		turn_after(s->turn, &b->wait, begin, b);
	ret->build = b;
	ret->operation = b->operation;
	return 0;
}
