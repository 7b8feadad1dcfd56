/*
 * Watches layers whose files are known to be undamaged: the kernel reports when a folder or file of one is changed, and
 * then it is compared with its manifest again before it is used. So a change while a warden runs is found at once, and
 * an unchanged layer costs nothing. Any thread.
 */
#pragma once
#include <stddef.h>

struct watch;

enum watch_state {
	WATCH_QUIET, /* no change since watch_layer() */
	WATCH_TOUCHED,
	WATCH_BLIND, /* unknown: it was never watched, or the kernel has no more watches for this user */
};

/*
 * @most: the limit of watched folders; 0: half of the kernel's limit per user. Above it the layer with the most folders
 * becomes WATCH_BLIND. NULL when there is no memory. Without inotify all layers are WATCH_BLIND.
 */
struct watch *watch_new(size_t most);
void watch_free(struct watch *w);
/*
 * Watches every folder of layer @id in the folder @store for changes from now on. Earlier events of it are forgotten.
 * NULL: does nothing.
 */
void watch_layer(struct watch *w, int store, const char *id);
/*
 * Announces a layer that was just made and is known to be undamaged; it is watched once its maker has closed all its
 * files.
 */
void watch_expect(struct watch *w, const char *id);
void watch_expected(struct watch *w, int store, const char *id);
enum watch_state watch_look(struct watch *w, const char *id);
void watch_forget(struct watch *w, const char *id);
