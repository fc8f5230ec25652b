// Completes.
#include "quern.h"

HANDLER int32_t handle(void) { return 0; }
