/* A hash table with open addressing. */
#include "base/map.h"
#include "base/base.h"
#include "base/sys.h"

/* SipHash-1-3 would be the textbook; a keyed multiply-and-fold is enough where the key never leaves the process. */
static uint64_t hash(const struct map *m, const char *key)
{
	uint64_t h = m->seed[0];
	size_t n = strlen(key);

	while (n) {
		size_t take = n < 8 ? n : 8;
		uint64_t w = 0;
		unsigned __int128 p;

		memcpy(&w, key, take);
		p = (unsigned __int128)(w ^ h ^ take) * (m->seed[1] | 1);
		h = (uint64_t)p ^ (uint64_t)(p >> 64);
		key += take;
		n -= take;
	}
	return h ^ (h >> 29);
}

int map_init(struct map *m)
{
	ssize_t n;

	*m = (struct map){ 0 };
	n = sys_getrandom(m->seed, sizeof(m->seed), 0);
	return n == (ssize_t)sizeof(m->seed) ? 0 : n < 0 ? (int)n : -EIO;
}

void map_done(struct map *m)
{
	for (size_t i = 0; i < m->size; i++)
		free(m->slot[i].key);
	free(m->slot);
	m->slot = NULL;
	m->size = m->used = m->count = 0;
}

/* The key's place, or the free one where it would go. The table is never full. */
static struct map_slot *find(const struct map *m, const char *key, uint64_t h)
{
	for (size_t i = h & (m->size - 1);; i = (i + 1) & (m->size - 1)) {
		struct map_slot *s = &m->slot[i];

		if (!s->key || (s->hash == h && !strcmp(s->key, key)))
			return s;
	}
}

void *map_get(const struct map *m, const char *key)
{
	return m->size ? find(m, key, hash(m, key))->value : NULL;
}

static int grow(struct map *m)
{
	size_t size = 16;
	struct map_slot *old = m->slot;
	struct map_slot *slot;

	while (size < m->count * 4)
		size *= 2;
	slot = calloc(size, sizeof(*slot));
	if (!slot)
		return -ENOMEM;
	for (size_t i = 0; i < m->size; i++) {
		size_t at = old[i].hash & (size - 1);

		if (!old[i].value) {
			free(old[i].key);
			continue;
		}
		while (slot[at].key)
			at = (at + 1) & (size - 1);
		slot[at] = old[i];
	}
	free(old);
	m->slot = slot;
	m->size = size;
	m->used = m->count;
	return 0;
}

int map_put(struct map *m, const char *key, void *value)
{
	uint64_t h = hash(m, key);
	struct map_slot *s;

	assert(value);
	if ((m->used + 1) * 4 > m->size * 3 && grow(m) < 0)
		return -ENOMEM;
	s = find(m, key, h);
	if (!s->key) {
		s->key = strdup(key);
		if (!s->key)
			return -ENOMEM;
		s->hash = h;
		m->used++;
	}
	m->count += !s->value;
	s->value = value;
	return 0;
}

void *map_del(struct map *m, const char *key)
{
	struct map_slot *s = m->size ? find(m, key, hash(m, key)) : NULL;
	void *was = s ? s->value : NULL;

	if (was) {
		s->value = NULL;
		m->count--;
	}
	return was;
}

void *map_next(const struct map *m, size_t *at)
{
	while (*at < m->size) {
		void *v = m->slot[(*at)++].value;

		if (v)
			return v;
	}
	return NULL;
}
