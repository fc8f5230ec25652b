// Handler failing is count, but that its first attempt fails at the worst moment: when all is done.

#include "quern.h"

#undef QUERN_HANDLER
#define QUERN_HANDLER static
#define handle count
#include "../count/count.c"
#undef handle

__attribute__((export_name("quern_handle"))) int32_t handle(void) {
  int32_t status = count();
  if (status == QUERN_COMPLETE && quern_number(QUERN_TASK_ATTEMPT) == 1) return quern_fail(QUERN_FAILED, "the first attempt");
  return status;
}
