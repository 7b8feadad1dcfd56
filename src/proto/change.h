/*
 * A stream of changes: the differences between two states of a sandbox's files. The warden writes it into a pipe; the
 * daemon reads it for a list, cloche-tar to pack it or to apply it to another sandbox. docs/design/0008-diff.md
 * describes the design. Names and bytes come from a sandbox, so they are hostile. Nothing here allocates, nothing
 * asserts on bytes.
 *
 *	version u8 | type u8 | zero u16 | len u32 | len bytes of payload
 *
 *	ENTRY, OLD… (content before), DATA… (content now), ENTRY, …, END
 *
 * Numbers are little-endian. OLD and DATA are a u64 offset and bytes; holes are left out. A folder comes before what is
 * in it. After END, which says how it went, nothing comes; a stream without one is cut.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CHANGE_VERSION 1
#define CHANGE_HEAD 8
#define CHANGE_DATA_MAX 65536U /* bytes in one DATA, without its offset */
#define CHANGE_XATTRS_MAX 49152U /* they have to fit into one frame of proto/file.h */
#define CHANGE_EXTENTS_MAX 512U
#define CHANGE_PATH_MAX 4096U /* with the closing NUL */
#define CHANGE_PAYLOAD_MAX (160U * 1024U)
#define CHANGE_FRAME_MAX (CHANGE_HEAD + CHANGE_PAYLOAD_MAX)

enum change_type {
	CHANGE_ENTRY = 1,
	CHANGE_OLD = 2,
	CHANGE_DATA = 3,
	CHANGE_END = 4,
};

enum change_what {
	CHANGE_ADDED = 1,
	CHANGE_CHANGED = 2,
	CHANGE_REMOVED = 3,
};

#define CHANGE_REPLACED 1U /* it was of another type: what is there goes first */
#define CHANGE_CONTENT 2U /* not only its attributes differ */
#define CHANGE_TEXT 4U /* OLD and DATA follow, all there is */
#define CHANGE_FLAGS 7U

struct change_frame {
	uint8_t type;
	uint32_t len;
	const uint8_t *payload; /* inside the decoded buffer */
};

struct change_entry {
	uint8_t what; /* enum change_what */
	uint8_t flags;
	uint32_t mode; /* as st_mode; 0 of what is gone */
	uint32_t old_mode; /* 0 of what is new */
	uint32_t uid, gid; /* inside */
	uint32_t nlink;
	uint64_t size, old_size; /* of files; of links the length of the text */
	int64_t mtime; /* nanoseconds since 1970 */
	uint64_t dev, ino; /* the same for names of one file */
	const char *path; /* absolute */
	const char *target; /* of a link, else "" */
	const uint8_t *xattrs; /* see change_xattr_next() */
	uint32_t xattrs_len;
	/* where its data is when it has holes, see change_extent(); without DIFF_DATA only how much of it */
	const uint8_t *extents;
	uint32_t nextents; /* 0: no holes */
};

struct change_end {
	uint32_t errnum; /* 0: that is all of it */
	uint32_t kind; /* enum err_kind, of an error */
	bool truncated; /* there are more changes than were requested, or fit */
	uint64_t added, changed, removed; /* all changes, including those that are left out */
	const char *msg; /* of an error, else "" */
};

/*
 * Decodes the frame at the start of @data. Returns its whole length, 0 when more bytes are needed, or -EBADMSG when
 * this can never become a frame.
 */
long change_decode(const uint8_t *data, size_t len, struct change_frame *ret);
/* CHANGE_HEAD bytes. */
void change_head(uint8_t *out, enum change_type type, uint32_t len);

/* Payload length or -EMSGSIZE. */
long change_entry_encode(const struct change_entry *x, uint8_t *out, size_t size);
/* 0 or -EBADMSG; points into the frame. Paths are absolute, without "." and "..", and name something. */
int change_entry_decode(const struct change_frame *f, struct change_entry *ret);
long change_end_encode(const struct change_end *x, uint8_t *out, size_t size);
int change_end_decode(const struct change_frame *f, struct change_end *ret);
/* Of OLD and DATA. -EBADMSG. */
int change_data_decode(const struct change_frame *f, uint64_t *ret_offset, const uint8_t **ret, size_t *ret_len);
/* Writes the offset where change_data_decode() finds it: 8 bytes before the data. */
#define CHANGE_DATA_HEAD (CHANGE_HEAD + 8)
void change_data_head(uint8_t *out, enum change_type type, uint64_t offset, uint32_t len);

struct change_xattr {
	const char *name;
	const uint8_t *value;
	uint32_t len;
};
/* Puts one at @out; its length or -EMSGSIZE. */
long change_xattr_encode(const struct change_xattr *x, uint8_t *out, size_t size);
/* The one at *at, which moves on. 1, 0 at the end. They were checked with the entry. */
int change_xattr_next(const struct change_entry *e, uint32_t *at, struct change_xattr *ret);
void change_extent(const struct change_entry *e, uint32_t n, uint64_t *ret_offset, uint64_t *ret_len);
void change_extent_put(uint8_t *out, uint32_t n, uint64_t offset, uint64_t len);
