// The methods that take locales, as they are for en-US. QuickJS knows no other: where one is asked for, or an option, the task's log
// says once that it has no effect.

const plain = ["en", "en-US"];
const latin = ["de", "fr", "it", "nl", "pt"]; // their letters are in the order of English
let warned = -1; // the call of the handler that has warned

// Warns where the locale is none of those, or where there is an option. Others are languages whose result is the same.
function warn(call, locales, options, others, instead) {
  if (warned === native.call()) return;
  const locale = Array.isArray(locales) ? locales[0] : locales;
  const foreign = typeof locale === "string" && !plain.includes(locale) && !others.includes(locale.split("-", 1)[0]);
  const [option] = typeof options === "object" && options !== null ? Object.keys(options) : [];
  if (!foreign && option === undefined) return;
  warned = native.call();
  const what = foreign ? `the locale ${JSON.stringify(locale)}` : `the option ${option}`;
  native.log(3, `${call}: ${what} has no effect, because a plugin has no Intl; the result is that of en-US: ${instead}`);
}

const WHOLE = /\B(?=(?:\d{3})+$)/g;

// 1234.5678 as 1,234.568
function grouped(number) {
  const text = Number.isFinite(number) && Math.abs(number) < 1e15 && !/^-?\d+(\.\d{1,3})?$/.test(number) ? String(Number(number.toFixed(3))) : String(number);
  const [, sign, whole, rest] = /^(-?)(\d+)(\.\d+)?$/.exec(text) ?? [];
  return whole === undefined ? text : sign + whole.replace(WHOLE, ",") + (rest ?? "");
}

const letters = { ß: "ss", æ: "ae", œ: "oe", ø: "o", ł: "l", đ: "d" };

// The letters of a text without accents and case, which decide first.
const folded = (text) => (/[^\0-\x7f]/.test(text) ? text.replace(/\p{M}/gu, "").toLowerCase().replace(/[ßæœøłđ]/g, (letter) => letters[letter]) : text.toLowerCase());
const order = (a, b) => (a < b ? -1 : a > b ? 1 : 0);

function compared(a, b) {
  if (a === b) return 0;
  [a, b] = [a.normalize("NFD"), b.normalize("NFD")];
  return order(folded(a), folded(b)) || order(a.toLowerCase(), b.toLowerCase()) || order(b, a); // small letters before capitals
}

const FORMAT = "format it yourself, or use a package that works without Intl";
const { toLocaleUpperCase, toLocaleLowerCase } = String.prototype;
const { valueOf } = Number.prototype, { toString } = BigInt.prototype;

const methods = {
  Number: {
    toLocaleString(locales, options) {
      const number = valueOf.call(this);
      warn("Number.toLocaleString", locales, options, [], FORMAT);
      return grouped(number);
    },
  },
  BigInt: {
    toLocaleString(locales, options) {
      const text = toString.call(this);
      warn("BigInt.toLocaleString", locales, options, [], FORMAT);
      return text.replace(WHOLE, ",");
    },
  },
  Date: Object.fromEntries(["toLocaleString", "toLocaleDateString", "toLocaleTimeString"].map((name) => {
    const method = Date.prototype[name];
    return [name, { [name](locales, options) {
      warn(`Date.${name}`, locales, options, [], "use a package such as dayjs");
      return method.call(this).replace(/(^|\/|, )0/g, "$1");
    } }[name]];
  })),
  String: {
    localeCompare(that, locales, options) {
      if (this === undefined || this === null) throw new TypeError("String.prototype.localeCompare called on null or undefined");
      warn("String.localeCompare", locales, options, latin, "compare keys of your own, such as a.toLowerCase()");
      return compared(String(this), String(that));
    },
    toLocaleUpperCase(locales) {
      if (/^(tr|az|lt|el)\b/.test(locales)) warn("String.toLocaleUpperCase", locales, undefined, [], "replace its letters yourself");
      return toLocaleUpperCase.call(this);
    },
    toLocaleLowerCase(locales) {
      if (/^(tr|az|lt)\b/.test(locales)) warn("String.toLocaleLowerCase", locales, undefined, [], "replace its letters yourself");
      return toLocaleLowerCase.call(this);
    },
  },
};

export function installLocale() {
  for (const [type, functions] of Object.entries(methods)) {
    for (const [name, value] of Object.entries(functions)) {
      Object.defineProperty(globalThis[type].prototype, name, { value, writable: true, configurable: true });
    }
  }
}
