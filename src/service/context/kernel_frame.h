/*
 * Events of a kernel: JSON objects behind a length (docs/design/0019-interpreter.md). What is in a sandbox can send anything,
 * so that all bytes are checked, and nothing is built of them: a frame is taken apart into pieces of its own text, and takes no
 * more memory than that.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/mask.h"

#define KERNEL_FRAME_MAX (48U * 1024U * 1024U) /* of JSON, without the length */
#define KERNEL_FRAME_HEAD 4U
#define KERNEL_FRAME_MEMBERS 24U /* further ones are ignored */
#define KERNEL_FRAME_DEPTH 512U

/* One value, as it is in the frame. */
struct json_span {
	const char *p; /* NULL: it is not there */
	size_t len;
};

struct kernel_frame {
	struct {
		struct json_span key; /* without its quotes */
		struct json_span value;
	} member[KERNEL_FRAME_MEMBERS];
	unsigned n;
};

/*
 * The frame refers to @data, and is good as long as that. Half of a surrogate pair, which JSON can say and UTF-8 cannot, is
 * replaced in @data, and so are line ends between values: all of it is one line. -EBADMSG: it is no JSON object in UTF-8. -ELOOP: it is, and nested too deeply.
 */
int kernel_frame_read(char *data, size_t len, struct kernel_frame *ret);
struct json_span kernel_frame_get(const struct kernel_frame *f, const char *key);
/* Whether that member is this text, which has nothing to be escaped. */
bool kernel_frame_is(const struct kernel_frame *f, const char *key, const char *text);
bool kernel_frame_true(const struct kernel_frame *f, const char *key);
/* A number without sign, fraction and exponent; false when it is anything else. */
bool kernel_frame_u64(const struct kernel_frame *f, const char *key, uint64_t *ret);

bool json_span_is_text(struct json_span s);
bool json_span_is_object(struct json_span s);
size_t json_span_text_len(struct json_span s); /* of a text, in bytes without escapes */
/* Adds the characters of a text, at most @most bytes of them, whole ones. 0, -E2BIG past the buffer's maximum, or -ENOMEM. */
int json_span_text(struct json_span s, size_t most, struct buf *out);
/* Adds the value, with the values of @m masked in every text and key of it. NULL: as it is. */
int json_span_masked(struct json_span s, struct mask *m, struct buf *out);
