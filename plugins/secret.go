package plugins

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// Secret is where to find a secret: one of the fields is not "".
type Secret struct {
	// Env is a variable of the host's environment.
	Env string
	// File holds it, but for a newline at its end. It is read anew for each task.
	File string
	// Value is the secret.
	Value string

	line int
}

// MaxSecret is how many bytes a secret may have.
const MaxSecret = 64 << 10

// ErrNoSecret says that there is no secret where one should be.
var ErrNoSecret = errors.New("there is no such secret")

// Read answers the secret as it is now. It wraps ErrNoSecret if there is none.
func (s Secret) Read() ([]byte, error) {
	switch {
	case s.Value != "":
		return []byte(s.Value), nil
	case s.Env != "":
		value := os.Getenv(s.Env)
		if value == "" {
			return nil, noSecret{&fault{"the variable " + s.Env + " is not set", "set it, or remove the secret"}}
		}
		return []byte(value), nil
	}
	file, err := os.OpenFile(s.File, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, noSecret{&fault{"there is no file " + s.File, "write the secret into it, or remove the secret"}}
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", s.File, cause(err))
	}
	defer file.Close()
	return ReadSecret(file)
}

// ReadSecret reads a secret from its file, which it does not close. A last newline, as an editor leaves it, does not
// belong to the value.
func ReadSecret(file *os.File) ([]byte, error) {
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is " + typeName(info.Mode()))
	}
	var value []byte
	if err == nil {
		value, err = io.ReadAll(io.LimitReader(file, MaxSecret+2))
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", file.Name(), cause(err))
	}
	value = bytes.TrimSuffix(value, []byte("\n"))
	if len(value) > MaxSecret {
		return nil, ErrSecretTooBig
	}
	return value, nil
}

// ErrSecretTooBig says that a secret has more than MaxSecret bytes.
var ErrSecretTooBig = fmt.Errorf("the secret has more than %d bytes", MaxSecret)

// noSecret is a fault that wraps ErrNoSecret.
type noSecret struct{ *fault }

func (e noSecret) Unwrap() []error { return []error{e.fault, ErrNoSecret} }
