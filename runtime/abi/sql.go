package abi

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/tetratelabs/wazero/api"

	"github.com/quern-project/quern/runtime/service"
)

const (
	maxStatement = 1 << 20
	// maxParameters is the maximum number of parameters of a statement, as in PostgreSQL's protocol.
	maxParameters = 65535
)

// parseValues reads parameters: each is 1 byte of kind, 4 bytes of length, and the data.
func parseValues(data []byte) ([]service.SQLValue, error) {
	var all []service.SQLValue
	for rest := data; len(rest) > 0; {
		if len(rest) < 5 {
			return nil, errors.New("a parameter is cut off")
		}
		value := service.SQLValue{Kind: service.SQLKind(rest[0])}
		n := uint64(binary.LittleEndian.Uint32(rest[1:]))
		rest = rest[5:]
		switch {
		case len(all) == maxParameters:
			return nil, fmt.Errorf("more than %d parameters", maxParameters)
		case value.Kind > service.SQLBytes:
			return nil, fmt.Errorf("parameter %d is of kind %d: use 0 (NULL), 1 (text) or 2 (bytes)", len(all)+1, value.Kind)
		case value.Kind == service.SQLNull && n > 0:
			return nil, fmt.Errorf("parameter %d is NULL and has a length", len(all)+1)
		case n > uint64(len(rest)):
			return nil, errors.New("a parameter is cut off")
		}
		if value.Kind != service.SQLNull {
			value.Data = rest[:n:n]
		}
		all, rest = append(all, value), rest[n:]
	}
	return all, nil
}

// statement reads a statement. One that is not UTF-8, or has a NUL byte, is refused with EINVAL.
func (a *reader) statement() string {
	text := string(a.bytes(maxStatement))
	if a.wrong == errnoSuccess && (!utf8.ValidString(text) || strings.ContainsRune(text, 0)) {
		a.wrong = a.system.invalid("a statement that is no UTF-8, or has a NUL byte")
	}
	return text
}

// sql implements sql(database, length, statement, length, parameters, length), which fills the slot with the answer.
func (s *System) sql(mem api.Memory, a []uint64) errno {
	in := s.reader(mem, a)
	database, statement, list := in.name(), in.statement(), in.bytes(maxBody)
	if in.wrong != errnoSuccess {
		return in.wrong
	}
	parameters, err := parseValues(list)
	if err != nil {
		return s.invalid("%w", err)
	}
	return fetch(in, "sql", s.Services.SQL != nil, func(ctx context.Context) ([]byte, error) {
		return s.Services.SQL.Query(ctx, database, statement, parameters)
	})
}

// sqlCommit implements sql_commit(database, length, step, length, value, length), which fills the slot with the answer.
func (s *System) sqlCommit(mem api.Memory, a []uint64) errno {
	in := s.reader(mem, a)
	database, step, value := in.name(), in.name(), in.bytes(maxValue)
	return fetch(in, "sql_commit", s.Services.SQL != nil, func(ctx context.Context) ([]byte, error) {
		return s.Services.SQL.Commit(ctx, database, step, value)
	})
}

// sqlRollback implements sql_rollback(database, length).
func (s *System) sqlRollback(mem api.Memory, a []uint64) errno {
	in := s.reader(mem, a)
	database := in.name()
	_, answer := ask(in, "sql_rollback", s.Services.SQL != nil, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, s.Services.SQL.Rollback(ctx, database)
	})
	return answer
}

// sqlStep implements sql_step(database, length, step, length), which fills the slot.
func (s *System) sqlStep(mem api.Memory, a []uint64) errno {
	in := s.reader(mem, a)
	database, step := in.name(), in.name()
	return fetch(in, "sql_step", s.Services.SQL != nil, func(ctx context.Context) ([]byte, error) {
		return s.Services.SQL.Step(ctx, database, step)
	})
}
