/*
 * oom_score_adj: which processes the kernel kills first when the host runs out of memory. Processes in sandboxes are
 * first, the daemon's own processes are last.
 */
#pragma once

#define SCORE_SANDBOX 500 /* the rest, up to 1000, is for contexts that run code: src/interpreter */
#define SCORE_DAEMON (-900)

/*
 * @fd: an oom_score_adj open for reading and writing. It becomes SCORE_SANDBOX, or stays what it is when that is more. Written
 * with CAP_SYS_RESOURCE of the host it is also the least that the process and its children can set themselves.
 */
int score_sandbox(int fd);
/* Of this process, by @path. Children inherit it. */
int score_sandbox_self(const char *path);
/* Of this process. -EACCES without CAP_SYS_RESOURCE. */
int score_daemon_self(void);
