/*
 * COPY, ADD and WORKDIR: cloche-tar first lists what would be copied, and copies it when the build cache has no such
 * step.
 */
#include "base/base.h"
#include "dockerfile/heredoc.h"
#include "service/image/build_impl.h"

#include <ctype.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define SPEC_MAX (4U << 20) /* in the format of tar/copy_spec.h */

struct copy_job {
	struct buf spec; /* pairs of key and value */
	char digest[BUILD_KEY];
};

static int fail_at(struct build *b, int r, const struct err *e)
{
	struct err why = *e;

	err_wrap(&why, r, "line %u: %s", b->step.in->line, instruction_name(b->step.in->kind));
	build_fail(b, r, &why);
	return r;
}

int build_pair(struct buf *to, const char *key, const char *value)
{
	int r = buf_add(to, key, strlen(key) + 1);

	return r < 0 ? r : buf_add(to, value, strlen(value) + 1);
}

/* Removes "." and "..", whatever links there are: as other builders do, and the path is part of keys. */
static void clean(char *path)
{
	char *to = path;

	for (const char *p = path; *p;) {
		size_t n;

		p += strspn(p, "/");
		n = strcspn(p, "/");
		if (n == 2 && p[0] == '.' && p[1] == '.') {
			while (to > path && *--to != '/')
				;
		} else if (n && !(n == 1 && *p == '.')) {
			memmove(to + 1, p, n);
			*to = '/';
			to += n + 1;
		}
		p += n;
	}
	if (to == path)
		*to++ = '/';
	*to = '\0';
}

/* @path below the working folder, if it is relative. */
char *build_absolute(const struct build *b, const char *path)
{
	const char *dir = build_stage_now(b)->config.workdir;
	char *ret;

	if (*path == '/')
		return strdup(path);
	return asprintf(&ret, "%s/%s", dir && *dir == '/' ? dir : "", path) < 0 ? NULL : ret;
}

static bool is_folder(const char *path)
{
	size_t n = strlen(path);

	return n && (path[n - 1] == '/' || !strcmp(path, ".") || !strcmp(path, "..") ||
		     (n > 1 && !strcmp(path + n - 2, "/.")) || (n > 2 && !strcmp(path + n - 3, "/..")));
}

/* --- what is copied --- */

int build_not_remote(const char *text, struct err *e)
{
	if (!strstr(text, "://") && strncmp(text, "git@", 4) != 0)
		return 0;
	err_set(e, ERR_UNSUPPORTED, -ENOTSUP, "'%.100s': ADD does not take URLs", text);
	err_remedy(e, "fetch it in a RUN with --network, which checks what comes, or put it into the context");
	return -ENOTSUP;
}

static int add_source(struct build *b, const char *text, bool adds, struct buf *spec, struct err *e)
{
	AUTO_FREE char *word = NULL;
	int r = build_word(b, text, &word, e);

	if (r == 0 && adds)
		r = build_not_remote(word, e);
	return r < 0 ? r : build_pair(spec, "source", word);
}

static int add_heredoc(struct build *b, const struct heredoc *h, struct buf *spec, struct err *e)
{
	AUTO(buf_done) struct buf out = BUF_INIT(EXPAND_MAX);
	AUTO_FREE char *content = strdup(h->content);
	struct expand x = build_expand(b);
	int r;

	if (!content)
		return -ENOMEM;
	if (h->chomp)
		heredoc_chomp(content);
	x.plain_quotes = true;
	r = h->expand ? expand_word(&x, content, &out, e) : 0;
	if (r == 0)
		r = build_pair(spec, "here", h->name);
	return r < 0 ? r : build_pair(spec, "content", h->expand ? buf_str(&out) : content);
}

static int sources(struct build *b, const struct instruction *in, struct buf *spec, struct err *e)
{
	const bool adds = in->kind == DOCKER_ADD;
	size_t next = 0;
	int r = 0;

	for (size_t i = 0; r == 0 && i + 1 < in->args.n; i++) {
		struct heredoc h = { 0 };

		r = in->json ? 0 : heredoc_word(in->args.at[i], &h, e);
		if (r == 0 && h.name && next < in->heredocs)
			r = add_heredoc(b, &in->heredoc[next++], spec, e);
		else if (r == 0)
			r = add_source(b, in->args.at[i], adds, spec, e);
		free(h.name);
	}
	return r;
}

static int flag_words(struct build *b, const struct instruction *in, const char *flag, const char *key,
		      struct buf *spec, struct err *e)
{
	const char *text;
	size_t at = 0;
	int r = 0;

	while (r == 0 && (text = instruction_flag(in, flag, &at))) {
		AUTO_FREE char *word = NULL;

		r = build_word(b, text, &word, e);
		if (r == 0 && *word)
			r = build_pair(spec, key, word);
	}
	return r;
}

static bool on(const struct instruction *in, const char *flag)
{
	const char *v = instruction_flag(in, flag, NULL);

	return v && (!*v || !strcasecmp(v, "true"));
}

/* The specification without the source. */
static int spec_of(struct build *b, const struct instruction *in, struct buf *spec, struct err *e)
{
	AUTO_FREE char *word = NULL, *dest = NULL;
	const char *unpack = instruction_flag(in, "unpack", NULL);
	int r = sources(b, in, spec, e);

	if (r == 0 && instruction_flag(in, "checksum", NULL))
		return err_set(e, ERR_UNSUPPORTED, -ENOTSUP, "--checksum is for URLs, which ADD does not take");
	if (r == 0)
		r = build_word(b, in->args.at[in->args.n - 1], &word, e);
	if (r < 0)
		return r;
	dest = build_absolute(b, word);
	if (!dest)
		return -ENOMEM;
	clean(dest);
	r = build_pair(spec, "dest", dest);
	if (r == 0 && is_folder(word))
		r = build_pair(spec, "folder", "1");
	if (r == 0)
		r = flag_words(b, in, "chown", "chown", spec, e);
	if (r == 0)
		r = flag_words(b, in, "chmod", "chmod", spec, e);
	if (r == 0)
		r = flag_words(b, in, "exclude", "exclude", spec, e);
	if (r == 0 && on(in, "parents"))
		r = build_pair(spec, "parents", "1");
	if (r == 0 && in->kind == DOCKER_ADD && (!unpack || on(in, "unpack")))
		r = build_pair(spec, "unpack", "1");
	return r;
}

/* --- steps of a copy --- */

static int memfd_of(const struct buf *text, struct err *e)
{
	AUTO_CLOSE int fd = memfd_create("spec", MFD_CLOEXEC);

	if (fd < 0 || fd_write_all(fd, text->data, text->len) < 0 || lseek(fd, 0, SEEK_SET) < 0)
		return err_sys(e, ERR_EXHAUSTED, -EIO, "say what is to be copied");
	return TAKE_FD(fd);
}

int build_tar(struct build *b, struct build_box *source, struct build_box *to, const struct buf *text, tar_child_fn *fn,
	      struct err *e)
{
	struct tar_child_plan p = { .mode = to ? "copy" : "select",
				    .option = { "--from", "--spec", to ? "--files" : NULL },
				    .tenant = b->who.tenant };
	AUTO_CLOSE int from = -1, spec = -1, files = -1;
	int pairs[2], r = 0;

	if (!source) { /* nothing is read: the other end is closed */
		if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pairs) < 0)
			return err_sys(e, ERR_EXHAUSTED, -errno, "make a socket");
		from = pairs[0];
		fd_close(pairs[1]);
	} else {
		r = build_box_worker(source, &from, e);
	}
	if (r == 0)
		r = spec = memfd_of(text, e);
	if (r >= 0 && to)
		r = build_box_worker(to, &files, e);
	if (r < 0)
		return r;
	p.fd[0] = from;
	p.fd[1] = spec;
	p.fd[2] = files;
	return tar_child_start(b->s, &p, fn, b, &b->child, e);
}

static int child(struct build *b, bool to, tar_child_fn *fn, struct err *e)
{
	struct build_step *t = &b->step;

	return build_tar(b, t->no_source ? NULL : t->from ? t->from : b->context, to ? t->box : NULL, &t->spec, fn, e);
}

static void on_copied(void *arg, int r, json_t *result, const struct err *e)
{
	struct build *b = arg;
	json_t *one;
	size_t i;

	b->child = NULL;
	if (b->ended) {
		build_child_gone(b);
		return;
	}
	if (r < 0) {
		fail_at(b, r, e);
		return;
	}
	json_array_foreach(json_object_get(result, "skipped"), i, one)
	{
		build_warn(b, b->step.in->line, "'%s' is left out: %s", json_string_value(json_object_get(one, "name")),
			   json_string_value(json_object_get(one, "why")));
	}
	/* A working folder that exists already makes no layer. */
	if (b->step.in->kind == DOCKER_WORKDIR && !json_integer_value(json_object_get(result, "files"))) {
		struct image_chain *c = build_stage_now(b)->chain;

		if (c)
			image_chain_pin(c);
		build_step_over(b, c);
		return;
	}
	build_step_seal(b);
}

static void on_box(void *arg, const struct err *e)
{
	struct build *b = arg;
	struct err why = { 0 };
	int r;

	if (b->ended)
		return;
	r = e ? fail_at(b, -EIO, e) : child(b, true, on_copied, &why);
	if (r < 0 && !e)
		fail_at(b, r, &why);
}

/* The step is not in the cache: does it. */
static void do_copy(struct build *b)
{
	const struct build_box_plan p = { .chain = build_chain(build_stage_now(b)), .memory = b->step.small };
	struct err e = { 0 };
	int r = build_box_make(b->s, &b->who, &p, on_box, b, &b->step.box, &e);

	if (r < 0)
		fail_at(b, r, &e);
}

static void key_of_copy(struct build *b, const char *digest)
{
	const char *text[] = { instruction_name(b->step.in->kind), digest };
	struct build_step *t = &b->step;

	memcpy(t->key, build_stage_now(b)->key, sizeof(t->key));
	build_key(t->key, text, ARRAY_LEN(text));
	/* The pairs contain NULs, so each text is hashed by itself. */
	for (const char *p = t->spec.data, *end = p + t->spec.len; p < end; p += strlen(p) + 1)
		build_key(t->key, &p, 1);
}

static void on_selected(void *arg, int r, json_t *result, const struct err *e)
{
	struct build *b = arg;
	const char *digest = json_string_value(json_object_get(result, "digest"));

	b->child = NULL;
	if (b->ended) {
		build_child_gone(b);
		return;
	}
	if (r < 0) {
		fail_at(b, r, e);
		return;
	}
	b->step.small = json_integer_value(json_object_get(result, "bytes")) < (json_int_t)(64 * MIB);
	key_of_copy(b, digest ? digest : "");
	if (build_step_cached(b) == 0)
		do_copy(b);
}

static void select_now(struct build *b)
{
	struct err e = { 0 };
	int r = child(b, false, on_selected, &e);

	if (r < 0)
		fail_at(b, r, &e);
}

static void on_from(void *arg, const struct err *e)
{
	struct build *b = arg;

	if (b->ended)
		return;
	if (e)
		fail_at(b, -EIO, e);
	else
		select_now(b);
}

int build_from(struct build *b, const char *from, const char **ret_chain, struct err *e)
{
	int k = stages_find(&b->stages, from, b->at);
	const struct image *image;

	*ret_chain = "";
	if (k >= 0) {
		*ret_chain = build_chain(&b->stage[k]);
		return 0;
	}
	image = image_find(b->s, b->who.tenant, from, e);
	if (!image)
		return -ENOENT;
	*ret_chain = image->chain;
	return 0;
}

void build_copy(struct build *b)
{
	const struct instruction *in = b->step.in;
	const char *from = instruction_flag(in, "from", NULL), *chain;
	struct build_box_plan p = { .memory = true };
	struct err e = { 0 };
	int r;

	b->step.spec = (struct buf)BUF_INIT(SPEC_MAX);
	r = spec_of(b, in, &b->step.spec, &e);
	if (r == 0 && !from && b->has_context) {
		r = build_pair(&b->step.spec, "under", "/context");
		if (r == 0)
			r = build_pair(&b->step.spec, "ignore", "1");
		if (r == 0)
			r = build_pair(&b->step.spec, "owner", "1");
	}
	b->step.no_source = !from && !b->has_context && in->args.n == in->heredocs + 1;
	if (r == 0 && !from && !b->has_context && !b->step.no_source)
		r = err_set(&e, ERR_INVALID, -EINVAL, "the build has no context");
	if (r == 0 && from)
		r = build_from(b, from, &chain, &e);
	if (r < 0 && !e.msg[0])
		err_set(&e, r == -E2BIG ? ERR_TOO_LARGE : ERR_EXHAUSTED, r,
			"its text is too long, or there is no memory");
	if (r == 0 && from) {
		p.chain = chain;
		r = build_box_make(b->s, &b->who, &p, on_from, b, &b->step.from, &e);
	} else if (r == 0) {
		select_now(b);
	}
	if (r < 0)
		fail_at(b, r, &e);
}

void build_workdir(struct build *b, const char *path)
{
	AUTO_FREE char *whole = build_absolute(b, path);
	struct build_stage *g = build_stage_now(b);
	struct err e = { 0 };
	int r = 0;

	b->step.spec = (struct buf)BUF_INIT(SPEC_MAX);
	if (!*path)
		r = err_set(&e, ERR_INVALID, -EINVAL, "the path is empty after expansion");
	else if (!whole)
		r = err_set(&e, ERR_EXHAUSTED, -ENOMEM, "no memory for a build");
	if (r == 0) {
		clean(whole);
		r = build_set(&g->config.workdir, whole);
	}
	if (r == 0)
		r = build_pair(&b->step.spec, "mkdir", whole);
	/* The stage's user must be able to write there. */
	if (r == 0 && g->config.user && *g->config.user)
		r = build_pair(&b->step.spec, "chown", g->config.user);
	if (r < 0) {
		fail_at(b, r, &e);
		return;
	}
	b->step.no_source = true;
	b->step.small = true;
	key_of_copy(b, "");
	if (build_step_cached(b) == 0)
		do_copy(b);
}
