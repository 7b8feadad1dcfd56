/*
 * One line per message to stderr: "cloche: warning: text". Control bytes are escaped, so that what a sandbox named can
 * neither forge a line nor move the cursor. Never fails, never blocks longer than one write, keeps errno.
 */
#pragma once

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* Messages above the level are dropped; LOG_LEVEL_WARN until set. */
void log_set_level(enum log_level level);

void log_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_warn(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_info(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_debug(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
