package manifest

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// asJSON returns a value as JSON. Numbers keep their written digits. Texts, and what YAML takes for a time, become
// strings as they were written. If JSON cannot express the value, asJSON returns an error.
func asJSON(n *yaml.Node) ([]byte, error) { return appendJSON(nil, n) }

func appendJSON(text []byte, n *yaml.Node) (_ []byte, err error) {
	switch n.Kind {
	case yaml.SequenceNode:
		text = append(text, '[')
		for i, entry := range n.Content {
			if i > 0 {
				text = append(text, ',')
			}
			if text, err = appendJSON(text, entry); err != nil {
				return nil, err
			}
		}
		return append(text, ']'), nil
	case yaml.MappingNode:
		members := make([]int, len(n.Content)/2)
		for i := range members {
			members[i] = 2 * i
		}
		slices.SortFunc(members, func(a, b int) int { return strings.Compare(n.Content[a].Value, n.Content[b].Value) })
		text = append(text, '{')
		for i, at := range members {
			name := n.Content[at]
			if name.Kind != yaml.ScalarNode || name.ShortTag() != "!!str" && name.ShortTag() != "!!timestamp" {
				return nil, fmt.Errorf("has the key %s, which is no text", Quote(name.Value))
			}
			if i > 0 {
				text = append(text, ',')
			}
			text = append(appendText(text, name.Value), ':')
			if text, err = appendJSON(text, n.Content[at+1]); err != nil {
				return nil, err
			}
		}
		return append(text, '}'), nil
	}
	switch tag := n.ShortTag(); {
	case tag == "!!null":
		return append(text, "null"...), nil
	case tag == "!!bool":
		var is bool
		err = n.Decode(&is)
		return strconv.AppendBool(text, is), err
	case tag == "!!int" || tag == "!!float" || tag == "!!str" && n.Style == 0 && isNumber(n.Value):
		number, err := numberOf(n)
		return append(text, number...), err
	case tag == "!!str" || tag == "!!timestamp":
		return appendText(text, n.Value), nil
	case tag == "!!binary":
		return nil, fmt.Errorf("has bytes (!!binary), for which JSON has no form")
	}
	return nil, fmt.Errorf("has the tag %s, for which JSON has no form", Quote(n.Tag))
}

func appendText(text []byte, value string) []byte {
	quoted, _ := json.Marshal(value) // never fails for a string
	return append(text, quoted...)
}

// isNumber reports whether a text is a number in JSON. YAML takes 1e400, which no double can hold, for a text.
func isNumber(text string) bool {
	return text != "" && (text[0] == '-' || text[0] >= '0' && text[0] <= '9') && json.Valid([]byte(text))
}

// numberOf returns a number as JSON: with the digits that were written if JSON has that notation, else in decimal.
func numberOf(n *yaml.Node) (string, error) {
	text := strings.TrimPrefix(n.Value, "+")
	if sign := strings.TrimSuffix(text, strings.TrimLeft(text, "-")); strings.HasPrefix(text[len(sign):], ".") {
		text = sign + "0" + text[len(sign):]
	}
	if isNumber(text) {
		return text, nil
	}
	var signed int64
	var unsigned uint64
	switch { // in another notation, such as 0x1f or 1_000
	case n.ShortTag() == "!!int" && n.Decode(&signed) == nil:
		return strconv.FormatInt(signed, 10), nil
	case n.ShortTag() == "!!int" && n.Decode(&unsigned) == nil:
		return strconv.FormatUint(unsigned, 10), nil
	}
	return "", fmt.Errorf("has the number %s, for which JSON has no form", Quote(n.Value))
}

// payload reads the parameters of a task: a text as it is, bytes from !!binary, or any other value as JSON.
func (d *decoder) payload(n node) []byte {
	text, err := []byte(n.Value), error(nil)
	switch tag := n.ShortTag(); {
	case n.Kind == yaml.ScalarNode && tag == "!!binary":
		text, err = base64.StdEncoding.DecodeString(strings.Join(strings.Fields(n.Value), ""))
	case n.Kind != yaml.ScalarNode || tag != "!!str" && tag != "!!timestamp":
		text, err = asJSON(n.Node)
	}
	if err != nil {
		d.wrong(n, "cannot be written as JSON: it "+err.Error(), "write a text, or a mapping with texts as keys")
		return nil
	}
	if len(text) > maxTaskPayload {
		d.wrong(n, fmt.Sprintf("has %d bytes", len(text)), fmt.Sprintf("write at most %d", maxTaskPayload))
	}
	return text
}
