/* Between the two files of checkpoints: themselves, and what is made from them. */
#pragma once
#include "api/native/native.h"
#include "service/checkpoint/checkpoint.h"

struct jin;

void dto_checkpoint(struct json *j, const char *key, const struct checkpoint *c);
/* Named in the path. NULL: answered and ended. Not referenced. */
struct checkpoint *call_checkpoint(struct call *c);
void drop_checkpoint(struct call *c); /* ->gone of a call whose ->data is one, referenced */
int read_memory(struct jin *j, enum want_memory *ret);
void read_network(struct jin *j, enum want_network *ret);
