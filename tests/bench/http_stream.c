/*
 * Long output on its way to a client, beside the same command's output through a pipe, read by the same code. Every way
 * there is has its own row: WebSocket, server-sent events (text only: JSON has no other way), and a background exec
 * whose spool is followed. Large files both ways, for information.
 */
#include "daemon.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/sys.h"

#include <sys/wait.h>
#include <unistd.h>

#define PART "stream"
#define FILE_SIZE (200ULL * 1000 * 1000)
/* 64 bytes with the newline: JSON escapes one of them. */
#define LINE "The quick brown fox jumps over the lazy dog, and then once more"

enum way { PIPE_ZEROS, WEBSOCKET, FOLLOW, PIPE_TEXT, SSE, FILE_WRITE, FILE_READ, WAYS };

struct stream {
	struct bench *b;
	struct serve serve, spooling; /* the second keeps all of it in its spool */
	char box[API_ID], spool_box[API_ID]; /* the second is a new one each time: its spool goes with it */
	uint64_t size, file_size;
	char zeros[64], text[128]; /* commands */
	struct samples ns[WAYS], client_cpu[WAYS], daemon_cpu[WAYS];
};

/* ---- the ways ---- */

static int by_pipe(const char *command, uint64_t want, struct err *e)
{
	char sh[] = "sh", c[] = "-c", text[160], path[] = "PATH=/usr/bin:/bin";
	char *const argv[] = { sh, c, text, NULL }, *const envp[] = { path, NULL };
	AUTO_CLOSE int out = -1;
	int p[2], r = sys_pipe2(p, O_CLOEXEC), status;
	pid_t pid;

	if (r < 0)
		return err_sys(e, ERR_EXHAUSTED, r, "make a pipe");
	snprintf(text, sizeof(text), "%s", command);
	out = p[0];
	pid = fork();
	if (pid == 0) {
		dup2(p[1], 1);
		sys_execve("/bin/sh", argv, envp);
		_exit(127);
	}
	close(p[1]);
	if (pid < 0)
		return err_set(e, ERR_EXHAUSTED, -EAGAIN, "start a command");
	r = flow_drain(out, FLOW_RAW, NULL, want, e);
	waitpid(pid, &status, 0);
	return r;
}

static int by_sse(struct stream *s, struct client *c, struct err *e)
{
	char path[96], body[256];
	int r;

	snprintf(path, sizeof(path), "/v1/sandboxes/%s/execs", s->box);
	snprintf(body, sizeof(body), "{\"shell\":\"%s\"}", s->text);
	r = client_send(c, "POST", path, "text/event-stream", body, e);
	if (r == 0)
		r = client_head(c, 200, e);
	return r == 0 ? flow_drain(c->fd, FLOW_SSE, &c->in, s->size, e) : r;
}

static int by_websocket(struct stream *s, struct client *c, struct err *e)
{
	char head[512], body[256];
	unsigned char frame[8 + sizeof(body)] = { 0x81 };
	int n, r;

	n = snprintf(head, sizeof(head),
		     "GET /v1/sandboxes/%s/execs/attach HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer %s\r\n"
		     "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
		     "Sec-WebSocket-Key: Y2xvY2hlLWJlbmNoLWtleQ==\r\n\r\n",
		     s->box, c->serve->token);
	r = fd_write_all(c->fd, head, (size_t)n);
	if (r < 0)
		return err_sys(e, ERR_LOST, r, "send");
	r = client_head(c, 101, e);
	if (r < 0)
		return r;
	/* Masked, as every client's frames must be, with a mask of zeros. */
	n = snprintf(body, sizeof(body), "{\"shell\":\"%s\"}", s->zeros);
	assert(n < 126);
	frame[1] = (unsigned char)(0x80 | n);
	memcpy(frame + 6, body, (size_t)n);
	r = fd_write_all(c->fd, frame, 6 + (size_t)n);
	return r < 0 ? err_sys(e, ERR_LOST, r, "send") : flow_drain(c->fd, FLOW_WEBSOCKET, &c->in, s->size, e);
}

static int by_follow(struct stream *s, struct client *c, struct err *e)
{
	char path[160], body[256], id[API_ID];
	struct answer a;
	int r;

	snprintf(path, sizeof(path), "/v1/sandboxes/%s/execs", s->spool_box);
	snprintf(body, sizeof(body), "{\"background\":true,\"shell\":\"%s\"}", s->zeros);
	r = client_call(c, "POST", path, body, 201, &a, e);
	if (r == 0)
		r = answer_id(&a, id, e);
	if (r < 0)
		return r;
	snprintf(path, sizeof(path), "/v1/sandboxes/%s/execs/%s/output?stream=stdout&follow=1", s->spool_box, id);
	r = client_send(c, "GET", path, NULL, NULL, e);
	if (r == 0)
		r = client_head(c, 200, e);
	return r == 0 ? flow_drain(c->fd, FLOW_CHUNKED, &c->in, s->size, e) : r;
}

static int file_write(struct stream *s, struct client *c, struct err *e)
{
	static char zeros[256 * KIB];
	struct answer a;
	char head[512];
	int n, r;

	n = snprintf(head, sizeof(head),
		     "PUT /v1/sandboxes/%s/files?path=large HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer %s\r\n"
		     "Content-Length: %llu\r\n\r\n",
		     s->box, c->serve->token, (unsigned long long)s->file_size);
	r = fd_write_all(c->fd, head, (size_t)n);
	for (uint64_t left = s->file_size; r == 0 && left;) {
		size_t part = left < sizeof(zeros) ? (size_t)left : sizeof(zeros);

		r = fd_write_all(c->fd, zeros, part);
		left -= part;
	}
	if (r < 0)
		return err_sys(e, ERR_LOST, r, "send a file");
	while (r == 0)
		r = client_step(c, &a, e);
	return r < 0 ? r : answer_check(&a, 200, "write a file", e);
}

static int file_read(struct stream *s, struct client *c, struct err *e)
{
	char path[128];
	int r;

	snprintf(path, sizeof(path), "/v1/sandboxes/%s/files?path=large", s->box);
	r = client_send(c, "GET", path, NULL, NULL, e);
	if (r == 0)
		r = client_head(c, 200, e);
	return r == 0 ? flow_drain(c->fd, FLOW_COUNTED, &c->in, s->file_size, e) : r;
}

/* ---- in turn ---- */

static int go(struct stream *s, enum way w, struct client *c, struct err *e)
{
	switch (w) {
	case PIPE_ZEROS:
		return by_pipe(s->zeros, s->size, e);
	case PIPE_TEXT:
		return by_pipe(s->text, s->size, e);
	case WEBSOCKET:
		return by_websocket(s, c, e);
	case FOLLOW:
		return by_follow(s, c, e);
	case SSE:
		return by_sse(s, c, e);
	case FILE_WRITE:
		return file_write(s, c, e);
	case FILE_READ:
		return file_read(s, c, e);
	case WAYS:
		break;
	}
	return -EINVAL;
}

/* As many processors as the pipe has, and room for the file. */
static int make_box(struct serve *serve, char id[API_ID], struct err *e)
{
	struct client c;
	int r = client_open(&c, serve, e);

	if (r == 0)
		r = api_create(&c, "{\"cpus\":0}", id, e);
	if (r == 0)
		r = api_exec(&c, id, e);
	client_close(&c);
	return r;
}

static int drop_box(struct serve *serve, const char *id, struct err *e)
{
	struct client c;
	int r = client_open(&c, serve, e);

	if (r == 0)
		r = api_delete(&c, id, e);
	client_close(&c);
	return r;
}

static int measure(struct stream *s, enum way w, struct client *c, struct err *e)
{
	uint64_t t = clock_mono_ns(), cpu = own_cpu_ns(), daemon_cpu = serve_cpu_ns(c->serve);
	int r = go(s, w, c, e);

	if (r < 0)
		return r;
	samples_add(&s->ns[w], clock_mono_ns() - t);
	samples_add(&s->client_cpu[w], own_cpu_ns() - cpu);
	samples_add(&s->daemon_cpu[w], serve_cpu_ns(c->serve) - daemon_cpu);
	return 0;
}

static int take_turn(struct stream *s, enum way w, struct err *e)
{
	static const char *const names[WAYS] = { "pipe",   "websocket", "follow", "pipe of text",
						 "events", "write",	"read" };
	struct serve *serve = w == FOLLOW ? &s->spooling : &s->serve;
	struct client c = { .fd = -1 };
	int r = w == FOLLOW ? make_box(serve, s->spool_box, e) : 0;

	if (r == 0)
		r = client_open(&c, serve, e);
	if (r == 0)
		r = measure(s, w, &c, e);
	client_close(&c);
	/* Else the disk would still be busy with it while others are measured. */
	if (r == 0 && w == FOLLOW)
		r = drop_box(serve, s->spool_box, e);
	return r < 0 ? err_wrap(e, r, "%s", names[w]) : 0;
}

/* ---- the verdict ---- */

static double rate(struct stream *s, enum way w)
{
	uint64_t size = w == FILE_WRITE || w == FILE_READ ? s->file_size : s->size;

	return ratio((double)size * 1e3, (double)samples_at(&s->ns[w], 500)); /* per microsecond is MB/s */
}

/* Who was busy: the two share the processors, and the client's part is not the daemon's fault. */
static void tell_cpu(struct stream *s)
{
	static const struct {
		enum way way;
		const char *client, *daemon;
	} list[] = {
		{ PIPE_ZEROS, "CPU time of the reader, pipe", NULL },
		{ WEBSOCKET, "CPU time of the client, WebSocket", "CPU time of the daemon, WebSocket" },
		{ FOLLOW, "CPU time of the client, followed", "CPU time of the daemon, followed" },
		{ SSE, "CPU time of the client, events", "CPU time of the daemon, events" },
	};
	double gib = (double)s->size / (double)GIB;

	for (size_t i = 0; i < ARRAY_LEN(list); i++) {
		report_fact(&s->b->report, PART, list[i].client,
			    ratio((double)samples_at(&s->client_cpu[list[i].way], 500) / 1e9, gib), "s/GiB");
		if (list[i].daemon)
			report_fact(&s->b->report, PART, list[i].daemon,
				    ratio((double)samples_at(&s->daemon_cpu[list[i].way], 500) / 1e9, gib), "s/GiB");
	}
}

static void judge(struct stream *s)
{
	static const struct {
		enum way ours, theirs;
		const char *what;
	} targets[] = {
		{ WEBSOCKET, PIPE_ZEROS, "stdout to a client, WebSocket / pipe" },
		{ FOLLOW, PIPE_ZEROS, "stdout to a client, followed / pipe" },
		{ SSE, PIPE_TEXT, "text to a client, events / pipe" },
	};
	static const char *const names[WAYS] = {
		"pipe",	       "stdout, WebSocket", "stdout, background and followed", "pipe of text", "text, events",
		"file, write", "file, read",
	};
	struct report *out = &s->b->report;

	report_fact(out, PART, "bytes of each stream", (double)s->size / (double)MIB, "MiB");
	for (unsigned i = 0; i < WAYS; i++)
		report_fact(out, PART, names[i], rate(s, (enum way)i), "MB/s");
	tell_cpu(s);
	report_fact(out, PART, "text, events / pipe of zeros", ratio(rate(s, SSE), rate(s, PIPE_ZEROS)), "");
	for (size_t i = 0; i < ARRAY_LEN(targets); i++)
		report_target(out, &(struct target){
					   .part = PART,
					   .what = targets[i].what,
					   .unit = "",
					   .measured = ratio(rate(s, targets[i].ours), rate(s, targets[i].theirs)),
					   .limit = 0.4,
					   .bound = BOUND_LEAST,
				   });
}

int bench_stream(struct bench *b, struct err *e)
{
	const unsigned rounds = b->quick ? 2 : 5;
	static struct stream s;
	int r;

	s.b = b;
	s.size = b->quick ? 32 * MIB : GIB;
	s.file_size = b->quick ? FILE_SIZE / 10 : FILE_SIZE;
	snprintf(s.zeros, sizeof(s.zeros), "exec head -c %llu /dev/zero", (unsigned long long)s.size);
	snprintf(s.text, sizeof(s.text), "yes '" LINE "' | head -c %llu", (unsigned long long)s.size);
	r = serve_start(&s.serve, b, &(struct serve_opts){ 0 }, e);
	/* A follower is not waited for; what the spool has not kept by then it would never see. */
	if (r == 0)
		r = serve_start(&s.spooling, b, &(struct serve_opts){ .config = "spool_max = 4G\nspool_total = 16G\n" },
				e);
	if (r == 0)
		r = make_box(&s.serve, s.box, e);
	for (unsigned i = 0; r == 0 && i < rounds && !bench_stop; i++)
		for (unsigned w = 0; r == 0 && w < WAYS; w++)
			r = take_turn(&s, (enum way)w, e);
	if (r == 0)
		judge(&s);
	for (unsigned i = 0; i < WAYS; i++) {
		samples_done(&s.ns[i]);
		samples_done(&s.client_cpu[i]);
		samples_done(&s.daemon_cpu[i]);
	}
	serve_stop(&s.serve);
	serve_stop(&s.spooling);
	return r;
}
