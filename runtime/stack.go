package runtime

import (
	"reflect"

	"github.com/tetratelabs/wazero/api"
)

// stackOf is the size in bytes of the call stack that a function of a guest has grown to. It is a field that
// wazero does not export: where it has another shape, the size is 0. A test holds it to wazero's present one.
func stackOf(f api.Function) int {
	v := reflect.ValueOf(f)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return 0
	}
	stack := v.Elem().FieldByName("stack")
	if !stack.IsValid() || stack.Kind() != reflect.Slice {
		return 0
	}
	return stack.Cap()
}
