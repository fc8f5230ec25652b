// Times in PostgreSQL's text format.

const SECOND: i64 = 1000000000;
const DAY: i64 = 24 * 60 * 60;

/** What parseTime returns for a text that is no time in nanoseconds. */
export const NO_TIME: i64 = i64.MIN_VALUE;

/** A timestamptz in UTC, in microseconds, of Unix nanoseconds. */
export function formatTime(nanoseconds: i64): string {
  const seconds = floor(nanoseconds, SECOND), days = floor(seconds, DAY);
  const second = seconds - days * DAY, micros = (nanoseconds - seconds * SECOND) / 1000;
  let year = 1970 + floor(days, 366); // or a later one
  while (daysOf(year + 1, 1, 1) <= days) year++;
  let month: i64 = 1;
  while (month < 12 && daysOf(year, month + 1, 1) <= days) month++;
  const day = days - daysOf(year, month, 1) + 1;
  return [pad(year, 4), pad(month, 2), pad(day, 2)].join("-") + " " +
    [pad(second / 3600, 2), pad((second / 60) % 60, 2), pad(second % 60, 2)].join(":") + "." + pad(micros, 6) + "+00";
}

/** Reads a date, a timestamp, or a timestamptz. NO_TIME for infinity, and for times before 1678 or after 2261. */
export function parseTime(text: string): i64 {
  if (text.length < 10 || text.charCodeAt(4) != 0x2d || text.charCodeAt(7) != 0x2d || text.endsWith(" BC")) return NO_TIME;
  const year = digits(text, 0, 4), month = digits(text, 5, 7), day = digits(text, 8, 10);
  if (year < 1678 || year > 2261 || month < 1 || month > 12 || day < 1 || day > 31) return NO_TIME;
  let seconds = daysOf(year, month, day) * DAY, nanos: i64 = 0;
  if (text.length > 10) {
    const hour = digits(text, 11, 13), minute = digits(text, 14, 16), second = digits(text, 17, 19);
    if (text.charCodeAt(10) != 0x20 || hour < 0 || minute < 0 || second < 0) return NO_TIME;
    seconds += hour * 3600 + minute * 60 + second;
    let at = 19;
    if (at < text.length && text.charCodeAt(at) == 0x2e) {
      const from = ++at;
      while (at < text.length && text.charCodeAt(at) >= 0x30) at++;
      nanos = digits(text.substring(from, at).padEnd(9, "0"), 0, 9);
      if (nanos < 0) return NO_TIME;
    }
    if (at < text.length) {
      const west = text.charCodeAt(at) == 0x2d;
      if (!west && text.charCodeAt(at) != 0x2b) return NO_TIME;
      for (let unit: i64 = 3600; ++at < text.length; at += 2, unit /= 60) {
        const part = digits(text, at, at + 2) * unit;
        if (part < 0) return NO_TIME;
        seconds += west ? part : -part;
      }
    }
  }
  return seconds * SECOND + nanos;
}

/** The days from 1970-01-01 to a date of the years from 1. */
function daysOf(year: i64, month: i64, day: i64): i64 {
  const y = year - 1, leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
  const ofYear = (367 * month - 362) / 12 - (month < 3 ? 0 : leap ? 1 : 2); // days before the month
  return 365 * y + y / 4 - y / 100 + y / 400 + ofYear + day - 1 - 719162;
}

/** The number in a part of a text; -1 if it is none. */
function digits(text: string, from: i32, to: i32): i64 {
  let number: i64 = 0;
  if (to > text.length) return -1;
  for (let i = from; i < to; i++) {
    const digit = text.charCodeAt(i) - 0x30;
    if (digit < 0 || digit > 9) return -1;
    number = number * 10 + digit;
  }
  return number;
}

function floor(number: i64, by: i64): i64 {
  return number / by - (number % by < 0 ? 1 : 0);
}

function pad(number: i64, size: i32): string {
  return number.toString().padStart(size, "0");
}
