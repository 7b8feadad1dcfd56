/* Runs skopeo, collects its output, and turns its messages into errors. */
#include "service/image/skopeo.h"
#include "base/base.h"
#include "base/fd.h"
#include "service/exec/exec.h"
#include "service/network/conf.h"
#include "service/exec/struct.h"
#include "service/sandbox/struct.h"

#include <jansson.h>
#include <signal.h>

#define OUT_MAX (8U * MIB) /* bytes of output; a manifest has at most 4 MiB */
#define ASKED_MS (2U * 60 * 1000)
#define SERVED_MS (12U * 3600 * 1000) /* time limit for a server of blobs */
#define SAID_MAX (64U * KIB)

struct skopeo {
	struct exec *exec; /* referenced */
	struct exec_sink sink;
	struct exec_watch watch;
	struct buf out, said;
	const struct registry_conf *conf;
	char *what;
	skopeo_fn *fn;
	void *arg;
};

/* Its files are made inside the sandbox, and their content is not on a command line. */
static const char script[] =
	"umask 077 && cd \"$(mktemp -d)\" && mkdir tmp ca && printf %s \"$IMAGE_AUTH\" >auth.json &&\n"
	"printf %s \"$IMAGE_REGISTRIES\" >registries.conf || exit 1\n"
	"[ -z \"$IMAGE_CA\" ] || printf %s \"$IMAGE_CA\" >ca/ca.crt || exit 1\n"
	"export TMPDIR=\"$PWD/tmp\"\n"
	"unset IMAGE_AUTH IMAGE_REGISTRIES IMAGE_CA\n"
	"command -v skopeo >/dev/null || { echo 'no program skopeo' >&2; exit 127; }\n"
	"exec skopeo --insecure-policy --registries-conf=registries.conf \"$@\"";

/* --- its messages --- */

#define PARSING "Error parsing image name \\\""

/* Copies skopeo's last message, from `time=… level=fatal msg="…"`, without the escapes of its quotes. */
static void last_message(const char *said, char *to, size_t size)
{
	const char *at = said, *found = NULL;
	size_t n = 0;

	while ((at = strstr(at, "msg=\""))) {
		at += 5;
		found = at;
	}
	at = found ? found : said;
	/* Which image that is, the error says already. */
	if (!strncmp(at, PARSING, strlen(PARSING)) && strstr(at, "\\\": "))
		at = strstr(at, "\\\": ") + 4;
	for (; *at && n + 1 < size; at++) {
		/* shown as localhost, as the caller wrote it */
		if (!strncmp(at, NET_LOOPBACK_NAME, strlen(NET_LOOPBACK_NAME))) {
			n += (size_t)snprintf(to + n, size - n, "localhost");
			n = n < size ? n : size - 1;
			at += strlen(NET_LOOPBACK_NAME) - 1;
			continue;
		}
		if (found && *at == '"')
			break;
		if (found && *at == '\\' && at[1])
			at++;
		to[n++] = (unsigned char)*at < 0x20 || *at == 0x7f ? ' ' : *at;
	}
	while (n && to[n - 1] == ' ')
		n--;
	to[n] = '\0';
}

/* clang-format off */
static const struct told {
	const char *has;
	enum err_reason why;
	const char *text, *remedy;
} table[] = {
	{ "no program skopeo", WHY_UNSUPPORTED, "the program skopeo is not installed",
	  "install it (Debian: apt-get install skopeo)" },
	{ "manifest unknown", WHY_IMAGE_MISSING, "the registry has no such image", "check name and tag" },
	{ "name unknown", WHY_IMAGE_MISSING, "the registry has no such image", "check name and tag" },
	{ "repository name not known", WHY_IMAGE_MISSING, "the registry has no such image", "check name and tag" },
	{ "StatusCode: 404", WHY_IMAGE_MISSING, "the registry has no such image", "check name and tag" },
	{ "StatusCode: 401", WHY_REGISTRY_DENIES, "the registry refuses access",
	  "check the name, or give a login: `--auth-file`, or `image_auth` of the daemon" },
	{ "StatusCode: 403", WHY_REGISTRY_DENIES, "the registry refuses access",
	  "check the name, or give a login: `--auth-file`, or `image_auth` of the daemon" },
	{ "unauthorized", WHY_REGISTRY_DENIES, "the registry refuses access",
	  "check the name, or give a login: `--auth-file`, or `image_auth` of the daemon" },
	{ "authentication required", WHY_REGISTRY_DENIES, "the registry refuses access",
	  "check the name, or give a login: `--auth-file`, or `image_auth` of the daemon" },
	{ "denied", WHY_REGISTRY_DENIES, "the registry refuses access",
	  "check the name, or give a login: `--auth-file`, or `image_auth` of the daemon" },
	{ "toomanyrequests", WHY_REGISTRY_RATE, "the registry limits how often it is asked", "try again later, or give a login" },
	{ "429 Too Many Requests", WHY_REGISTRY_RATE, "the registry limits how often it is asked",
	  "try again later, or give a login" },
	{ "no such host", WHY_REGISTRY_UNKNOWN, "the registry's name does not exist, or the network policy refuses it",
	  "check the name; a private registry must be in `network_private` of the daemon's configuration" },
	{ "server misbehaving", WHY_REGISTRY_UNKNOWN, "the registry's name cannot be resolved",
	  "check the name, and the resolver of this host" },
	{ "x509", WHY_REGISTRY_UNTRUSTED, "the registry's certificate is not trusted",
	  "set `image_ca` of the daemon's configuration to the authority that signed it" },
	{ "HTTP response to HTTPS client", WHY_REGISTRY_UNTRUSTED, "the registry does not use TLS",
	  "only registries on loopback, and those that `image_registries` calls insecure, may do without" },
	{ "connection refused", WHY_REGISTRY_FAILED, "the registry cannot be reached: connection refused",
	  "check address and port; a private one must be in `network_private` of the daemon's configuration" },
	{ "connection reset", WHY_REGISTRY_FAILED, "the connection to the registry was cut",
	  "try again; a private registry must be in `network_private` of the daemon's configuration" },
	{ "corrupted blob", WHY_IMAGE_INVALID, "a layer that the registry sent does not have the digest that its manifest says", NULL },
	{ "broken pipe", WHY_IMAGE_INVALID, "the registry sent more of a layer than its manifest says", NULL },
	{ "unexpected EOF", WHY_REGISTRY_FAILED, "the registry closed the connection in the middle of a layer",
	  "try again: layers that were complete are not fetched again" },
	{ "registry 403", WHY_REGISTRY_DENIES, "the registry, or an address that it redirects to, refuses access",
	  "check the login; hosts that it redirects to must be public, or in `network_private` of the daemon's configuration" },
	{ "i/o timeout", WHY_REGISTRY_SILENT, "the registry did not answer", "try again" },
	{ "TLS handshake timeout", WHY_REGISTRY_SILENT, "the registry did not answer", "try again" },
	{ "no image found in manifest list", WHY_WRONG_PLATFORM, "the image does not exist for this processor", NULL },
};
/* clang-format on */

/* Such a name is first of all one that is made here. */
static bool is_own(const char *said, const char *what)
{
	return !strncmp(what, "localhost/", 10) && (strstr(said, "registry 403") || strstr(said, "connection refused"));
}

int skopeo_error(const struct registry_conf *conf, const char *said, const char *what, struct err *e)
{
	AUTO_FREE char *shown = strdup(said);
	char text[160];

	if (!shown)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a registry's answer");
	registry_conf_hide(conf, shown);
	said = shown;

	if (is_own(said, what)) {
		err_set(e, WHY_IMAGE_MISSING, -EIO, "no image '%.120s', and no registry on localhost that has it",
			what);
		err_remedy(e, "`cloche image bootstrap` lists images that can be made on this machine");
		return -EIO;
	}
	last_message(said, text, sizeof(text));
	for (size_t i = 0; i < ARRAY_LEN(table); i++) {
		if (!strstr(said, table[i].has))
			continue;
		err_set(e, table[i].why, -EIO, "%.120s: %s", what, table[i].text);
		if (table[i].remedy)
			err_remedy(e, "%s", table[i].remedy);
		return -EIO;
	}
	return err_set(e, WHY_REGISTRY_FAILED, -EIO, "%.60s: the registry's answer cannot be used: %s", what,
		       text[0] ? text : "skopeo failed without a message");
}

/* --- the exec --- */

static void on_data(void *arg, enum exec_stream which, const char *p, size_t len)
{
	struct skopeo *x = arg;
	struct buf *to = which == EXEC_OUT ? &x->out : &x->said;

	if (buf_add(to, p, len) < 0 && which == EXEC_OUT)
		exec_signal(x->exec, SIGKILL, EXEC_TREE, NULL);
}

static int verdict_of(const struct skopeo *x, struct err *e)
{
	const struct exec *c = x->exec;

	if (x->out.len >= OUT_MAX)
		return err_set(e, ERR_TOO_LARGE, -E2BIG, "%.120s: the registry's answer is larger than 8 MiB", x->what);
	if (c->failed && c->fail.msg[0]) {
		*e = c->fail;
		return -EIO;
	}
	if (c->verdict.cause == VERDICT_EXITED && c->verdict.exit_code == 0)
		return 0;
	if (c->verdict.cause == VERDICT_EXITED)
		return skopeo_error(x->conf, buf_str(&x->said), x->what, e);
	if (c->verdict.cause == VERDICT_TIMEOUT) {
		err_set(e, WHY_REGISTRY_SILENT, -ETIMEDOUT, "%.120s: the registry did not answer in time", x->what);
		err_remedy(e, "try again");
		return -ETIMEDOUT;
	}
	return err_set(e, WHY_REGISTRY_FAILED, -EIO, "%.60s: skopeo ended: %.120s", x->what, c->verdict.detail);
}

static void on_change(void *arg, struct exec *c)
{
	struct skopeo *x = arg;
	struct err e = { 0 };
	int r;

	if (!exec_over(c))
		return;
	exec_unwatch(&x->watch);
	r = verdict_of(x, &e);
	x->fn(x->arg, r, &x->out, r < 0 ? &e : NULL);
}

/* The script, and after it skopeo's arguments with those that every call needs. */
static json_t *command(const struct skopeo_plan *p)
{
	json_t *cmd = json_pack("[s,s,s,s,s]", "/bin/sh", "-c", script, "sh", p->args[0]);

	json_array_append_new(cmd, json_string("--authfile=auth.json"));
	if (*p->conf->ca)
		json_array_append_new(cmd, json_string("--cert-dir=ca"));
	if (p->conf->loopback)
		json_array_append_new(cmd, json_string("--tls-verify=false"));
	for (const char *const *a = p->args + 1; *a; a++)
		json_array_append_new(cmd, json_string(*a));
	return cmd;
}

int skopeo_run(struct sandbox *b, const struct who *who, const struct skopeo_plan *p, skopeo_fn *fn, void *arg,
	       struct skopeo **ret, struct err *e)
{
	AUTO(json_decref)
	json_t *body = json_pack("{s:o, s:{s:s, s:s, s:s}, s:s}", "cmd", command(p), "env", "IMAGE_AUTH", p->conf->auth,
				 "IMAGE_CA", p->conf->ca, "IMAGE_REGISTRIES", p->conf->registries, "timeout", "1m");
	AUTO_CLOSE int in = p->stdin_fd;
	struct exec_request *w = NULL;
	struct skopeo *x;
	int r;

	if (!body)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory to run skopeo");
	r = exec_request_parse(&b->service->o, b->request, body, &w, e);
	if (r < 0)
		return r;
	w->timeout_ms = in >= 0 ? SERVED_MS : ASKED_MS; /* independent of the time limit for users' commands */
	w->stdin_given = in >= 0;
	w->stdin_fd = TAKE_FD(in);
	x = calloc(1, sizeof(*x));
	if (!x)
		abort();
	*x = (struct skopeo){
		.out = BUF_INIT(OUT_MAX), .said = BUF_INIT(SAID_MAX), .conf = p->conf, .fn = fn, .arg = arg
	};
	x->what = strdup(p->what);
	x->sink = (struct exec_sink){ .data = on_data, .arg = x };
	r = x->what ? exec_new(b, who, w, &x->sink, &x->exec, e) : -ENOMEM;
	if (r < 0) {
		free(x->what);
		free(x);
		return r;
	}
	exec_watch(x->exec, &x->watch, on_change, x);
	*ret = x;
	return 0;
}

void skopeo_free(struct skopeo *x)
{
	if (!x)
		return;
	exec_unwatch(&x->watch);
	exec_leave(x->exec, &x->sink);
	if (!exec_has_exited(x->exec))
		exec_signal(x->exec, SIGKILL, EXEC_TREE, NULL);
	exec_unref(x->exec);
	buf_done(&x->out);
	buf_done(&x->said);
	free(x->what);
	free(x);
}
