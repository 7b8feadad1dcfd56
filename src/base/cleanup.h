/* Locals that clean up themselves, and moves that can be seen. */
#pragma once
#include <stdlib.h>

#define AUTO_CLOSE __attribute__((cleanup(fd_closep)))
#define AUTO_FREE __attribute__((cleanup(cleanup_free)))
#define AUTO(fn) __attribute__((cleanup(fn##p)))

/* Defines fn##p, the cleanup form of a destructor that accepts NULL. */
#define DEFINE_AUTO(type, fn)                                                                                          \
	static inline void fn##p(type **p)                                                                             \
	{                                                                                                              \
		fn(*p);                                                                                                \
	}

#define TAKE_FD(fd)                                                                                                    \
	({                                                                                                             \
		int take_fd_ = (fd);                                                                                   \
		(fd) = -1;                                                                                             \
		take_fd_;                                                                                              \
	})
#define TAKE_PTR(p)                                                                                                    \
	({                                                                                                             \
		__typeof__(p) take_ptr_ = (p);                                                                         \
		(p) = NULL;                                                                                            \
		take_ptr_;                                                                                             \
	})

static inline void cleanup_free(void *p)
{
	free(*(void **)p);
}

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define KIB (1024ULL)
#define MIB (1024ULL * KIB)
#define GIB (1024ULL * MIB)
