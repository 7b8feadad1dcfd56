/* Lists of structs that have the members next and prev; prev points to what points to the struct. */
#pragma once

/* @x becomes the first of *@head. */
#define LIST_ADD(head, x)                                                                                              \
	do {                                                                                                           \
		(x)->next = *(head);                                                                                   \
		(x)->prev = (head);                                                                                    \
		if ((x)->next)                                                                                         \
			(x)->next->prev = &(x)->next;                                                                  \
		*(head) = (x);                                                                                         \
	} while (0)

#define LIST_REMOVE(x)                                                                                                 \
	do {                                                                                                           \
		*(x)->prev = (x)->next;                                                                                \
		if ((x)->next)                                                                                         \
			(x)->next->prev = (x)->prev;                                                                   \
	} while (0)
