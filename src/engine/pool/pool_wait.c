/* For tests and benchmarks: waits until the pool is full, and empties what it keeps. */
#include "engine/pool/internal.h"
#include "base/base.h"

void pool_wait(struct pool *p, unsigned ready)
{
	pool_lock(p);
	if (ready > p->depth)
		ready = p->depth;
	p->fillers++;
	if (p->ready < ready) {
		p->filling = true;
		pool_wake(p);
	}
	while (p->ready < ready && !p->last_error)
		pool_wait_for(p, &p->changed, UINT64_MAX);
	while (p->cleaning)
		pool_wait_for(p, &p->changed, UINT64_MAX);
	p->fillers--;
	pool_unlock(p);
}

void pool_trim(struct pool *p)
{
	for (;;) {
		struct ground g;

		ground_init(&g);
		pool_lock(p);
		if (p->nkept)
			g = p->kept[--p->nkept];
		pool_unlock(p);
		if (!g.valid)
			return;
		ground_end(p->env, &g);
	}
}
