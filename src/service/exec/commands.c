/* What sandboxes call of this room, which they do not know: see service/sandbox/part.h. */
#include "base/base.h"
#include "service/exec/exec.h"
#include "service/sandbox/part.h"

const struct sandbox_commands exec_commands = {
	.frame = exec_frame,
	.group = exec_group_came,
	.clock = exec_clock,
	.let_go = exec_let_go,
	.take_up = exec_take_up,
	.read_all = exec_read_all,
	.any_read = exec_any_read,
	.any_between = exec_any_between,
	.expect = exec_expect,
	.sync = exec_sync,
	.synced = exec_synced,
	.revive = exec_revive,
	.revived = exec_revived,
	.again = exec_again,
};
