/** Crashes the handler, as a fault of the engine would: the task fails with a trap, and no code runs after the call. */
export function crash(): never;
