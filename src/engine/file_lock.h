#pragma once

/* Locks the file for this process; waits a moment for one that is dying. -EAGAIN, -EACCES: another has it. */
int file_lock(int fd);
