/* `cloche audit`. */
#include "client/client.h"
#include "base/base.h"
#include "base/str.h"
#include "client/show.h"
#include "client/table.h"
#include "client/text.h"
#include "client/verify.h"

#include <limits.h>
#include <poll.h>

#define PAGE 1000

enum { OPT_SANDBOX = 256, OPT_KIND, OPT_AFTER, OPT_DATA, OPT_ONLINE, OPT_HEAD };

static const struct option options[] = {
	{ "follow", no_argument, NULL, 'f' },	       { "sandbox", required_argument, NULL, OPT_SANDBOX },
	{ "kind", required_argument, NULL, OPT_KIND }, { "after", required_argument, NULL, OPT_AFTER },
	{ "data", required_argument, NULL, OPT_DATA }, { "online", no_argument, NULL, OPT_ONLINE },
	{ "head", required_argument, NULL, OPT_HEAD }, { NULL, 0, NULL, 0 },
};

static const char help[] =
	"usage: cloche audit [options]\n"
	"       cloche audit verify [--head SEQ:HASH] [--data DIR | FILE | --online]\n"
	"\n"
	"Prints the audit log (admin), or verifies it: every record, its number and the chain of hashes. `verify`\n"
	"needs no daemon; it prints one line and exits with 0 when the log is intact, 1 when it is not.\n"
	"\n"
	"  -f, --follow        continue with new records\n"
	"  --sandbox ID        only of this sandbox\n"
	"  --kind KIND         only of this kind, as exec.end\n"
	"  --after SEQ         only records after this number\n"
	"  --data DIR          verify: the daemon's data folder              /var/lib/cloche\n"
	"  --head SEQ:HASH     verify: the log must contain this record (the X-Cloche-Audit header of an answer\n"
	"                      names it); detects a log whose end was cut off\n"
	"  --online            verify: let the daemon verify its own log\n";

struct audit_cmd {
	const char *sandbox, *kind, *data;
	uint64_t after;
	bool follow, online;
	struct audit_head head; /* seq 0 = none */
};

/* SEQ:HASH */
static int parse_head(const char *text, struct audit_head *ret, struct err *e)
{
	const char *colon = strchr(text, ':');
	char seq[24];

	if (colon && (size_t)(colon - text) < sizeof(seq) && strlen(colon + 1) == 64 &&
	    strspn(colon + 1, "0123456789abcdef") == 64) {
		snprintf(seq, sizeof(seq), "%.*s", (int)(colon - text), text);
		snprintf(ret->hash, sizeof(ret->hash), "%s", colon + 1);
		if (parse_u64(seq, &ret->seq, NULL) == 0 && ret->seq)
			return 0;
	}
	return err_set(e, ERR_INVALID, -EINVAL, "--head: must be SEQ:HASH, as printed by `cloche audit verify`");
}

static int print_verdict(const struct args *a, const json_t *v, bool ok, struct err *e)
{
	AUTO(buf_done) struct buf b = BUF_INIT(4 * KIB);
	const json_t *head = json_object_get(v, "head");
	const char *why = show_str(v, "error");

	if (a->json) {
		show_json(v, SHOW_LINE, e);
	} else if (ok) {
		text_escape(&b, show_str(head, "hash"), strlen(show_str(head, "hash")));
		printf("ok: %llu records, head %llu:%s\n", (unsigned long long)show_u64(v, "records"),
		       (unsigned long long)show_u64(head, "seq"), buf_str(&b));
	} else {
		text_escape(&b, why, strlen(why));
		printf("BROKEN: %s (%llu valid records before)\n", buf_str(&b),
		       (unsigned long long)show_u64(v, "records"));
	}
	return ok ? 0 : 1;
}

static int verify(struct args *a, const struct audit_cmd *o, struct err *e)
{
	AUTO_JSON json_t *v = NULL;
	AUTO(conn_close) struct conn *c = NULL;
	struct verify_result res;
	char path[PATH_MAX];
	int r;

	if (o->online) {
		r = conn_open(&a->conn, &c, e);
		if (r == 0)
			r = conn_get(c, "/v1/audit/verify", &v, e);
		return r < 0 ? r : print_verdict(a, v, json_is_true(json_object_get(v, "ok")), e);
	}
	snprintf(path, sizeof(path), "%s/audit.log", o->data ? o->data : "/var/lib/cloche");
	r = verify_log(a->nrest > 1 ? a->rest[1] : path, o->head.seq ? &o->head : NULL, &res, e);
	if (r == -ENOENT && !o->data && a->nrest < 2)
		err_remedy(e, "name the daemon's data folder with --data");
	if (r < 0)
		return r;
	v = json_pack("{s:b, s:I, s:{s:I, s:s}, s:s?}", "ok", res.ok, "records", (json_int_t)res.records, "head", "seq",
		      (json_int_t)res.seq, "hash", res.hash, "error", res.ok ? NULL : res.why);
	if (!v)
		return err_set(e, ERR_INTERNAL, -EILSEQ, "%s: not an audit log", path);
	return print_verdict(a, v, res.ok, e);
}

static void print_record(const json_t *v)
{
	static const char *const shown[] = { "seq",	   "time",    "mono_ns", "kind", "tenant", "token",
					     "request_id", "sandbox", "exec",	 "prev", "hash" };
	AUTO(buf_done) struct buf raw = BUF_INIT(256 * KIB), b = BUF_INIT(1 * MIB);
	const char *exec = show_str(v, "exec");
	void *it;

	buf_addf(&raw, "%6llu  %s  %-16s  %s%s%s", (unsigned long long)show_u64(v, "seq"), show_str(v, "time"),
		 show_str(v, "kind"), *show_str(v, "sandbox") ? show_str(v, "sandbox") : "-", *exec ? " " : "", exec);
	for (it = json_object_iter((json_t *)(uintptr_t)v); it;
	     it = json_object_iter_next((json_t *)(uintptr_t)v, it)) {
		bool skip = false;

		for (size_t i = 0; i < ARRAY_LEN(shown); i++)
			skip = skip || !strcmp(json_object_iter_key(it), shown[i]);
		if (skip)
			continue;
		buf_addf(&raw, " %s=", json_object_iter_key(it));
		show_dump(json_object_iter_value(it), SHOW_LINE, &raw);
	}
	text_escape(&b, buf_str(&raw), raw.len);
	puts(buf_str(&b));
}

/* One page; *after moves on. 1 when there may be more right now. */
static int page(const struct args *a, struct conn *c, const struct audit_cmd *o, uint64_t *after, struct err *e)
{
	AUTO(buf_done) struct buf path = BUF_INIT(8 * KIB);
	AUTO_JSON json_t *v = NULL;
	const json_t *records, *one;
	uint64_t next;
	size_t i;
	int r = url_add(&path, "/v1/audit?after=%u&limit=%u", (unsigned long long)*after, (unsigned long long)PAGE);

	if (r == 0 && o->sandbox)
		r = url_add(&path, "&sandbox=%s", o->sandbox);
	if (r == 0 && o->kind)
		r = url_add(&path, "&kind=%s", o->kind);
	if (r == 0)
		r = conn_get(c, buf_str(&path), &v, e);
	if (r < 0)
		return r;
	records = json_object_get(v, "records");
	json_array_foreach(records, i, one)
	{
		if (a->json)
			show_json(one, SHOW_LINE, NULL);
		else
			print_record(one);
		if (show_u64(one, "seq") > *after)
			*after = show_u64(one, "seq");
	}
	/* With a filter the daemon may have looked further than the last record that fitted. */
	next = show_u64(v, "next");
	if (next > *after)
		*after = next;
	if (fflush(stdout))
		return err_sys(e, ERR_INTERNAL, -errno, "write to stdout");
	return json_array_size(records) == PAGE || next ? 1 : 0;
}

static int run(struct args *a, struct err *e)
{
	AUTO(conn_close) struct conn *c = NULL;
	struct audit_cmd o = { 0 };
	int opt, r;

	while ((r = args_next(a, &opt, e)) > 0) {
		if (opt == 'f')
			o.follow = true;
		else if (opt == OPT_ONLINE)
			o.online = true;
		else if (opt == OPT_SANDBOX)
			o.sandbox = optarg;
		else if (opt == OPT_KIND)
			o.kind = optarg;
		else if (opt == OPT_DATA)
			o.data = optarg;
		else if (opt == OPT_HEAD && (r = parse_head(optarg, &o.head, e)) < 0)
			return r;
		else if (opt == OPT_HEAD)
			continue;
		else if (parse_u64(optarg, &o.after, e) < 0)
			return err_wrap(e, -EINVAL, "--after");
	}
	if (r < 0 || a->help)
		return r;
	if (a->nrest && !strcmp(a->rest[0], "verify")) {
		r = args_count(a, 1, o.data || o.online ? 1 : 2, "FILE", e);
		if (r == 0 && o.online && o.head.seq)
			r = err_set(e, ERR_INVALID, -EINVAL, "--head cannot be used with --online");
		return r < 0 ? r : verify(a, &o, e);
	}
	r = args_connect(a, 0, 0, "options, or verify", &c, e);
	if (r < 0)
		return r;
	for (;;) {
		uint64_t before = o.after;

		r = page(a, c, &o, &o.after, e);
		if (r < 0)
			return r;
		if (r > 0 && o.after > before)
			continue;
		if (!o.follow)
			return 0;
		poll(NULL, 0, 500);
	}
}

const struct command cmd_audit = {
	.name = "audit",
	.text = "read or verify the audit log",
	.help = help,
	.letters = "f",
	.options = options,
	.complete = COMPLETE_WORDS,
	.words = "verify",
	.run = run,
};
