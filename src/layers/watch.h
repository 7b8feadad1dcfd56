/*
 * Layers whose files are known to be right: the kernel tells when anybody changes a folder or file of one of them, and then
 * it is compared with its manifest again before somebody stands on it. So what was altered while a warden runs is found
 * at once, and what was not costs nothing. Any thread.
 */
#pragma once
#include <stddef.h>

struct watch;

enum watch_state {
	WATCH_QUIET, /* nothing has happened since watch_layer() */
	WATCH_TOUCHED,
	WATCH_BLIND, /* it cannot be told: never watched, or the kernel has no more watches for us */
};

/*
 * @most folders at a time; 0: half of what the kernel gives one user. Past that the layer of the most folders is WATCH_BLIND. NULL
 * when there is no memory. Without inotify all layers are WATCH_BLIND.
 */
struct watch *watch_new(size_t most);
void watch_free(struct watch *w);
/* Every folder of layer @id in the folder @store: what happens from now on is told. What was watched of it before is forgotten. NULL: nothing. */
void watch_layer(struct watch *w, int store, const char *id);
/* One that was just made, known to be right, and will be watched in a moment, when its maker has closed all its files. */
void watch_expect(struct watch *w, const char *id);
void watch_expected(struct watch *w, int store, const char *id);
enum watch_state watch_look(struct watch *w, const char *id);
void watch_forget(struct watch *w, const char *id);
