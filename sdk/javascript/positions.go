package javascript

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// PositionsFile is the file of a plugin that has the table of Positions.
const PositionsFile = "/app/handler.js.positions"

const (
	// positionsMagic begins a table.
	positionsMagic = "quernpos"
	// positionsBlock is the number of positions in a block, which takes 4 KiB at most. For each frame of a stack the
	// engine reads one block.
	positionsBlock = 128
	// maxSourceName is the maximum length of a source's name in bytes.
	maxSourceName = 255
)

// position is a segment of a source map. Rows and columns are counted from 0.
type position struct {
	row, column                     int // in the bundle
	source, sourceRow, sourceColumn int // source is an index into the map's sources
}

// Positions returns the table in which the engine looks up positions of a bundle. Without it each task with an error
// would decode the source map from its beginning. engine/sources.c reads the table. Numbers of fixed size are
// little-endian uint32, others are varints: unsigned, or zigzag for a difference to the position before.
//
//	magic, number of blocks
//	for each block the row and column of its first position, and its offset; at last two zeros and the end of the blocks
//	names of the sources, each with a NUL
//	blocks: for each position the rows since the one before; the columns since, or the column if it is in another row;
//	the differences of the offset of the source's name, and of row and column in the source. Before the first position
//	are the row and column of the index and zeros.
func Positions(sourceMap []byte) ([]byte, error) {
	var m struct {
		Sources    []string
		SourceRoot string
		Mappings   string
	}
	if err := json.Unmarshal(sourceMap, &m); err != nil {
		return nil, fmt.Errorf("read source map: %w", err)
	}
	positions, err := decodeMappings(m.Mappings, len(m.Sources))
	if err != nil {
		return nil, fmt.Errorf("read source map: %w", err)
	}
	blocks := slices.Collect(slices.Chunk(positions, positionsBlock))
	namesAt := len(positionsMagic) + 4 + 12*(len(blocks)+1)
	var names, body []byte
	nameAt := make([]int, len(m.Sources))
	for i, source := range m.Sources {
		nameAt[i] = namesAt + len(names)
		name := sourceName(m.SourceRoot, source)
		names = append(append(names, name[:min(len(name), maxSourceName)]...), 0)
	}
	table := binary.LittleEndian.AppendUint32([]byte(positionsMagic), uint32(len(blocks)))
	entry := func(numbers ...int) {
		for _, number := range numbers {
			table = binary.LittleEndian.AppendUint32(table, uint32(number))
		}
	}
	for _, block := range blocks {
		entry(block[0].row, block[0].column, namesAt+len(names)+len(body))
		before, nameBefore := position{row: block[0].row, column: block[0].column}, 0
		for _, p := range block {
			if p.row != before.row {
				before.column = 0
			}
			body = binary.AppendUvarint(body, uint64(p.row-before.row))
			body = binary.AppendUvarint(body, uint64(p.column-before.column))
			body = binary.AppendVarint(body, int64(nameAt[p.source]-nameBefore))
			body = binary.AppendVarint(body, int64(p.sourceRow-before.sourceRow))
			body = binary.AppendVarint(body, int64(p.sourceColumn-before.sourceColumn))
			before, nameBefore = p, nameAt[p.source]
		}
	}
	entry(0, 0, namesAt+len(names)+len(body))
	return slices.Concat(table, names, body), nil
}

var upwards = regexp.MustCompile(`^(\.{1,2}/)+`)

// sourceName is a file's name as its author knows it: without the way from the bundle to the sources.
func sourceName(root, source string) string {
	if root != "" && !strings.HasSuffix(root, "/") {
		root += "/"
	}
	return upwards.ReplaceAllString(root+source, "")
}

var errMappings = errors.New("its mappings are broken")

// maxPosition bounds rows and columns, so that they fit the table.
const maxPosition = 1 << 30

// decodeMappings decodes the mappings of a source map with that many sources: rows end with ";", segments with ",", and
// the numbers of a segment are base64 VLQs of differences to the segment before.
func decodeMappings(mappings string, sources int) (positions []position, err error) {
	var p position
	for row, segments := range strings.Split(mappings, ";") {
		p.row, p.column = row, 0
		for segment := range strings.SplitSeq(segments, ",") {
			numbers, ok := decodeSegment(segment)
			switch {
			case !ok:
				return nil, errMappings
			case len(numbers) == 0:
				continue
			case len(numbers) < 4: // without a source
				p.column += numbers[0]
				continue
			}
			before := p.column
			p.column += numbers[0]
			p.source += numbers[1]
			p.sourceRow += numbers[2]
			p.sourceColumn += numbers[3]
			if p.column < before || p.column > maxPosition || p.source < 0 || p.source >= sources ||
				min(p.sourceRow, p.sourceColumn) < 0 || max(p.sourceRow, p.sourceColumn) > maxPosition {
				return nil, errMappings
			}
			positions = append(positions, p)
		}
	}
	return positions, nil
}

const base64Digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

func decodeSegment(segment string) (numbers []int, ok bool) {
	number, shift := 0, 0
	for _, letter := range []byte(segment) {
		digit := strings.IndexByte(base64Digits, letter)
		if digit < 0 || shift > 30 {
			return nil, false
		}
		number |= digit & 31 << shift
		shift += 5
		if digit&32 != 0 {
			continue
		}
		if number&1 != 0 {
			number = -number
		}
		numbers = append(numbers, number/2)
		number, shift = 0, 0
	}
	return numbers, shift == 0
}
