package manifest

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// property is a part of a JSON Schema (draft 7), as far as manifests need it.
type property struct {
	Schema        string      `json:"$schema,omitempty"`
	Title         string      `json:"title,omitempty"`
	Description   string      `json:"description,omitempty"`
	Type          any         `json:"type,omitempty"` // a word, or several
	Enum          []string    `json:"enum,omitempty"`
	Pattern       string      `json:"pattern,omitempty"`
	MaxLength     int         `json:"maxLength,omitempty"`
	Minimum       *int64      `json:"minimum,omitempty"`
	Maximum       *int64      `json:"maximum,omitempty"`
	MinItems      int         `json:"minItems,omitempty"`
	MaxItems      int         `json:"maxItems,omitempty"`
	UniqueItems   bool        `json:"uniqueItems,omitempty"`
	Items         *property   `json:"items,omitempty"`
	Properties    properties  `json:"properties,omitempty"`
	PropertyNames *property   `json:"propertyNames,omitempty"`
	Additional    any         `json:"additionalProperties,omitempty"` // false, or a *property
	Required      []string    `json:"required,omitempty"`
	AnyOf         []*property `json:"anyOf,omitempty"`
	Not           *property   `json:"not,omitempty"`
	Examples      []any       `json:"examples,omitempty"`
}

// properties are the properties of an object, in the order in which they are shown.
type properties []named

type named struct {
	name string
	*property
}

// MarshalJSON implements json.Marshaler.
func (p properties) MarshalJSON() ([]byte, error) {
	var out bytes.Buffer
	out.WriteByte('{')
	for i, one := range p {
		if i > 0 {
			out.WriteByte(',')
		}
		value, err := json.Marshal(one.property)
		if err != nil {
			return nil, err
		}
		out.WriteString(strconv.Quote(one.name) + ":")
		out.Write(value)
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}

// The patterns of texts. Sizes are as in package units. Durations are Go's, and can have days in front.
const (
	wordPattern     = `^[!-~]{1,128}$`
	sizePattern     = `^[0-9]+(B|kB|KiB|MB|MiB|GB|GiB|TiB)$`
	durationPattern = `^([0-9]+d)?\+?(([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))*$`
	variablePattern = `^[A-Za-z_][A-Za-z0-9_]{0,127}$`
	secretPattern   = `^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,126}$`
	hostPattern     = `^https?://[^/?#\\@]+$`
	urlPattern      = `^https?://`
	methodPattern   = `^[^a-z ]{1,32}$`
	fromPattern     = `^[^/]+(/[^/]+)*$`
	toPattern       = `^(/[^/]+)+$`
	queuePattern    = `^([!-)+-~]+\*?|\*)[!-)+-~]*$`
)

// scalarTypes are the types that a text without quotes can have in YAML.
var scalarTypes = []string{"string", "number", "boolean"}

func textProperty(pattern string, examples ...any) *property {
	return &property{Type: scalarTypes, Pattern: pattern, Examples: examples}
}

func stringProperty(pattern string, examples ...any) *property {
	return &property{Type: "string", Pattern: pattern, Examples: examples}
}

func numberProperty(minimum, maximum int64) *property {
	return &property{Type: "integer", Minimum: &minimum, Maximum: &maximum}
}

func listProperty(most int, item *property) *property {
	return &property{Type: "array", MaxItems: most, Items: item}
}

func objectProperty(keys []key) *property {
	p := &property{Type: "object", Additional: false}
	for _, k := range keys {
		k.schema.Description = k.about
		p.Properties = append(p.Properties, named{k.name, k.schema})
		if k.required {
			p.Required = append(p.Required, k.name)
		}
	}
	return p
}

// names makes the property a list of different names with at least minItems entries.
func (p *property) names(minItems int) *property {
	p.MinItems, p.UniqueItems = minItems, true
	return p
}
