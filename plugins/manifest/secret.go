package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Secret says where to find a secret. Exactly one of its exported fields is not "".
type Secret struct {
	// Env is a variable of the host's environment.
	Env string
	// File is the path of a file with the secret, without the newline at the file's end. The file is read anew for each
	// task.
	File string
	// Value is the secret itself.
	Value string

	line int
}

// MaxSecret bounds the bytes of a secret.
const MaxSecret = 64 << 10

var (
	// ErrNoSecret means that there is no secret where one should be.
	ErrNoSecret = errors.New("there is no such secret")
	// ErrSecretTooBig means that a secret has more than MaxSecret bytes.
	ErrSecretTooBig = fmt.Errorf("the secret has more than %d bytes", MaxSecret)
)

// noSecret is a Fault that also wraps ErrNoSecret.
type noSecret struct{ *Fault }

func (e noSecret) Unwrap() []error { return []error{e.Fault, ErrNoSecret} }

// Read returns the secret as it is now. The error wraps ErrNoSecret if there is none.
func (s Secret) Read() ([]byte, error) {
	switch {
	case s.Value != "":
		return []byte(s.Value), nil
	case s.Env != "":
		value := os.Getenv(s.Env)
		if value == "" {
			return nil, noSecret{&Fault{"the variable " + s.Env + " is not set", "set it, or remove the secret"}}
		}
		return []byte(value), nil
	}
	file, err := open(s.File)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, noSecret{&Fault{"there is no file " + s.File, "write the secret into it, or remove the secret"}}
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", s.File, Cause(err))
	}
	defer file.Close()
	return ReadSecret(file)
}

// ReadSecret reads a secret from its file. It removes the last newline, which editors add, and does not close the file.
func ReadSecret(file *os.File) ([]byte, error) {
	value, _, err := read(file, MaxSecret+2)
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", file.Name(), err)
	}
	value = bytes.TrimSuffix(value, []byte("\n"))
	if len(value) > MaxSecret {
		return nil, ErrSecretTooBig
	}
	return value, nil
}
