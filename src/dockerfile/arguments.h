/* Reads what follows the name of an instruction: flags, then arguments in the form that the instruction has. */
#pragma once
#include "base/err.h"
#include "dockerfile/parse.h"

/* Fills flags, args, json, bare and rest of @in, whose kind is set. */
int arguments_read(struct instruction *in, const char *text, char escape, struct err *e);
