/*
 * Clients that connect, send halves, stop reading, disconnect at any point; handlers that answer with any result, now
 * or later. Each request must end exactly once: a job lives on the heap from the handler to its end, so that a callback
 * too many is a use after free (for the sanitizers), and one too few a job that is left (for all).
 */
#include "http/http_test.h"

#define CLIENTS 40
#define JOBS_MAX 400
#define STEPS 30000

struct job {
	struct http_req *q;
	struct ws *ws;
	bool asked, begun, lent, paused;
	size_t at; /* in jobs */
	char memory[100000];
};

static struct fix f;
static struct job *jobs[JOBS_MAX];
static size_t n_jobs;
static unsigned made, ended, gone, lent_done;
static uint32_t state;
static int clients[CLIENTS];

static uint32_t rnd(uint32_t n)
{
	state = state * 1664525U + 1013904223U;
	return (state >> 8) % n;
}

static void job_end(struct job *j)
{
	jobs[j->at] = jobs[--n_jobs];
	jobs[j->at]->at = j->at;
	memset(j->memory, 'z', sizeof(j->memory));
	free(j);
}

static void on_gone(void *arg)
{
	gone++;
	job_end(arg);
}

static void answer(struct job *j)
{
	struct http_req *q = j->q;
	char *large;

	ended++;
	if (j->begun) {
		http_end(q);
	} else if (rnd(3)) {
		http_send(q, 200, "text/plain", "ok", 2);
	} else {
		large = malloc(300000);
		memset(large, 'l', 300000);
		http_send_take(q, 200, "text/plain", large, 300000);
	}
	job_end(j);
}

static void on_whole(void *arg, const char *data, size_t len)
{
	(void)data;
	(void)len;
	if (rnd(2))
		answer(arg);
}

static void on_piece(void *arg, const char *data, size_t len)
{
	struct job *j = arg;

	(void)data;
	(void)len;
	if (!rnd(4)) {
		j->paused = true;
		http_body_pause(j->q);
	} else if (!rnd(8)) {
		answer(j);
	}
}

static void on_piece_end(void *arg)
{
	if (rnd(2))
		answer(arg);
}

static void on_lent(void *arg)
{
	struct job *j = arg;

	lent_done++;
	j->lent = false;
	if (!rnd(4))
		answer(j);
}

static void on_message(void *arg, bool text, const uint8_t *data, size_t len)
{
	struct job *j = arg;

	if (!rnd(4)) {
		j->paused = true;
		ws_pause(j->ws);
	}
	if (rnd(4)) {
		ws_send(j->ws, text, &(struct http_piece){ data, len }, 1);
		return;
	}
	ended++;
	ws_close(j->ws, 1000, "enough");
	job_end(j);
}

static void step_ws(struct job *j)
{
	switch (rnd(4)) {
	case 0:
		if (ws_queued(j->ws) < HTTP_HIGH)
			ws_send(j->ws, false, &(struct http_piece){ j->memory, rnd(sizeof(j->memory)) }, 1);
		break;
	case 1:
		ended++;
		ws_close(j->ws, 1001, NULL);
		job_end(j);
		break;
	default:
		j->paused = false;
		ws_resume(j->ws);
		break;
	}
}

static void step_begun(struct job *j)
{
	switch (rnd(6)) {
	case 0:
		answer(j);
		break;
	case 1:
		ended++;
		http_cut(j->q);
		job_end(j);
		break;
	case 2:
	case 3:
		if (!j->lent) {
			j->lent = true;
			http_write_lent(j->q,
					(struct http_piece[]){ { j->memory, 10 }, { j->memory + 10, rnd(90000) } }, 2,
					on_lent, j);
		}
		break;
	default:
		if (http_queued(j->q) < HTTP_HIGH)
			http_write(j->q, j->memory, rnd(50000));
		break;
	}
}

/* Something its handler might do next. */
static void step(struct job *j)
{
	if (j->ws) {
		step_ws(j);
		return;
	}
	if (j->paused && rnd(2)) {
		j->paused = false;
		http_body_resume(j->q);
		return;
	}
	if (j->begun) {
		step_begun(j);
		return;
	}
	switch (rnd(6)) {
	case 0:
		answer(j);
		break;
	case 1:
		j->begun = true;
		http_begin(j->q, 200, NULL, -1);
		break;
	case 2:
		j->begun = true;
		sse_begin(j->q);
		break;
	case 3:
		if (!j->asked)
			http_read_body(j->q, rnd(2) ? 10 : 1000000, on_whole, j);
		j->asked = true;
		break;
	case 4:
		if (!j->asked)
			http_stream_body(j->q, on_piece, on_piece_end, j);
		j->asked = true;
		break;
	default:
		break;
	}
}

static void handle(struct fix *fix, struct http_req *q)
{
	static const struct ws_calls calls = { .message = on_message, .gone = on_gone, .max = 5000 };
	struct job *j;

	(void)fix;
	if (n_jobs == JOBS_MAX) {
		http_send(q, 503, NULL, NULL, 0);
		return;
	}
	j = calloc(1, sizeof(*j));
	j->q = q;
	j->at = n_jobs;
	jobs[n_jobs++] = j;
	made++;
	http_set_gone(q, on_gone, j);
	if (http_is_ws(q) && !ws_accept(q, &calls, j, &j->ws))
		return;
	step(j);
}

static void client_send(int fd)
{
	static const char *const texts[] = {
		"GET /a HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET /a HTTP/1.1\r\nHost: x\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\n\r\nHEAD /c HTTP/1.1\r\nHost: "
		"x\r\n\r\n",
		"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 20\r\n\r\n01234567890123456789",
		"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\nsome",
		"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: "
		"chunked\r\n\r\n5\r\nhello\r\n6\r\nworld!\r\n0\r\n\r\n",
		"POST /a HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n",
		"GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
		"GET /a HTTP/1.0\r\n\r\n",
		"GET /w HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: "
		"13\r\n"
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n\x81\x82\1\2\3\4\x69\x6b\x82\x81\1\2\3\4\x69",
		"\x81\x82\1\2\3\4\x69\x6b",
		"\x88\x80\1\2\3\4",
		"nonsense\r\n\r\n",
		"GET /",
	};
	const char *text = texts[rnd(ARRAY_LEN(texts))];
	size_t len = strlen(text);

	(void)send(fd, text, rnd(8) ? len : rnd((uint32_t)len), MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void client_step(int *fd)
{
	static char back[1 << 20];
	struct linger hard = { .l_onoff = 1 };

	if (*fd < 0) {
		*fd = fix_dial(&f);
		return;
	}
	switch (rnd(24)) {
	case 0:
		setsockopt(*fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
		fd_close(TAKE_FD(*fd));
		break;
	case 1:
		fd_close(TAKE_FD(*fd));
		break;
	case 2:
		shutdown(*fd, SHUT_WR);
		break;
	case 3:
	case 4:
	case 5:
	case 6:
	case 7:
	case 8:
		client_send(*fd);
		break;
	default:
		if (!recv(*fd, back, 1 + rnd(sizeof(back)), MSG_DONTWAIT))
			fd_close(TAKE_FD(*fd));
		break;
	}
}

static void storm(uint32_t seed, const struct http_opts *o)
{
	state = seed;
	n_jobs = made = ended = gone = lent_done = 0;
	fix_up(&f, o, handle);
	for (unsigned i = 0; i < CLIENTS; i++)
		clients[i] = -1;
	for (unsigned i = 0; i < STEPS; i++) {
		client_step(&clients[rnd(CLIENTS)]);
		if (rnd(2))
			uv_run(&f.loop, UV_RUN_NOWAIT);
		if (n_jobs && rnd(2))
			step(jobs[rnd((uint32_t)n_jobs)]);
	}
	fd_close_many(clients, CLIENTS);
	fix_down(&f); /* ends the remaining requests, and leaves no handle */
	printf("# %u requests: %u ended, %u gone; %u times lent\n", made, ended, gone, lent_done);
}

TEST(every_request_ends_exactly_once_whatever_both_sides_do)
{
	for (uint32_t seed = 1; seed <= 3; seed++) {
		storm(seed, NULL);
		CHECK(made > 1000 && ended > 300 && gone > 50 && lent_done > 30);
		CHECK_EQ(ended + gone, made);
		CHECK_EQ(n_jobs, 0);
	}
}

TEST(so_it_is_when_everybody_is_late)
{
	storm(7, &(struct http_opts){ .head_ms = 3, .body_ms = 3, .idle_ms = 3, .send_ms = 3, .conns_max = 20 });
	CHECK(made > 300);
	CHECK_EQ(ended + gone, made);
	CHECK_EQ(n_jobs, 0);
}
