#ifdef __aarch64__
#include "dump/arch.h"
#include "base/base.h"
#endif
