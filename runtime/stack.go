package runtime

import (
	"reflect"
	"sync/atomic"

	"github.com/tetratelabs/wazero/api"
)

// stackOf is the size in bytes of the call stack that a function of a guest has grown to. wazero keeps it in a field
// that it does not export; a test holds it to that. Where there is no such field the size is 0.
func stackOf(f api.Function) int {
	v := reflect.ValueOf(f).Elem()
	known := stackField.Load()
	if known == nil || known.of != v.Type() {
		field, ok := v.Type().FieldByName("stack")
		if !ok || field.Type.Kind() != reflect.Slice {
			return 0
		}
		known = &fieldOf{of: v.Type(), index: field.Index}
		stackField.Store(known)
	}
	return v.FieldByIndex(known.index).Cap()
}

// fieldOf is a field of a type, which is dear to find by its name.
type fieldOf struct {
	of    reflect.Type
	index []int
}

var stackField atomic.Pointer[fieldOf]
