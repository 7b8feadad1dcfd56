/* What every room asks of the service as a whole: to be looked at soon, and whether the disk has room for new work. */
#include "base/base.h"
#include "base/room.h"
#include "service/internal.h"

#include <fcntl.h>

#define ROOM_MS 200

void service_soon(struct service *s)
{
	if (s->soon)
		return;
	s->soon = true;
	uv_timer_start(&s->tick, s->on_tick, SERVICE_SOON_MS, 0);
}

int service_room(struct service *s, struct err *e)
{
	uint64_t now = uv_now(s->loop);
	struct room disk;

	if ((!s->room_at || now - s->room_at >= ROOM_MS) && room_of(AT_FDCWD, s->o.data, &disk) == 0) {
		s->room_at = now ? now : 1;
		s->room = disk.left;
		s->room_low = room_low(&disk, ROOM_WORK);
	}
	if (turn_stuck(s->turn)) {
		err_set(e, WHY_NO_HOST_SPACE, -ENOSPC, "the disk of the data folder is full: no changes can be stored");
		err_remedy(e, "free space there; running sandboxes continue");
		return -ENOSPC;
	}
	if (s->room >= s->room_low)
		return 0;
	err_set(e, WHY_NO_HOST_SPACE, -ENOSPC, "the disk of the data folder is full: %llu KiB are left",
		(unsigned long long)(s->room / KIB));
	err_remedy(e, "free space there; running sandboxes continue, and sandboxes can be deleted");
	return -ENOSPC;
}
