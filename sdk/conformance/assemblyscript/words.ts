// The words of a line.

/** A number; $ before it adds the size of memory. */
export function number(word: string): i64 {
  return word.startsWith("$") ? number(word.substring(1)) + (<i64>memory.size() << 16) : I64.parseInt(word.length ? word : "0");
}

/** What a word stands for: %61 is a byte, a trailing *3 repeats what is before it, and - alone is nothing. */
export function bytes(word: string): ArrayBuffer {
  if (word == "-") return new ArrayBuffer(0);
  let times = 1;
  const star = word.lastIndexOf("*");
  if (star > 0 && star + 1 < word.length) {
    times = <i32>number(word.substring(star + 1));
    word = word.substring(0, star);
  }
  const one = new Array<u8>();
  for (let i = 0; i < word.length; i++) {
    if (word.charAt(i) == "%") {
      one.push(<u8>parseInt(word.substring(i + 1, i + 3), 16));
      i += 2;
    } else {
      one.push(<u8>word.charCodeAt(i)); // the kit writes other characters as bytes
    }
  }
  const all = new ArrayBuffer(one.length * times);
  for (let i = 0; i < times; i++) memory.copy(changetype<usize>(all) + i * one.length, one.dataStart, one.length);
  return all;
}
