// What the functions of the SDK refuse: arguments and options that they do not take.

export const quoted = (value) => {
  try {
    return JSON.stringify(value) ?? String(value);
  } catch {
    return String(value);
  }
};

// Returns the function f, which refuses fewer arguments than least and more than most. usage shows its call.
export function taking(least, most, usage, f) {
  function checked(...given) {
    if (given.length >= least && given.length <= most) return Reflect.apply(f, this, given);
    throw new TypeError(`${usage.slice(0, usage.lastIndexOf("("))}: ${given.length} ${given.length === 1 ? "argument" : "arguments"}: write ${usage}`);
  }
  return Object.defineProperty(checked, "name", { value: f.name });
}

// Returns options, an empty object for undefined. It refuses what is no object, and names that are not known.
export function optionsOf(call, options, known) {
  if (options === undefined) return {};
  if (typeof options !== "object" || options === null) throw new TypeError(`${call}: options ${quoted(options)}: use an object with ${known.join(", ")}`);
  for (const name of Object.keys(options)) {
    if (!known.includes(name)) throw new TypeError(`${call}: ${name}: options are ${known.join(", ")}`);
  }
  return options;
}
