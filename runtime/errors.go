package runtime

import "strings"

// Refusal is one reason why a file cannot be served.
type Refusal struct {
	// What is wrong: "unknown import env.emscripten_memcpy_big".
	What string
	// Where in the file: "import 3", "code section at byte 1024". Empty if it is the whole file.
	Where string
	// Remedy says what to do about it.
	Remedy string
}

// String is "WHAT (WHERE): REMEDY".
func (r Refusal) String() string {
	if r.Where == "" {
		return r.What + ": " + r.Remedy
	}
	return r.What + " (" + r.Where + "): " + r.Remedy
}

// RefusedError holds every reason why a file is refused, in the order of the file.
type RefusedError struct {
	Refusals []Refusal
}

// Error joins the refusals with semicolons.
func (e *RefusedError) Error() string {
	texts := make([]string, len(e.Refusals))
	for i, refusal := range e.Refusals {
		texts[i] = refusal.String()
	}
	return strings.Join(texts, "; ")
}

func refuse(what, where, remedy string) *RefusedError {
	return &RefusedError{Refusals: []Refusal{{What: what, Where: where, Remedy: remedy}}}
}

// faultError is an error of the host itself. As the cause of a run it makes the outcome a HostFault.
type faultError struct{ err error }

func (e *faultError) Error() string { return e.err.Error() }
