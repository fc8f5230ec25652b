export function crash() {
  throw new Error("crash: there is no host: this code does not run in Quern");
}
