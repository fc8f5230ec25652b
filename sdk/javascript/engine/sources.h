// Positions of the bundle /app/handler.js in the user's sources, and its text.
#ifndef SOURCES_H
#define SOURCES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// A position in a source; rows and columns are counted from 0.
typedef struct {
	char name[256];
	uint32_t row, column;
} SourcePosition;

// Finds the source of a position of the bundle in the table of positions.go. It reads a few hundred bytes. False if
// there is no table, or it has no such position.
bool sources_find(const char *table, uint32_t row, uint32_t column, SourcePosition *found);

// Copies up to before bytes in front of a position in a file and up to after bytes behind it, all of one row. Returns
// the number of bytes in front, and writes that of all to size. -1 if the row has no such column or is not ASCII.
int sources_around(const char *file, uint32_t row, uint32_t column, int before, int after, char *text, int *size);

#endif
