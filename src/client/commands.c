/* The list of commands that need a daemon. */
#include "client/client.h"
#include "base/base.h"

/* clang-format off */
const struct command *const commands[] = {
	&cmd_create,	 &cmd_exec,    &cmd_shell,    &cmd_repl,    &cmd_cp,	       &cmd_ls,	     &cmd_inspect, &cmd_rm,
	&cmd_kill,	 &cmd_extend,  &cmd_rename,  &cmd_update,
	&cmd_checkpoint, &cmd_restore, &cmd_fork,     &cmd_diff,       &cmd_promote, &cmd_start,   &cmd_stop,    &cmd_pause,   &cmd_resume,
	&cmd_hibernate,	 &cmd_wake,    &cmd_template, &cmd_pool,	&cmd_secret, &cmd_image,       &cmd_logs,    &cmd_stats,   &cmd_top,
	&cmd_events,	 &cmd_audit,   &cmd_token,    &cmd_network, &cmd_why, &cmd_port, &cmd_port_forward, &cmd_tenant, &cmd_completion, NULL,
};
/* clang-format on */
