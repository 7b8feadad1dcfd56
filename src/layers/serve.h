/* The loop of cloche-layers that answers requests (layers/task.h), one after the other, until its socket ends. */
#pragma once
#include <stdbool.h>

/*
 * @stop as in tree.h; it is cleared before each request. @makes: accepts all requests, else only VERIFY. Returns 0, or
 * why it has ended.
 */
int serve(int control, int store, bool makes, int *stop);
/* Answers every request with this error. */
int serve_refusal(int control, int r, const char *msg);
