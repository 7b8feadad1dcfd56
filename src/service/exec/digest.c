/* Sums up the beginning of a stream. */
#include "service/exec/digest.h"
#include "base/base.h"

#include <openssl/evp.h>

#define AT_ONCE (16U * 1024U) /* less is not worth a worker */

void digest_init(struct digest *d, uv_loop_t *loop, void (*done)(void *arg), void *arg)
{
	*d = (struct digest){ .loop = loop, .done = done, .arg = arg };
}

void digest_done(struct digest *d)
{
	assert(!d->busy);
	EVP_MD_CTX_free(d->ctx);
	free(d->queue);
	free(d->work);
	d->ctx = NULL;
	d->queue = d->work = NULL;
	d->queued = 0;
}

static void update(struct digest *d, const char *data, size_t len)
{
	if (!d->bad && EVP_DigestUpdate(d->ctx, data, len) != 1)
		d->bad = true;
}

static void on_work(uv_work_t *q)
{
	struct digest *d = q->data;

	update(d, d->work, d->working);
}

static void on_worked(uv_work_t *q, int status);

/* What waits becomes the worker's. */
static void submit(struct digest *d)
{
	char *t = d->work;

	d->work = d->queue;
	d->working = d->queued;
	d->queue = t;
	d->queued = 0;
	d->full = false;
	d->req.data = d;
	d->busy = uv_queue_work(d->loop, &d->req, on_work, on_worked) == 0;
	if (!d->busy)
		d->bad = true;
}

static void on_worked(uv_work_t *q, int status)
{
	struct digest *d = q->data;

	if (status < 0)
		d->bad = true;
	d->busy = false;
	if (d->queued)
		submit(d);
	d->done(d->arg);
}

static bool ready(struct digest *d)
{
	if (!d->ctx) {
		d->ctx = EVP_MD_CTX_new();
		if (!d->ctx || EVP_DigestInit_ex(d->ctx, EVP_sha256(), NULL) != 1)
			d->bad = true;
	}
	return !d->bad;
}

void digest_add(struct digest *d, const char *data, size_t len)
{
	if (len > DIGEST_MAX - d->covers)
		len = (size_t)(DIGEST_MAX - d->covers);
	if (!len || d->bad || !ready(d))
		return;
	d->covers += len;
	if (!d->busy && len <= AT_ONCE) {
		update(d, data, len);
		return;
	}
	if (!d->queue)
		d->queue = malloc(2 * DIGEST_PIECE);
	if (!d->queue || len > 2 * DIGEST_PIECE - d->queued) {
		d->bad = true; /* no memory, or a caller that did not wait */
		return;
	}
	memcpy(d->queue + d->queued, data, len);
	d->queued += len;
	if (!d->busy)
		submit(d);
	else
		d->full = d->queued > DIGEST_PIECE; /* another piece would not fit */
}

bool digest_wants(const struct digest *d)
{
	return !d->bad && d->covers < DIGEST_MAX;
}

bool digest_full(const struct digest *d)
{
	return d->full;
}

bool digest_busy(const struct digest *d)
{
	return d->busy;
}

bool digest_hex(struct digest *d, char hex[65])
{
	unsigned char hash[32];

	if (d->busy || d->bad || !d->ctx || EVP_DigestFinal_ex(d->ctx, hash, NULL) != 1)
		return false;
	d->bad = true; /* what comes after the end is not covered */
	for (int i = 0; i < 32; i++)
		snprintf(hex + 2 * i, 3, "%02x", hash[i]);
	return true;
}
