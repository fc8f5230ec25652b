// Completes.
#include "quern.h"

QUERN_HANDLER int32_t handle(void) { return 0; }
