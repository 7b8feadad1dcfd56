/* Counts the uses of layers, and has unused ones removed. */
#include "service/checkpoint/layer.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/log.h"
#include "service/checkpoint/struct.h"
#include "service/internal.h"
#include "service/link/warden_link.h"
#include "store/note.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

/* between two sweeps; more, when they take long, but never so much that garbage piles up */
#define APART_NS 1000000000ULL
#define APART_MAX_NS (10ULL * 1000000000ULL)
#define NOW_AND_THEN_NS (600ULL * 1000000000ULL)
/* the warden has finished by then what it was asked for before we were started */
#define EARLIER_NS (3600ULL * 1000000000ULL)

struct hold {
	unsigned n;
};

struct layer_book {
	struct service *s;
	struct map held; /* id → struct hold */
	struct map loose; /* ids with a file */
	struct map unseen; /* of those, what the sweep has not come to yet */
	struct map earlier; /* of those, what an earlier process left: the warden may still be making such a layer */
	int notes; /* the folder, or -1 */
	bool due, sweeping, again;
	unsigned removed, waiting; /* in this sweep; waiting: could go, but something still uses them */
	char at[ID_SIZE];
	uint64_t started_ns, begun_ns, next_ns;
};

static void put(struct map *m, const char *id, void *value)
{
	if (map_put(m, id, value) < 0)
		abort();
}

static void loose_name(const char *id, char ret[ID_SIZE + 8])
{
	snprintf(ret, ID_SIZE + 8, NOTE_LOOSE "%s", id);
}

void layer_may_go(struct service *s, const char *id)
{
	struct layer_book *l = s->layers;
	char name[ID_SIZE + 8];

	if (map_get(&l->loose, id))
		return;
	put(&l->loose, id, l);
	loose_name(id, name);
	notes_mark(s->db, name);
}

static void forget_loose(struct layer_book *l, const char *id)
{
	char name[ID_SIZE + 8];

	if (!map_del(&l->loose, id))
		return;
	loose_name(id, name);
	notes_unmark(l->s->db, name);
}

void layer_must_stay(struct service *s, const char *id)
{
	forget_loose(s->layers, id);
}

static void read_loose(struct layer_book *l)
{
	const size_t skip = strlen(NOTE_LOOSE);
	int fd = l->notes < 0 ? -1 : openat(l->notes, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *x;

	if (!dir)
		return;
	while ((x = readdir(dir)))
		if (!strncmp(x->d_name, NOTE_LOOSE, skip) && id_valid(x->d_name + skip)) {
			put(&l->loose, x->d_name + skip, l);
			put(&l->earlier, x->d_name + skip, l);
		}
	closedir(dir);
}

int layer_book_new(struct service *s, struct layer_book **ret, struct err *e)
{
	struct layer_book *l = calloc(1, sizeof(*l));
	char path[1100];

	if (!l || map_init(&l->held) < 0 || map_init(&l->loose) < 0 || map_init(&l->unseen) < 0 ||
	    map_init(&l->earlier) < 0) {
		free(l);
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for layers");
	}
	snprintf(path, sizeof(path), "%s/" NOTES_FOLDER, s->o.data);
	l->notes = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	read_loose(l);
	l->s = s;
	l->started_ns = clock_mono_ns();
	l->due = true; /* what was half-made when we died */
	*ret = l;
	return 0;
}

void layer_hold(struct service *s, const char *id)
{
	struct hold *h = map_get(&s->layers->held, id);

	if (!h) {
		h = calloc(1, sizeof(*h));
		if (!h || map_put(&s->layers->held, id, h) < 0)
			abort(); /* a layer that is not held would be thrown away */
	}
	h->n++;
}

void layer_drop(struct service *s, const char *id)
{
	struct hold *h = map_get(&s->layers->held, id);

	assert(h && h->n);
	if (--h->n)
		return;
	layer_may_go(s, id);
	map_del(&s->layers->held, id);
	free(h);
	layer_sweep_soon(s);
}

void layer_sweep_soon(struct service *s)
{
	s->layers->due = true;
	service_soon(s);
}

static void set_loose(struct tenant *t, uint64_t bytes)
{
	tenant_give(t, &(struct tenant_quota){ .checkpoint_bytes = t->loose });
	t->loose = bytes;
	tenant_force(t, &(struct tenant_quota){ .checkpoint_bytes = t->loose });
}

void layer_loose(struct service *s, struct tenant *t, uint64_t bytes)
{
	set_loose(t, t->loose + bytes);
	layer_sweep_soon(s);
}

/* Its checkpoint is deleted, or never had a name, and sandboxes or other layers are based on it. */
static void count_loose(struct layer_book *l, const struct msg_layer *x)
{
	const struct checkpoint *c = map_get(&l->s->checkpoints, l->at);

	if (!x->users || (c && c->counted))
		return;
	for (struct tenant *t = tenant_first(l->s->access); t; t = t->next)
		if (t->number == x->tenant)
			t->looser += x->size + x->memory;
}

static void ask_next(struct layer_book *l);

static void swept(struct layer_book *l)
{
	uint64_t now = clock_mono_ns(), took = now - l->begun_ns;

	l->sweeping = false;
	if (l->removed)
		log_debug("%u layers nobody needs any more are gone", l->removed);
	/* Layers below the removed ones may be unused now. */
	l->due |= l->removed > 0;
	took = took < APART_MAX_NS / 10 ? took * 10 : APART_MAX_NS;
	l->next_ns = now + (took > APART_NS ? took : APART_NS);
	if (l->due)
		service_soon(l->s);
}

/* Of files that no layer has: it was never made, or its end was not noted any more. */
static void drop_unseen(struct layer_book *l)
{
	const bool young = clock_mono_ns() < l->started_ns + EARLIER_NS;

	for (size_t i = 0; i < l->unseen.size; i++) {
		const struct map_slot *x = &l->unseen.slot[i];

		if (x->key && x->value && !map_get(&l->held, x->key) && !(young && map_get(&l->earlier, x->key)))
			forget_loose(l, x->key);
	}
}

static void on_unsealed(void *arg, int r, const struct warden_link_answer *a, const struct err *e)
{
	struct layer_book *l = arg;

	(void)a;
	/* Gone already: by a warden that died before it could say so. Its note goes with the next sweep. */
	if (r == 0 || r == -ESRCH)
		l->removed++;
	else if (r != -EBUSY)
		log_warn("cannot remove a layer: %s", e ? e->msg : "the warden has ended");
}

static void on_layer(void *arg, int r, const struct warden_link_answer *a, const struct err *e)
{
	struct layer_book *l = arg;
	const struct warden_rep *rep = a ? a->rep : NULL;

	if (r < 0 || !rep || !rep->id[0]) {
		if (r < 0 && r != -EOPNOTSUPP)
			log_warn("cannot list the layers: %s", e ? e->msg : "the warden has ended");
		/* The end of a comparison is not told: look again. */
		if (rep && rep->layer.users && l->waiting)
			l->due = true;
		if (r == 0) {
			checkpoints_looked_at(l->s);
			drop_unseen(l);
		}
		for (struct tenant *t = tenant_first(l->s->access); r == 0 && t; t = t->next)
			set_loose(t, t->looser);
		swept(l);
		return;
	}
	memcpy(l->at, rep->id, ID_LEN);
	checkpoint_saw_layer(l->s, l->at, rep->layer.flags & MSG_LAYER_BAD);
	count_loose(l, &rep->layer);
	map_del(&l->unseen, l->at);
	if (rep->layer.users && !map_get(&l->held, l->at) && map_get(&l->loose, l->at))
		l->waiting++;
	if (!rep->layer.users && !map_get(&l->held, l->at)) {
		const bool known = map_get(&l->loose, l->at);

		if (!known)
			log_warn("layer %s is in no row and is not marked for removal: it is moved to the quarantine",
				 l->at);
		warden_link_call_layer(l->s->warden, WARDEN_UNSEAL, 0, !known, l->at, on_unsealed, l);
	}
	ask_next(l);
}

static void ask_next(struct layer_book *l)
{
	warden_link_call_layer(l->s->warden, WARDEN_LAYERS, 0, 0, l->at[0] ? l->at : NULL, on_layer, l);
}

void layer_warden_back(struct service *s)
{
	s->layers->begun_ns = clock_mono_ns();
}

bool layer_tick(struct service *s)
{
	struct layer_book *l = s->layers;
	uint64_t now = clock_mono_ns();

	if (!s->warden || l->sweeping)
		return l->sweeping;
	if (now < l->next_ns || (!l->due && now < l->next_ns + NOW_AND_THEN_NS))
		return l->due;
	l->due = false;
	l->sweeping = true;
	l->removed = l->waiting = 0;
	l->begun_ns = now;
	memset(l->at, 0, sizeof(l->at));
	checkpoints_look(s);
	map_done(&l->unseen);
	if (map_init(&l->unseen) < 0)
		abort();
	/* One that is held may be in the making. */
	for (size_t i = 0; i < l->loose.size; i++)
		if (l->loose.slot[i].key && l->loose.slot[i].value && !map_get(&l->held, l->loose.slot[i].key))
			put(&l->unseen, l->loose.slot[i].key, l);
	for (struct tenant *t = tenant_first(s->access); t; t = t->next)
		t->looser = 0;
	ask_next(l);
	return true;
}
