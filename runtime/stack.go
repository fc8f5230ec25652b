package runtime

import (
	"reflect"
	"sync/atomic"

	"github.com/tetratelabs/wazero/api"
)

// stackOf returns the size in bytes to which the call stack of a guest's function has grown. wazero keeps the stack in
// a field that it does not export; a test checks that the field is there. Without such a field the size is 0.
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

// fieldOf is the position of a field in a type. The position is remembered, since finding a field by its name takes
// long.
type fieldOf struct {
	of    reflect.Type
	index []int
}

var stackField atomic.Pointer[fieldOf]
