/**
 * Types and comments, so that lines differ from those of the bundle.
 */
type Name = string;

export function check(name: Name): void {
  if (name.length > 0) {
  throw new TypeError(`${name} has no ink`);
  }
}
