// URL and URLSearchParams, of core-js. They are a script of their own (urlscript.js), since evaluating it takes longer than all
// the rest: it is evaluated when something uses it, and before the user's module if that may.

let made;
let making = false; // core-js looks for a URL that is there already

// Returns { URL, URLSearchParams }.
export function url() {
  if (made) return made;
  making = true;
  made = native.evaluateURL();
  making = false;
  return made;
}

// Tells whether a value is a URL.
export const isURL = (value) => made !== undefined && value instanceof made.URL;

// Makes them if a source has the words that stand for them.
export function prepare(source) {
  if (/\bURL|\bfetch\b|\bRequest\b/.test(source)) url();
}

// Defines them in globalThis, to be made at the first use.
export function install() {
  for (const name of ["URL", "URLSearchParams"]) {
    Object.defineProperty(globalThis, name, {
      get: () => (making ? undefined : url()[name]),
      set(value) { Object.defineProperty(globalThis, name, { value, writable: true, configurable: true }); },
      configurable: true,
    });
  }
}
