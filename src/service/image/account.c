/* Reads the user of an image from its /etc/passwd and /etc/group. */
#include "service/image/account.h"
#include "base/base.h"
#include "service/image/struct.h"
#include "service/struct.h"
#include "base/str.h"
#include "proto/account.h"
#include "service/file/file.h"
#include "service/image/layer.h"
#include "service/sandbox/internal.h"

enum { PASSWD, GROUP, FILES };
static const char *const paths[FILES] = { "etc/passwd", "etc/group" };

struct account_reading {
	struct service *s;
	char user[ACCOUNT_TEXT];
	struct sandbox *sandbox; /* referenced, or NULL: no file has to be read */
	struct file_op *op;
	unsigned at; /* index of the file being read */
	struct buf text[FILES];
	char found[24];
	image_account_fn *fn; /* NULL: cancelled */
	void *arg;
	bool over;
	int r;
	struct err e;
	struct turn_wait wait;
};

static void let_sandbox_go(struct account_reading *a)
{
	struct sandbox *b = TAKE_PTR(a->sandbox);

	if (!b)
		return;
	if (b->state != SANDBOX_ENDING) {
		b->maker = NULL;
		sandbox_give_up(b, 0, NULL);
	}
	sandbox_unref(b);
}

static void on_told(void *arg)
{
	struct account_reading *a = arg;

	if (a->fn)
		a->fn(a->arg, a->r < 0 ? NULL : a->found, a->r < 0 ? &a->e : NULL);
	let_sandbox_go(a);
	buf_done(&a->text[PASSWD]);
	buf_done(&a->text[GROUP]);
	free(a);
}

static void finish(struct account_reading *a, int r, const struct err *e)
{
	if (a->over)
		return;
	a->over = true;
	a->r = r;
	if (r < 0 && e)
		a->e = *e;
	turn_after(a->s->turn, &a->wait, on_told, a);
}

/* The primary group of a user given by number only, as in Docker: that of the line with this number, or 0. */
static uint32_t group_of(const struct account_reading *a, uint32_t uid)
{
	const char *p = buf_str(&a->text[PASSWD]);

	while (*p) {
		const char *end = p + strcspn(p, "\n"), *field = p;
		uint64_t number[2] = { 0 };
		char digits[16];
		int r = 0;

		for (unsigned i = 0; r == 0 && i < 4 && field < end; i++) {
			size_t n = strcspn(field, ":\n");

			if (i >= 2 && n && n < sizeof(digits)) {
				memcpy(digits, field, n);
				digits[n] = '\0';
				r = parse_u64(digits, &number[i - 2], NULL);
			} else if (i >= 2) {
				r = -EINVAL;
			}
			field += n + 1;
		}
		if (r == 0 && field > p && number[0] == uid && strchr(p, ':') && strchr(p, ':') < end &&
		    account_id_ok(number[1]))
			return (uint32_t)number[1];
		p = *end ? end + 1 : end;
	}
	return 0;
}

static void look_up(struct account_reading *a)
{
	const struct account_files files = { .passwd = buf_str(&a->text[PASSWD]),
					     .group = buf_str(&a->text[GROUP]),
					     .passwd_len = a->text[PASSWD].len,
					     .group_len = a->text[GROUP].len };
	struct account found = { 0 };
	uint64_t uid;
	bool group;
	int r;

	if (parse_u64(a->user, &uid, NULL) == 0) { /* a number only */
		if (account_id_ok(uid))
			snprintf(a->found, sizeof(a->found), "%llu:%u", (unsigned long long)uid,
				 group_of(a, (uint32_t)uid));
	} else {
		r = account_find(&files, a->user, &found, &group);
		if (r == 0)
			snprintf(a->found, sizeof(a->found), "%u:%u", found.uid, found.gid);
	}
	finish(a, 0, NULL);
}

static void read_next(struct account_reading *a);

static void on_data(void *arg, const uint8_t *p, size_t len)
{
	struct account_reading *a = arg;

	(void)buf_add(&a->text[a->at], p, len); /* a file above the limit is cut: then a name is not found */
}

static void on_done(void *arg, int r, const struct file_end *x, unsigned flags, const struct err *e)
{
	struct account_reading *a = arg;

	(void)flags;
	(void)e;
	(void)x;
	a->op = NULL;
	if (r < 0)
		buf_clear(&a->text[a->at]); /* the image has no such file */
	a->at++;
	read_next(a);
}

static const struct file_calls calls = { .data = on_data, .done = on_done };

static void read_next(struct account_reading *a)
{
	struct user_request root = { .text = "root" };
	struct file_request q = { .under = "/", .length = ACCOUNT_FILE_MAX };
	struct err e = { 0 };
	int r;

	if (a->over)
		return;
	if (a->at == FILES) {
		look_up(a);
		return;
	}
	q.path = paths[a->at];
	r = file_begin(a->sandbox, &root, FILE_READ, FILE_BENEATH | FILE_ROOTED, &q, &calls, a, &a->op, &e);
	if (r < 0)
		finish(a, r, &e);
}

static void on_up(void *arg, struct sandbox *b)
{
	(void)b;
	read_next(arg);
}

static void on_failed(void *arg, struct sandbox *b, int r, const struct err *e)
{
	struct account_reading *a = arg;

	(void)b;
	finish(a, r < 0 ? r : -EIO, e);
}

static const struct sandbox_maker maker = { .up = on_up, .failed = on_failed };

/* Whether no file is needed; the result is in ->found. */
static bool is_known(struct account_reading *a, const char *user)
{
	const char *colon = strchr(user, ':');
	char head[ACCOUNT_TEXT];
	uint64_t uid, gid;

	if (!*user || !strcmp(user, "root") || !strcmp(user, "0")) {
		snprintf(a->found, sizeof(a->found), "0:0");
		return true;
	}
	if (!colon || strlen(user) >= sizeof(head))
		return strlen(user) >= sizeof(head);
	memcpy(head, user, strlen(user) + 1);
	head[colon - user] = '\0';
	if (parse_u64(head, &uid, NULL) < 0 || parse_u64(colon + 1, &gid, NULL) < 0)
		return false;
	if (account_id_ok(uid) && account_id_ok(gid))
		snprintf(a->found, sizeof(a->found), "%llu:%llu", (unsigned long long)uid, (unsigned long long)gid);
	return true;
}

int image_account(struct service *s, const struct who *who, const char *chain, const char *user, image_account_fn *fn,
		  void *arg, struct account_reading **ret, struct err *e)
{
	struct sandbox_plan p = { .tenant = who->tenant, .maker = &maker, .hidden = true };
	struct account_reading *a = calloc(1, sizeof(*a));
	int r;

	if (!a)
		abort();
	*a = (struct account_reading){
		.s = s, .fn = fn, .arg = arg, .text = { BUF_INIT(ACCOUNT_FILE_MAX), BUF_INIT(ACCOUNT_FILE_MAX) }
	};
	user = user ? user : "";
	if (is_known(a, user) || !*chain) {
		finish(a, 0, NULL);
		*ret = a;
		return 0;
	}
	snprintf(a->user, sizeof(a->user), "%s", user);
	r = image_work_request(s, chain, MIB, &p.request, e);
	if (r == 0) {
		p.arg = a;
		r = sandbox_begin(s, &p, &a->sandbox, e);
		if (r < 0)
			sandbox_request_free(p.request);
	}
	if (r < 0) {
		free(a);
		return r;
	}
	sandbox_ref(a->sandbox);
	*ret = a;
	return 0;
}

void image_account_cancel(struct account_reading *a)
{
	a->fn = NULL;
	if (a->op)
		file_cancel(TAKE_PTR(a->op));
	finish(a, -ECANCELED, NULL);
}
