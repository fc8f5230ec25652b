// wordcount: text in, a JSON object out: how many lines, words, characters and bytes, and the ten
// most frequent words. A Quern plugin in plain C, without any SDK: standard input is the task,
// standard output its result, standard error its log, and the exit status what became of it.
#include <errno.h>
#include <locale.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>
#include <wctype.h>

enum {
  EXIT_FAILED = 1,   // failed; another attempt may do better
  EXIT_DATAERR = 65, // failed for good: the same input would fail again
};

enum { LONGEST = 64, TOP = 10 };

// An entry of the table. A word longer than LONGEST characters counts as its beginning.
struct entry {
  wchar_t *word; // in lower case; NULL: a free place
  long count;
};

// Open addressing: a word sits at the place that its hash names, or at the next free one.
struct table {
  struct entry *entries;
  size_t size; // a power of two, or 0 before the first word
  size_t used; // at most three quarters of size
};

static void fail(int status, const char *message) {
  fprintf(stderr, "%s\n", message);
  exit(status);
}

static void *must(void *memory) {
  if (memory == NULL)
    fail(EXIT_FAILED, "out of memory: the text has too many different words for limits.memory in the manifest");
  return memory;
}

static struct entry *find(const struct table *t, const wchar_t *word) {
  uint32_t hash = 2166136261u; // FNV-1a
  for (const wchar_t *c = word; *c != 0; c++)
    hash = (hash ^ (uint32_t)*c) * 16777619u;
  size_t i = hash & (t->size - 1);
  while (t->entries[i].word != NULL && wcscmp(t->entries[i].word, word) != 0)
    i = (i + 1) & (t->size - 1);
  return &t->entries[i];
}

static void grow(struct table *t) {
  struct table larger = {.size = t->size == 0 ? 1024 : t->size * 2, .used = t->used};
  larger.entries = must(calloc(larger.size, sizeof *larger.entries));
  for (size_t i = 0; i < t->size; i++)
    if (t->entries[i].word != NULL)
      *find(&larger, t->entries[i].word) = t->entries[i];
  free(t->entries);
  *t = larger;
}

static void count(struct table *t, const wchar_t *word) {
  if (t->used >= t->size / 4 * 3)
    grow(t);
  struct entry *e = find(t, word);
  if (e->word == NULL) {
    e->word = must(wcsdup(word));
    t->used++;
  }
  e->count++;
}

// The more frequent word first; of two equally frequent ones the one that the alphabet puts first.
// Free places, whose count is 0, come last.
static int compare(const void *left, const void *right) {
  const struct entry *a = left, *b = right;
  if (a->count != b->count)
    return a->count < b->count ? 1 : -1;
  return a->count == 0 ? 0 : wcscmp(a->word, b->word);
}

// An apostrophe belongs to a word that it stands within.
static bool within(wint_t c) { return iswalnum(c) || c == L'\'' || c == L'\u2019'; }

static int bytes_of(wint_t c) { return c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4; }

struct totals {
  long lines, words, characters, bytes;
};

// Counts the word and forgets it. A quote that ended it is no apostrophe: it is dropped.
static void end_word(wchar_t *word, size_t *length, struct table *table, struct totals *totals) {
  while (*length > 0 && !iswalnum((wint_t)word[*length - 1]))
    --*length;
  if (*length == 0)
    return;
  word[*length] = 0;
  count(table, word);
  totals->words++;
  *length = 0;
}

static void read_text(struct table *table, struct totals *totals) {
  wchar_t word[LONGEST + 1];
  size_t length = 0;
  errno = 0;
  for (wint_t c; (c = getwchar()) != (wint_t)WEOF;) {
    totals->characters++;
    totals->bytes += bytes_of(c);
    totals->lines += c == L'\n';
    if (!(length == 0 ? iswalnum(c) : within(c)))
      end_word(word, &length, table, totals);
    else if (length < LONGEST)
      word[length++] = (wchar_t)towlower(c);
  }
  if (errno == EILSEQ)
    fail(EXIT_DATAERR, "the text is not UTF-8: convert it, for example with iconv -t UTF-8");
  if (ferror(stdin))
    fail(EXIT_FAILED, strerror(errno));
  end_word(word, &length, table, totals);
}

int main(void) {
  setlocale(LC_CTYPE, "C.UTF-8"); // what getwchar decodes

  struct table table = {0};
  struct totals totals = {0};
  read_text(&table, &totals);
  qsort(table.entries, table.size, sizeof *table.entries, compare);

  printf("{\"lines\":%ld,\"words\":%ld,\"characters\":%ld,\"bytes\":%ld,\"top\":[",
         totals.lines, totals.words, totals.characters, totals.bytes);
  for (size_t i = 0; i < TOP && i < table.used; i++) // letters, digits, apostrophes: nothing that JSON escapes
    printf("%s{\"word\":\"%ls\",\"count\":%ld}", i == 0 ? "" : ",", table.entries[i].word, table.entries[i].count);
  printf("]}\n");
  return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILED;
}
