package memory

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

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
	e := NewEnqueuer("one", func(queue string) bool { return strings.HasPrefix(queue, "mail") })
	five, high, low := 5, 101, -1
	for _, test := range []struct {
		name  string
		child service.Child
		id    string
		err   error
	}{
		{"First", service.Child{Queue: "mail", Body: []byte("a")}, "one-1", nil},
		{"Second", service.Child{Queue: "mail", Body: []byte("a"), Priority: &five}, "one-2", nil},
		{"ID", service.Child{Queue: "mail.bulk", ID: "mine"}, "mine", nil},
		{"SameID", service.Child{Queue: "mail", ID: "mine"}, "mine", nil},
		{"Unique", service.Child{Queue: "mail", Body: []byte("u"), Unique: &service.Unique{}}, "one-4", nil},
		{"SameBody", service.Child{Queue: "mail", Body: []byte("u"), Unique: &service.Unique{}}, "one-4", nil},
		{"OtherBody", service.Child{Queue: "mail", Body: []byte("v"), Unique: &service.Unique{}}, "one-5", nil},
		{"Key", service.Child{Queue: "mail", Unique: &service.Unique{Key: "k"}}, "one-6", nil},
		{"SameKey", service.Child{Queue: "mail", Body: []byte("w"), Unique: &service.Unique{Key: "k"}}, "one-6", nil},
		{"SameKeyElsewhere", service.Child{Queue: "mail.bulk", Unique: &service.Unique{Key: "k"}}, "one-7", nil},
		{"ErrDenied", service.Child{Queue: "bills"}, "", service.ErrDenied},
		{"ErrNoQueue", service.Child{}, "", service.ErrInvalid},
		{"ErrQueue", service.Child{Queue: "mail to ada"}, "", service.ErrInvalid},
		{"ErrLongQueue", service.Child{Queue: strings.Repeat("m", 129)}, "", service.ErrInvalid},
		{"ErrPriority", service.Child{Queue: "mail", Priority: &high}, "", service.ErrInvalid},
		{"ErrLowPriority", service.Child{Queue: "mail", Priority: &low}, "", service.ErrInvalid},
		{"ErrDelay", service.Child{Queue: "mail", Delay: -1}, "", service.ErrInvalid},
		{"ErrBoth", service.Child{Queue: "mail", Delay: 1, At: time.UnixMilli(1)}, "", service.ErrInvalid},
		{"ErrAttempts", service.Child{Queue: "mail", MaxAttempts: -1}, "", service.ErrInvalid},
		{"ErrTimeout", service.Child{Queue: "mail", Timeout: -1}, "", service.ErrInvalid},
		{"ErrUniqueFor", service.Child{Queue: "mail", Unique: &service.Unique{For: -1}}, "", service.ErrInvalid},
	} {
		if id, err := e.Enqueue(t.Context(), test.child); id != test.id || !errors.Is(err, test.err) {
			t.Errorf("%s: %q, %v", test.name, id, err)
		}
	}
	children := e.Children()
	if len(children) != 7 || children[2].ID != "mine" || children[2].Queue != "mail.bulk" || *children[1].Priority != 5 {
		t.Errorf("%+v", children)
	}
	for range 256 - len(children) {
		if _, err := e.Enqueue(t.Context(), service.Child{Queue: "mail"}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := e.Enqueue(t.Context(), service.Child{Queue: "mail"}); !errors.Is(err, service.ErrLimit) {
		t.Errorf("over the limit: %v", err)
	}
	if id, err := e.Enqueue(t.Context(), service.Child{Queue: "mail", ID: "mine"}); id != "mine" || err != nil {
		t.Errorf("over the limit, and there already: %q, %v", id, err)
	}
}
