// Completes.
export function quern_handle(): i32 {
  return 0;
}
