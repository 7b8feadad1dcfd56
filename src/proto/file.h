/*
 * The wire between the API process and a file worker in a sandbox, version 1. docs/protocol.md ("Files")
 * describes it; this header is the contract. A unix stream socket, one operation at a time, any number one after the other.
 * The worker is hostile to the host: it runs among what it serves. Nothing here allocates, nothing asserts on bytes.
 *
 *	version u8 | type u8 | flags u16 | tag u32 | len u32 | len bytes of payload
 *
 * Numbers are little-endian. The host chooses a tag per operation; everything about it carries that tag.
 *
 *	STAT, MKDIR, MOVE, SYMLINK, LINK, ATTR, FIFO, DRESS	→ ENTRY, END
 *	REMOVE					→ END
 *	READ					→ ENTRY, DATA…, END
 *	WRITE, DATA…, END or ABORT		→ ENTRY, END
 *	LIST					→ ENTRY… (DATA… behind each file with FILE_CONTENT, XATTRS before an entry
 *						  that has some with FILE_XATTRS), END
 *	WATCH					→ ENTRY once it is set up, EVENT… until the socket closes
 *
 * An operation that fails answers END with an errno, perhaps without the rest. Exactly one END comes per operation. A
 * WRITE that fails early is answered at once; the host then still sends END or ABORT (what it sent before is thrown
 * away), and only then the next operation. To give up a READ, LIST or WATCH the host closes the socket.
 *
 * Paths: absolute, or relative to the cwd of the FILES frame. They are resolved inside the sandbox, magic links of
 * /proc are refused (ELOOP). With FILE_BENEATH `under` is a folder, found as any path, and `path` (LINK: also `to`)
 * stays below it whatever links say (EXDEV), and its last part is never followed.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

#define FILE_VERSION 1
#define FILE_HEAD 12
#define FILE_DATA_MAX 65536U /* bytes in one DATA */
#define FILE_SMALL_MAX 16384U /* payload of everything else */
#define FILE_FRAME_MAX (FILE_HEAD + FILE_DATA_MAX)
#define FILE_PATH_MAX 4096U /* with the closing NUL, each path */

enum file_type {
	/* host → worker: struct file_request */
	FILE_STAT = 1, /* of the path itself: a link at its end is not followed; the answer contains its target */
	FILE_READ = 2, /* a regular file: offset, length; never more than its size when opened */
	FILE_WRITE = 3, /* FILE_PARENTS, APPEND, EXCLUSIVE, MODE, MTIME; beside and renamed unless APPEND */
	FILE_LIST = 4, /* depth, max; the first ENTRY is the thing itself, with path "" */
	FILE_MKDIR = 5, /* FILE_PARENTS (then one that is there is fine, unless EXCLUSIVE), MODE, MTIME */
	FILE_MOVE = 6, /* path → to; FILE_PARENTS of `to`, EXCLUSIVE */
	FILE_REMOVE = 7, /* FILE_RECURSIVE; links are removed, not followed */
	FILE_SYMLINK = 8, /* path becomes a link with the text `to`, a file there goes; PARENTS, EXCLUSIVE, MTIME */
	FILE_LINK = 9, /* path becomes another name of the file `to`; as SYMLINK */
	FILE_ATTR = 10, /* FILE_MODE, FILE_MTIME of what is there; links are not followed */
	FILE_WATCH = 11, /* FILE_RECURSIVE, max (watches; 0 = FILE_WATCHES_MAX) */
	FILE_FIFO = 12, /* as SYMLINK; with its mode */
	/* struct file_dress: everything about what is there, but its content; links are not followed */
	FILE_DRESS = 13,
	/* host → worker, within a WRITE */
	FILE_ABORT = 15, /* no payload */
	/* both */
	FILE_DATA = 16, /* 1 to FILE_DATA_MAX bytes */
	FILE_END = 17, /* from the worker struct file_end, from the host no payload */
	/* worker → host */
	FILE_ENTRY = 18, /* struct file_entry */
	FILE_EVENT = 19, /* struct file_event */
	FILE_XATTR_LIST = 20, /* extended attributes of the next ENTRY, as proto/change.h has them */
};

enum file_flag {
	FILE_PARENTS = 1, /* make missing folders above */
	FILE_APPEND = 2,
	FILE_EXCLUSIVE = 4, /* EEXIST when it is there */
	FILE_MODE = 8, /* the mode is given; set-id bits are dropped */
	FILE_MTIME = 16, /* the mtime is given */
	FILE_RECURSIVE = 32,
	FILE_CONTENT = 64, /* LIST, also of one file: the bytes of a regular file follow its ENTRY, at most its size */
	FILE_BENEATH = 128,
	FILE_SPARSE = 512, /* WRITE: DATA of zeros alone becomes a hole */
	FILE_TRUNCATED = 256, /* END of a LIST: there was more */
	/* with BENEATH: links above the last part lead to where they lead in the root, instead of being refused */
	FILE_ROOTED = 1024,
	FILE_XATTRS = 4096, /* LIST: attributes of files and folders come with them */
	FILE_OVER = 2048, /* WRITE, SYMLINK, LINK, FIFO: a folder that is there goes, with all that is in it */
};

/* Which side sent the bytes: each type has its direction. */
enum file_from {
	FILE_FROM_HOST,
	FILE_FROM_WORKER,
};

struct file_frame {
	uint8_t type;
	uint16_t flags;
	uint32_t tag;
	uint32_t len;
	const uint8_t *payload; /* inside the decoded buffer */
};

/*
 * Decodes the frame at the start of @data. Returns its whole length, 0 when more bytes are needed, or -EBADMSG when
 * this can never become a frame from that side: the socket is then to be closed.
 */
long file_decode(enum file_from from, const uint8_t *data, size_t len, struct file_frame *ret);
/* Writes the head for a payload of @len into @out (FILE_HEAD bytes). */
void file_head(uint8_t *out, enum file_type type, unsigned flags, uint32_t tag, uint32_t len);

#define FILE_WATCHES_MAX 4096U
#define FILE_ALL UINT64_MAX /* as length */

/* One layout for every operation; what an operation does not use is 0 or "". NULL is encoded as "". */
struct file_request {
	uint32_t mode; /* at most 07777 */
	uint32_t depth; /* LIST: 1 = what is in the folder, UINT32_MAX = everything below */
	uint32_t max; /* LIST: entries, the first not counted; 0 = no limit */
	uint64_t offset, length; /* READ */
	int64_t mtime; /* nanoseconds since 1970 */
	const char *path, *to, *under;
};

/* Payload length or -EMSGSIZE. Flags are in the head. */
long file_request_encode(const struct file_request *q, uint8_t *out, size_t size);
/* 0 or -EBADMSG; points into the frame. */
int file_request_decode(const struct file_frame *f, struct file_request *ret);

/* Owner, mode with set-id bits, time and extended attributes to set; the worker needs the permission. */
struct file_dress {
	uint32_t mode, uid, gid; /* mode at most 07777 */
	int64_t mtime;
	const char *path, *under;
	const uint8_t *xattrs; /* as proto/change.h has them; others that are there stay */
	uint32_t xattrs_len;
};

long file_dress_encode(const struct file_dress *x, uint8_t *out, size_t size);
/* 0 or -EBADMSG; points into the frame. The attributes are not looked at. */
int file_dress_decode(const struct file_frame *f, struct file_dress *ret);

struct file_entry {
	uint32_t mode; /* as st_mode: type and permissions */
	uint32_t uid, gid; /* as seen inside */
	uint32_t nlink;
	uint32_t errnum; /* LIST with FILE_CONTENT: why the file's bytes are not sent; else 0 */
	uint64_t size;
	uint64_t dev, ino;
	int64_t mtime; /* nanoseconds since 1970 */
	const char *path; /* as asked; of a LIST relative to the folder */
	const char *target; /* of a link, else "" */
};

long file_entry_encode(const struct file_entry *x, uint8_t *out, size_t size);
int file_entry_decode(const struct file_frame *f, struct file_entry *ret);

#define FILE_STEPS(X)                                                                                                  \
	X(NONE, "")                                                                                                    \
	X(PROTOCOL, "understand the request")                                                                          \
	X(PATH, "find the path")                                                                                       \
	X(PARENTS, "make the folders above")                                                                           \
	X(OPEN, "open it")                                                                                             \
	X(TYPE, "use it")                                                                                              \
	X(READ, "read")                                                                                                \
	X(CREATE, "create it")                                                                                         \
	X(WRITE, "write")                                                                                              \
	X(RENAME, "rename")                                                                                            \
	X(LIST, "list the folder")                                                                                     \
	X(REMOVE, "remove it")                                                                                         \
	X(ATTR, "set mode, owner or time")                                                                             \
	X(WATCH, "watch it")                                                                                           \
	X(ABORT, "continue")                                                                                           \
	X(USER, "start as the user") /* with tag 0: the worker could not start */

enum file_step {
#define X(name, text) FILE_STEP_##name,
	FILE_STEPS(X)
#undef X
		FILE_STEP_COUNT
};

/* "find the path", for "cannot find the path: No such file or directory". */
const char *file_step_text(uint32_t step);

struct file_end {
	uint32_t errnum; /* 0 = done */
	uint32_t step; /* enum file_step: what failed */
	uint64_t count; /* bytes of READ and WRITE, entries of LIST and REMOVE */
};

long file_end_encode(const struct file_end *x, uint8_t *out, size_t size);
int file_end_decode(const struct file_frame *f, struct file_end *ret);

enum file_event_kind {
	FILE_EVENT_CREATED = 1,
	FILE_EVENT_MODIFIED = 2, /* bytes, mode, owner or times */
	FILE_EVENT_REMOVED = 3, /* or moved to a folder that is not watched */
	FILE_EVENT_MOVED = 4, /* path → to */
	FILE_EVENT_OVERFLOW = 5, /* some were lost, or the number of watches is reached at path */
	FILE_EVENT_GONE = 6, /* the watched thing itself: the last event */
};

struct file_event {
	uint32_t kind;
	uint32_t type; /* S_IFDIR, S_IFREG, S_IFLNK …; 0 = not known any more */
	const char *path; /* relative to the watched folder; "" = itself */
	const char *to; /* of a move, else "" */
};

long file_event_encode(const struct file_event *x, uint8_t *out, size_t size);
int file_event_decode(const struct file_frame *f, struct file_event *ret);
