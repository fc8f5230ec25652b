export const console = { log(...a) { native.log(2, a.join(" ")); } };
