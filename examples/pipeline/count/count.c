// Handler count is the middle of the pipeline: it counts lines, words and bytes of a part of a document, keeps the numbers, and
// has the document merged when those of all its parts are there. A part is a line with its number, how many there are and the name
// of the run of split that made them, and behind it the text.

#include "quern.h"

#define BUCKET QUERN_TEXT("parts")

enum {
  MOST_PARTS = 256, // of a document; maxParts of split says why
  LONGEST_ID = 128,
  LONGEST_RUN = 32,
  LONGEST_NUMBER = 10,
  KEPT = 7 * 24 * 3600 * 1000 // milliseconds: long enough for all parts of a document, however often they are tried
};

// place is where the part lies in its document.
struct place {
  char document[LONGEST_ID + 1];
  uint32_t document_size;
  char run[LONGEST_RUN];
  uint32_t run_size;
  int32_t part, parts; // the first one is 1
  int32_t begin;       // of the text in the input
};

// fail ends the task with a text that names a function of quern_v1 and its answer. While Redis is away no attempt is used up.
static int32_t fail(const char *function, int32_t answer) {
  char room[100];
  quern_builder why = quern_build(room, sizeof room);
  quern_add(&why, function, quern_length(function));
  quern_add(&why, QUERN_TEXT(" answered "));
  quern_add_number(&why, answer);
  quern_error_set(QUERN_VIEW(why));
  return answer == QUERN_EAGAIN ? QUERN_RETRY : QUERN_FAILED;
}

// number reads decimal digits and what ends them; -1 if there are none.
static int32_t number(const char *text, int32_t size, int32_t *at, char end) {
  int32_t n = 0, begin = *at;
  while (*at < size && text[*at] >= '0' && text[*at] <= '9' && n <= MOST_PARTS) n = n * 10 + text[(*at)++] - '0';
  return *at > begin && *at < size && text[(*at)++] == end ? n : -1;
}

// find_run reads what is left of the first line. It is 0 if that is no name.
static int find_run(struct place *p, const char *line, int32_t size) {
  p->run_size = 0;
  for (; p->begin < size && line[p->begin] != '\n'; p->begin++) {
    if (line[p->begin] <= ' ' || p->run_size == LONGEST_RUN) return 0;
    p->run[p->run_size++] = line[p->begin];
  }
  return p->run_size > 0 && p->begin++ < size;
}

// find reads the task's first line. The document is known by the ID of the task that has split it. It is 0 for a task that was
// not enqueued by split.
static int find(struct place *p) {
  char line[2 * LONGEST_NUMBER + LONGEST_RUN];
  int32_t size = quern_input_read(0, line, sizeof line);
  p->begin = 0;
  p->part = number(line, size, &p->begin, ' ');
  p->parts = number(line, size, &p->begin, ' ');
  if (!find_run(p, line, size)) return 0;
  size = quern_slot(quern_task_text(QUERN_TASK_PARENT), p->document, sizeof p->document);
  p->document_size = size > 0 ? (uint32_t)size : 0;
  return size > 0 && p->part >= 1 && p->part <= p->parts && p->parts <= MOST_PARTS;
}

// counted writes the numbers of the text, with spaces between.
static void counted(const struct place *p, quern_builder *to) {
  static char piece[64 << 10];
  int64_t lines = 0, words = 0, bytes = 0;
  int inside = 0; // of a word
  for (int32_t at = p->begin, n; (n = quern_input_read(at, piece, sizeof piece)) > 0; at += n) {
    for (int32_t i = 0; i < n; i++) {
      int space = piece[i] == ' ' || (piece[i] >= '\t' && piece[i] <= '\r');
      lines += piece[i] == '\n';
      words += !space && !inside;
      inside = !space;
    }
    bytes += n;
  }
  quern_add_number(to, lines);
  quern_add(to, " ", 1);
  quern_add_number(to, words);
  quern_add(to, " ", 1);
  quern_add_number(to, bytes);
}

// begin_key begins a key of the document's: a space is in no ID, so it is no other document's. With the run in it it is none that
// an earlier document of the same ID has left.
static void begin_key(quern_builder *key, const struct place *p) {
  quern_add(key, p->document, p->document_size);
  quern_add(key, " ", 1);
  quern_add(key, p->run, p->run_size);
  quern_add(key, " ", 1);
}

// kept is how many parts of the run have their numbers in the bucket.
static int32_t kept(const struct place *p) {
  static char room[MOST_PARTS * QUERN_LISTED_KEY];
  char prefix[LONGEST_ID + LONGEST_RUN + 2];
  quern_builder b = quern_build(prefix, sizeof prefix);
  begin_key(&b, p);
  int32_t n = 0, size = quern_slot(quern_kv_list(BUCKET, QUERN_VIEW(b), NULL, 0, MOST_PARTS), room, sizeof room);
  if (size < 0) return size;
  quern_view list = quern_view_of(room, (uint32_t)size), key;
  while (quern_next_key(&list, &key)) n++;
  return n;
}

// report enqueues the task that merges. It has the same ID whoever enqueues it, so there is one, however many do.
static int32_t report(const struct place *p) {
  char id[LONGEST_ID + 10], body[500], options[700];
  quern_builder name = quern_build(id, sizeof id);
  quern_add(&name, p->document, p->document_size);
  quern_add(&name, QUERN_TEXT(".report"));

  quern_builder order = quern_object(body, sizeof body);
  quern_text_member(&order, "document", p->document, p->document_size);
  quern_text_member(&order, "run", p->run, p->run_size);
  quern_number_member(&order, "parts", p->parts);
  quern_end_object(&order);

  quern_builder more = quern_object(options, sizeof options);
  quern_text_member(&more, "id", QUERN_VIEW(name));
  quern_text_member(&more, "key", p->document, p->document_size);
  quern_end_object(&more);
  return quern_enqueue(QUERN_TEXT("merge"), QUERN_VIEW(order), QUERN_VIEW(more));
}

QUERN_HANDLER int32_t handle(void) {
  struct place p;
  if (!find(&p)) return quern_fail(QUERN_FATAL, "a task of count is enqueued by split alone");

  char key[LONGEST_ID + LONGEST_RUN + LONGEST_NUMBER + 2], numbers[64];
  quern_builder name = quern_build(key, sizeof key);
  begin_key(&name, &p);
  quern_add_number(&name, p.part);
  quern_builder value = quern_build(numbers, sizeof numbers);
  counted(&p, &value);

  // First its own numbers, then a look at all: of the parts that are counted at the same time, the last one to keep its numbers
  // sees that all are there. Others may see it, too.
  int32_t answer = quern_kv_set(BUCKET, QUERN_VIEW(name), QUERN_VIEW(value), KEPT);
  if (answer < 0) return fail("kv_set", answer);
  if ((answer = kept(&p)) < 0) return fail("kv_list", answer);
  if (answer == p.parts && (answer = report(&p)) < 0) return fail("enqueue", answer);
  return quern_output_write(QUERN_VIEW(value)) < 0 ? QUERN_FAILED : QUERN_COMPLETE;
}
