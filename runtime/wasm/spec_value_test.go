package wasm

import (
	"encoding/json"
	"strconv"
	"strings"
)

// value is an argument or an expected result of a script.
type value struct {
	Type     string
	LaneType string `json:"lane_type"`
	Value    scalars
}

// scalars are the decimal numbers of a value: one, or the lanes of a vector. None stands for any reference.
type scalars []string

// UnmarshalJSON implements json.Unmarshaler.
func (s *scalars) UnmarshalJSON(text []byte) error {
	if text[0] == '[' {
		return json.Unmarshal(text, (*[]string)(s))
	}
	*s = make(scalars, 1)
	return json.Unmarshal(text, &(*s)[0])
}

// lane is the type and the width in bits of each scalar.
func (v value) lane() (of string, bits int) {
	of = v.Type
	if of == "v128" {
		of = v.LaneType
	}
	switch of {
	case "i8":
		return of, 8
	case "i16":
		return of, 16
	case "i32", "f32":
		return of, 32
	default:
		return of, 64
	}
}

// arguments are the words that wazero takes for a value.
func (v value) arguments() []uint64 {
	_, bits := v.lane()
	words := make([]uint64, max(1, len(v.Value)*bits/64))
	for i := range v.Value {
		words[i*bits/64] |= v.word(i) << (i * bits % 64)
	}
	return words
}

// word is one scalar, which is no NaN by name.
func (v value) word(i int) uint64 {
	text := v.Value[i]
	if text == "null" {
		return 0
	}
	_, bits := v.lane()
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		var signed int64
		if signed, err = strconv.ParseInt(text, 10, 64); err != nil {
			panic(err)
		}
		n = uint64(signed) & (1<<bits - 1)
	}
	if v.Type == "externref" || v.Type == "funcref" {
		n++ // wazero's null is 0
	}
	return n
}

// matches compares words that wazero returned with an expected value.
func (v value) matches(words []uint64) bool {
	if len(v.Value) == 0 { // any reference
		return true
	}
	of, bits := v.lane()
	for i, text := range v.Value {
		got := words[i*bits/64] >> (i * bits % 64) & (1<<bits - 1)
		if strings.HasPrefix(text, "nan:") {
			if !isNaN(got, of, text == "nan:canonical") {
				return false
			}
		} else if got != v.word(i) {
			return false
		}
	}
	return true
}

// isNaN tells whether bits are an arithmetic NaN, whose payload begins with a 1, or the canonical one, where the rest
// is 0. The sign may be either. Source: core specification 2.0, section 2.2.3.
func isNaN(bits uint64, of string, canonical bool) bool {
	sign, quiet := uint64(1)<<31, uint64(0x7fc00000)
	if of == "f64" {
		sign, quiet = 1<<63, 0x7ff8000000000000
	}
	bits &^= sign
	if canonical {
		return bits == quiet
	}
	return bits&quiet == quiet
}
