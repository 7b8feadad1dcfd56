/*
 * Calls that a stopped thread makes for cloche-dump. If cloche-dump is killed meanwhile, the thread finishes them and
 * continues where it was.
 */
#pragma once
#include "memory/arch.h"

#define INJECT_CALLS_MAX 256
#define INJECT_INPUT_MAX 512

/* The calls that one thread shall make. */
struct inject {
	struct call call[INJECT_CALLS_MAX];
	long result[INJECT_CALLS_MAX];
	uint16_t answer[INJECT_CALLS_MAX]; /* offset of each call's answer in ->page; 0xffff: it has no answer */
	size_t n;
	uint8_t page[PAGE];
	size_t used;
	/*
	 * Data for the calls: argument 1 of a call may be an offset in it. It is written together with the code, before
	 * that runs.
	 */
	uint8_t input[INJECT_INPUT_MAX];
	size_t input_n;
};

/*
 * Adds a call and returns its number. Argument @pointer of it is the address for an answer of @size bytes; -1: no
 * answer.
 */
size_t inject_add(struct inject *j, const struct call *c, int pointer, size_t size);
const void *inject_answer(const struct inject *j, size_t call);
/* pkey.c: a call that finds out whether @key was allocated to the process, and what its result means. */
struct call pkey_question(uint64_t key);
bool pkey_is_given(long result);
/* Finds all allocated keys of the process. Refuses those that cannot be allocated again. */
int pkey_ask(struct proc *p, struct err *e);
/* Makes the thread execute all calls. Its state is then as before. */
int inject_run(struct proc *p, struct thread *t, struct inject *j, struct err *e);
