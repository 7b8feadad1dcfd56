#pragma once
#include "client/client.h"

/* The verbs that have files of their own here. */
extern const struct command checkpoint_export, checkpoint_import;
