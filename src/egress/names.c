/* Gives names synthetic addresses, and finds names by them. */
#include "egress/names.h"
#include "base/base.h"

static const uint8_t net6[8] = { 0xfd, 0x63, 0x6c, 0x6f, 0x63, 0x68, 0x00, 0x65 };
#define FIRST4 0xc6120100U /* 198.18.1.0 */
#define FIRST6 0x10000U

static uint32_t hash_of(const char *text)
{
	uint32_t h = 2166136261U;

	for (; *text; text++)
		h = (h ^ (uint8_t)*text) * 16777619U;
	return h;
}

static void drop(struct name *n)
{
	if (n)
		free(n->window);
	free(n);
}

void names_done(struct names *s)
{
	for (uint32_t i = 0; i < s->n; i++)
		drop(s->at[i]);
	free(s->at);
	free(s->hash);
	*s = (struct names){ 0 };
}

static int grow(struct names *s, uint32_t need)
{
	uint32_t room = s->room ? s->room : 8;
	struct name **at;
	uint32_t *hash;

	while (room < need)
		room *= 2;
	if (room == s->room)
		return 0;
	at = realloc(s->at, room * sizeof(struct name *));
	if (!at)
		return -ENOMEM;
	s->at = at;
	hash = realloc(s->hash, room * sizeof(uint32_t));
	if (!hash)
		return -ENOMEM;
	s->hash = hash;
	s->room = room;
	return 0;
}

static struct name *place(struct names *s, uint32_t index, const char *text, uint32_t now_sec)
{
	size_t len = strlen(text) + 1;
	struct name *n = malloc(sizeof(*n) + len);

	if (!n || (index >= s->room && grow(s, index + 1) < 0)) {
		free(n);
		return NULL;
	}
	while (s->n <= index) {
		s->at[s->n] = NULL;
		s->hash[s->n++] = 0;
	}
	*n = (struct name){ .used = now_sec, .index = (uint16_t)index };
	memcpy(n->text, text, len);
	if (s->at[index]) {
		s->untold -= !s->at[index]->told;
		drop(s->at[index]);
	}
	s->at[index] = n;
	s->hash[index] = hash_of(text);
	s->untold++;
	return n;
}

static struct name *find(const struct names *s, const char *text)
{
	uint32_t h = hash_of(text);

	for (uint32_t i = 0; i < s->n; i++)
		if (s->hash[i] == h && s->at[i] && !strcmp(s->at[i]->text, text))
			return s->at[i];
	return NULL;
}

static int least_used(const struct names *s, uint32_t now_sec)
{
	int best = -1;

	for (uint32_t i = 0; i < s->n; i++) {
		if (!s->at[i])
			return (int)i;
		if (!s->at[i]->streams && (int32_t)(now_sec - s->at[i]->used) >= (int32_t)NAMES_REST &&
		    (best < 0 || (int32_t)(s->at[i]->used - s->at[best]->used) < 0))
			best = (int)i;
	}
	return best;
}

struct name *names_get(struct names *s, const char *text, uint32_t now_sec)
{
	struct name *n = find(s, text);
	int index = (int)s->n;

	if (n) {
		n->used = now_sec;
		return n;
	}
	if (s->n == EGRESS_NAMES_MAX)
		index = least_used(s, now_sec);
	return index < 0 ? NULL : place(s, (uint32_t)index, text, now_sec);
}

struct name *names_at(const struct names *s, uint32_t index)
{
	return index < s->n ? s->at[index] : NULL;
}

int names_set(struct names *s, uint32_t index, const char *text, uint32_t now_sec)
{
	char name[NET_NAME_MAX];
	struct name *old = names_at(s, index), *n;

	if (index >= EGRESS_NAMES_MAX || net_name_parse(text, strlen(text), name) < 0 || strcmp(name, text))
		return -EINVAL;
	if (old && !strcmp(old->text, text))
		return 0;
	if ((old && old->streams) || find(s, text))
		return -EBUSY;
	n = place(s, index, text, now_sec);
	if (!n)
		return -ENOMEM;
	n->told = true;
	s->untold--;
	return 0;
}

uint32_t names_tell(struct names *s, struct egress_names *ret)
{
	ret->n = 0;
	for (uint32_t i = 0; s->untold && i < s->n && ret->n < EGRESS_BATCH; i++) {
		if (!s->at[i] || s->at[i]->told)
			continue;
		s->at[i]->told = true;
		s->untold--;
		ret->name[ret->n].index = i;
		ret->name[ret->n++].name = s->at[i]->text;
	}
	return ret->n;
}

void names_v4(uint32_t index, uint8_t ret[4])
{
	uint32_t a = FIRST4 + index;

	for (unsigned i = 0; i < 4; i++)
		ret[i] = (uint8_t)(a >> (24 - 8 * i));
}

void names_v6(uint32_t index, uint8_t ret[16])
{
	uint32_t a = FIRST6 + index;

	memset(ret, 0, 16);
	memcpy(ret, net6, sizeof(net6));
	for (unsigned i = 0; i < 4; i++)
		ret[12 + i] = (uint8_t)(a >> (24 - 8 * i));
}

static uint32_t big_endian(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

int names_index(const struct net_addr *a)
{
	static const uint8_t zero[4] = { 0 };
	uint32_t i;

	if (a->family == 4) {
		if (a->addr[0] != 198 || (a->addr[1] & 0xfe) != 18)
			return -1;
		i = big_endian(a->addr) - FIRST4;
	} else {
		if (a->family != 6 || memcmp(a->addr, net6, sizeof(net6)))
			return -1;
		i = big_endian(a->addr + 12) - FIRST6;
		if (memcmp(a->addr + 8, zero, 4))
			return -2;
	}
	return i < EGRESS_NAMES_MAX ? (int)i : -2;
}
