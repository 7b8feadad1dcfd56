/* Shared by the two files on checkpoints: calls on a checkpoint, and calls that make something from one. */
#pragma once
#include "api/native/native.h"
#include "service/checkpoint/checkpoint.h"

struct json_read;

void dto_checkpoint(struct json *j, const char *key, const struct checkpoint *c);
/* The checkpoint in the path. NULL: answered and ended. Not referenced. */
struct checkpoint *call_checkpoint(struct call *c);
void drop_checkpoint(struct call *c); /* ->gone of a call whose ->data is a referenced checkpoint */
int read_memory(struct json_read *j, enum memory_request *ret);
void read_network(struct json_read *j, enum network_request *ret);
