/*
 * SHA-256 of a stream, of its first DIGEST_MAX bytes: hashing a flood would cost more than passing it on. Large pieces
 * are hashed by a worker, so that the loop can continue meanwhile; no more than a bound waits.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct digest {
	uv_loop_t *loop;
	struct evp_md_ctx_st *ctx; /* NULL until the first byte */
	bool bad; /* it does not cover what it should */
	uint64_t covers; /* bytes that are in it, or wait to be */
	bool busy, full;
	char *queue, *work; /* DIGEST_PIECE bytes each, while there is much */
	size_t queued, working;
	uv_work_t req;
	void (*done)(void *arg);
	void *arg;
};

/* @done is called whenever the worker has caught up. */
void digest_init(struct digest *d, uv_loop_t *loop, void (*done)(void *arg), void *arg);
/* Not while busy. */
void digest_done(struct digest *d);
#define DIGEST_MAX (64ULL * 1024 * 1024)
/* Takes a copy where needed. At most DIGEST_PIECE bytes at once, and none while digest_full(). */
#define DIGEST_PIECE (256U * 1024U)
void digest_add(struct digest *d, const char *data, size_t len);
bool digest_full(const struct digest *d); /* nothing may be added until @done is called */
bool digest_wants(const struct digest *d); /* what comes next would count */
bool digest_busy(const struct digest *d); /* not all has been hashed yet */
/* The end: 64 hex digits and a NUL. False when it is not known, nothing came, or the worker is still at it. Once. */
bool digest_hex(struct digest *d, char hex[65]);
