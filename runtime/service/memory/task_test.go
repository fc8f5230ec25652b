package memory

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/quern-project/quern/runtime/service"
)

func TestCheckpoint(t *testing.T) {
	t.Parallel()
	c := &Checkpoint{}
	if c.Value() != nil {
		t.Errorf("at first it is %q", c.Value())
	}
	for _, value := range []string{"first", "", strings.Repeat("x", 1<<20)} {
		if err := c.Save(t.Context(), []byte(value)); err != nil || string(c.Value()) != value || c.Value() == nil {
			t.Errorf("%.20q: %.20q, %v", value, c.Value(), err)
		}
	}
	if err := c.Save(t.Context(), make([]byte, 1<<20+1)); !errors.Is(err, service.ErrTooBig) || len(c.Value()) != 1<<20 {
		t.Errorf("%d bytes, %v", len(c.Value()), err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Save(ended, nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestSecrets(t *testing.T) {
	t.Parallel()
	s := Secrets{Names: []string{"key", "missing"}, Read: func(name string) ([]byte, error) {
		if name == "missing" {
			return nil, service.ErrNotFound
		}
		return []byte(name[:1]), nil
	}}
	if value, err := s.Secret(t.Context(), "key"); string(value) != "k" || err != nil {
		t.Errorf("%q, %v", value, err)
	}
	if _, err := s.Secret(t.Context(), "missing"); !errors.Is(err, service.ErrNotFound) {
		t.Error(err)
	}
	if _, err := s.Secret(t.Context(), "other"); !errors.Is(err, service.ErrDenied) || !strings.Contains(err.Error(), "capabilities.secrets") {
		t.Error(err)
	}
}

func TestEnqueue(t *testing.T) {
	t.Parallel()
	e := NewEnqueuer("one", func(child service.Child) error {
		if child.Queue != "mail" {
			return service.ErrDenied
		}
		return nil
	})
	five := 5
	for _, test := range []struct {
		name  string
		child service.Child
		id    string
		err   error
	}{
		{"First", service.Child{Queue: "mail", Body: []byte("a")}, "one-1", nil},
		{"Second", service.Child{Queue: "mail", Body: []byte("a"), Priority: &five}, "one-2", nil},
		{"ErrDenied", service.Child{Queue: "bills"}, "", service.ErrDenied},
		{"ID", service.Child{Queue: "mail", ID: "mine"}, "mine", nil},
		{"Fourth", service.Child{Queue: "mail"}, "one-4", nil},
	} {
		if id, err := e.Enqueue(t.Context(), test.child); id != test.id || !errors.Is(err, test.err) {
			t.Errorf("%s: %q, %v", test.name, id, err)
		}
	}
	children := e.Children()
	if len(children) != 4 || children[0].ID != "one-1" || string(children[0].Body) != "a" || *children[1].Priority != 5 || children[2].ID != "mine" {
		t.Errorf("%+v", children)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := e.Enqueue(ended, service.Child{Queue: "mail"}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
