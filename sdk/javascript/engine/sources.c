#include "sources.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

// ../positions.go describes the table.
enum { HEAD = 12, ENTRY = 12, MOST_BLOCK = 4 << 10, CHUNK = 4 << 10 };
static const char magic[8] = "quernpos";

static bool read_at(int file, uint32_t at, void *to, size_t size) {
	return lseek(file, at, SEEK_SET) == (off_t)at && read(file, to, size) == (ssize_t)size;
}

static uint32_t number_at(const uint8_t *data) {
	return data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24;
}

typedef struct {
	uint32_t row, column, at;
} Entry;

static bool entry_of(int file, uint32_t n, Entry *e) {
	uint8_t data[ENTRY];
	if (!read_at(file, HEAD + n * ENTRY, data, sizeof data)) return false;
	*e = (Entry){number_at(data), number_at(data + 4), number_at(data + 8)};
	return true;
}

static bool is_after(uint32_t row, uint32_t column, uint32_t other_row, uint32_t other_column) {
	return row > other_row || (row == other_row && column > other_column);
}

// Reads a number of 7 bits a byte, the lowest first. The last byte has no highest bit.
static uint32_t varint(const uint8_t **at, const uint8_t *end) {
	uint32_t number = 0;
	for (int shift = 0; *at < end && shift < 35; shift += 7) {
		uint8_t byte = *(*at)++;
		number |= (uint32_t)(byte & 127) << shift;
		if (byte < 128) break;
	}
	return number;
}

static uint32_t difference(const uint8_t **at, const uint8_t *end) {
	uint32_t number = varint(at, end);
	return number >> 1 ^ -(number & 1);
}

static bool find(int file, uint32_t row, uint32_t column, SourcePosition *found) {
	uint8_t head[HEAD], block[MOST_BLOCK];
	if (!read_at(file, 0, head, sizeof head) || memcmp(head, magic, sizeof magic) != 0) return false;
	uint32_t low = 0, high = number_at(head + sizeof magic); // the block is one of low to high - 1
	Entry e, next;
	while (high - low > 1 && high > low) {
		uint32_t middle = low + (high - low) / 2;
		if (!entry_of(file, middle, &e)) return false;
		if (is_after(e.row, e.column, row, column)) high = middle;
		else low = middle;
	}
	if (low >= high || !entry_of(file, low, &e) || !entry_of(file, low + 1, &next)) return false;
	if (next.at < e.at || next.at - e.at > sizeof block || !read_at(file, e.at, block, next.at - e.at)) return false;
	uint32_t name = 0, source_row = 0, source_column = 0, best = 0;
	bool any = false;
	for (const uint8_t *at = block, *end = block + (next.at - e.at); at < end;) {
		uint32_t rows = varint(&at, end), columns = varint(&at, end);
		e.column = rows == 0 ? e.column + columns : columns;
		e.row += rows;
		name += difference(&at, end);
		source_row += difference(&at, end);
		source_column += difference(&at, end);
		if (is_after(e.row, e.column, row, column)) break;
		any = e.row == row;
		best = name;
		found->row = source_row;
		found->column = source_column;
	}
	if (!any || lseek(file, best, SEEK_SET) != (off_t)best) return false;
	ssize_t size = read(file, found->name, sizeof found->name - 1);
	found->name[size < 0 ? 0 : size] = 0;
	return size > 0;
}

bool sources_find(const char *table, uint32_t row, uint32_t column, SourcePosition *found) {
	int file = open(table, O_RDONLY);
	if (file < 0) return false;
	bool is = find(file, row, column, found);
	close(file);
	return is;
}

int sources_around(const char *path, uint32_t row, uint32_t column, int before, int after, char *text, int *size) {
	int file = open(path, O_RDONLY);
	if (file < 0) return -1;
	char chunk[CHUNK];
	uint32_t in_row = 0;
	ssize_t read_now;
	int in_front = 0, n = 0;
	bool ascii = true, ended = false;
	while (!ended && (read_now = read(file, chunk, sizeof chunk)) > 0) {
		for (const char *at = chunk, *end = chunk + read_now; at < end && !ended;) {
			if (row > 0) { // to the next row
				const char *line = memchr(at, '\n', (size_t)(end - at));
				at = line ? line + 1 : end;
				row -= line != NULL;
				continue;
			}
			char letter = *at++;
			ended = letter == '\n' || in_row >= column + (uint32_t)after;
			if (ended) break;
			ascii &= letter >= 0;
			if (in_row++ + (uint32_t)before < column) continue;
			text[n++] = letter;
			in_front += in_row <= column;
		}
	}
	close(file);
	*size = n;
	return ascii && in_row >= column ? in_front : -1;
}
