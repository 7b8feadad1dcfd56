/* Between the two files of checkpoints: themselves, and what is made from them. */
#pragma once
#include "api/native/native.h"
#include "service/checkpoint/checkpoint.h"

struct json_read;

void dto_checkpoint(struct json *j, const char *key, const struct checkpoint *c);
/* Named in the path. NULL: answered and ended. Not referenced. */
struct checkpoint *call_checkpoint(struct call *c);
void drop_checkpoint(struct call *c); /* ->gone of a call whose ->data is one, referenced */
int read_memory(struct json_read *j, enum memory_request *ret);
void read_network(struct json_read *j, enum network_request *ret);
