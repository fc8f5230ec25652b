package runtime

import "strings"

// Refusal is one reason why a file cannot be served.
type Refusal struct {
	// What says what is wrong, such as "unknown import env.emscripten_memcpy_big".
	What string
	// Where is the place in the file, such as "import 3" or "code section at byte 1024". Empty means the whole file.
	Where string
	// Remedy says what to do about it.
	Remedy string
}

// String returns "WHAT (WHERE): REMEDY", or "WHAT: REMEDY" if Where is empty.
func (r Refusal) String() string {
	if r.Where == "" {
		return r.What + ": " + r.Remedy
	}
	return r.What + " (" + r.Where + "): " + r.Remedy
}

// RefusedError holds all reasons that were found for refusing a file.
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

// faultError is an error of the host itself. A run that has it as its cause ends in a HostFault.
type faultError struct{ err error }

func (e *faultError) Error() string { return e.err.Error() }
