/* Checks the System V objects of a memory image. */
#include "proto/memory_sysv.h"
#include "proto/frame.h"

#include <string.h>

static bool sems_ok(const struct mem_sysv *s, const uint8_t *at, uint64_t len)
{
	if (!s->n || s->n > MEM_SYSV_SEMS_MAX ||
	    len != s->n * sizeof(struct mem_sem) + s->undos * sizeof(struct mem_undo))
		return false;
	for (uint32_t i = 0; i < s->n; i++) {
		struct mem_sem x;

		memcpy(&x, at + i * sizeof(x), sizeof(x));
		if (x.value > MEM_SYSV_VALUE_MAX)
			return false;
	}
	at += s->n * sizeof(struct mem_sem);
	for (uint32_t i = 0; i < s->undos; i++) {
		struct mem_undo x;

		memcpy(&x, at + i * sizeof(x), sizeof(x));
		if (x.num >= s->n || !x.add || x.add > (int32_t)MEM_SYSV_VALUE_MAX ||
		    x.add < -(int32_t)MEM_SYSV_VALUE_MAX || x.zero)
			return false;
	}
	return true;
}

static bool messages_ok(const struct mem_sysv *s, const uint8_t *at, uint64_t len)
{
	for (uint32_t i = 0; i < s->n; i++) {
		struct mem_sysv_message m;
		uint64_t whole;

		if (len < sizeof(m))
			return false;
		memcpy(&m, at, sizeof(m));
		whole = sizeof(m) + (((uint64_t)m.len + 7) & ~7ULL);
		if (m.type < 1 || m.zero || m.len > MEM_SYSV_MESSAGE_MAX || whole > len)
			return false;
		at += whole;
		len -= whole;
	}
	return !len;
}

bool mem_sysv_ok(const void *data, uint64_t len, uint64_t size)
{
	const uint32_t flags[MEM_SYSV_KINDS] = {
		[MEM_SYSV_SHM] = MEM_SYSV_REMOVED | MEM_SYSV_LOCKED, [MEM_SYSV_SEM] = MEM_SYSV_USED
	};
	const uint8_t *rest = (const uint8_t *)data + sizeof(struct mem_sysv);
	struct mem_sysv s;

	if (len < sizeof(s))
		return false;
	memcpy(&s, data, sizeof(s));
	len -= sizeof(s);
	if (s.kind >= MEM_SYSV_KINDS || s.id > INT32_MAX || s.mode > 0777 || s.flags & ~flags[s.kind] || s.zero)
		return false;
	for (unsigned i = 0; i < 4; i++) {
		const uint32_t who = (const uint32_t[]){ s.uid, s.gid, s.cuid, s.cgid }[i];

		if (who == UINT32_MAX || who == AGENT_UID)
			return false;
	}
	if ((s.kind == MEM_SYSV_SHM) != (size > 0) || size > MEM_SYSV_SIZE_MAX ||
	    (s.kind != MEM_SYSV_MSG && s.qbytes) || s.qbytes > INT32_MAX || (s.kind != MEM_SYSV_SEM && s.undos) ||
	    (s.key && s.flags & MEM_SYSV_REMOVED))
		return false;
	switch ((enum mem_sysv_kind)s.kind) {
	case MEM_SYSV_SHM:
		return !s.n && !len;
	case MEM_SYSV_SEM:
		return s.undos <= len && sems_ok(&s, rest, len);
	case MEM_SYSV_MSG:
		return messages_ok(&s, rest, len);
	case MEM_SYSV_KINDS:
		break;
	}
	return false;
}
