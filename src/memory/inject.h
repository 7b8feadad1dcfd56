/*
 * Calls that a stopped thread makes for cloche-dump. If cloche-dump is killed meanwhile, the thread finishes them and
 * continues where it was.
 */
#pragma once
#include "memory/arch.h"

#define INJECT_CALLS_MAX 256
#define INJECT_INPUT_MAX 512

/* What one thread is to be asked. */
struct inject {
	struct call call[INJECT_CALLS_MAX];
	long result[INJECT_CALLS_MAX];
	uint16_t answer[INJECT_CALLS_MAX]; /* where in ->page, 0xffff: it has none */
	size_t n;
	uint8_t page[PAGE];
	size_t used;
	/* What the calls are given, if anything: argument 1 of each is an offset in it. It is written with the code, before that runs. */
	uint8_t input[INJECT_INPUT_MAX];
	size_t input_n;
};

/* Adds a call; argument @pointer (-1: none) is where @size bytes of an answer go. Its number. */
size_t inject_add(struct inject *j, const struct call *c, int pointer, size_t size);
const void *inject_answer(const struct inject *j, size_t call);
/* pkey.c: a call that finds out whether @key was allocated to the process, and what its result means. */
struct call pkey_question(uint64_t key);
bool pkey_is_given(long result);
/* All of them. Refuses what cannot be made again. */
int pkey_ask(struct proc *p, struct err *e);
/* Makes all calls. The thread is then where it was before. */
int inject_run(struct proc *p, struct thread *t, struct inject *j, struct err *e);
