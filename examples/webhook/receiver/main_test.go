package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/quern-project/quern/examples/webhook/signature"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const keyText = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

func TestRun(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte(keyText+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	key, err := signature.ParseKey(keyText)
	if err != nil {
		t.Fatal(err)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	out, in := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, []string{"-listen", "127.0.0.1:0", "-key", file, "-status", "503", "-retry-after", "7"}, in, io.Discard)
		in.Close()
	}()
	lines := bufio.NewReader(out)
	url := strings.TrimSpace(strings.TrimPrefix(line(t, lines), "receiving at "))

	now := time.Now()
	for _, tt := range []struct {
		signature, said string
		status          int
	}{
		{key.Sign("id 1", now, []byte("{}")), "id 1: {}\n", 503},
		{"v1,none", "id 1: refused: Webhook-Signature is not by this key, or not of this body\n", 401},
	} {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		request.Close = true
		request.Header.Set(signature.HeaderID, "id 1")
		request.Header.Set(signature.HeaderTimestamp, strconv.FormatInt(now.Unix(), 10))
		request.Header.Set(signature.HeaderSignature, tt.signature)
		answered := make(chan string, 1)
		go func() { answered <- line(t, lines) }() // it prints before it answers
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if said := <-answered; said != tt.said || response.StatusCode != tt.status {
			t.Errorf("status %d and %q, want %d and %q", response.StatusCode, said, tt.status, tt.said)
		}
		if got := response.Header.Get("Retry-After"); (got == "7") != (tt.status == 503) {
			t.Errorf("status %d with Retry-After %q", tt.status, got)
		}
	}
	interrupt()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestRunErrors(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte("swordfish"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"no such file":      {"-key", file + "s"},
		"key: no key: ":     {"-key", file},
		"flag provided but": {"-port", "80"},
	} {
		if err := run(t.Context(), args, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q in it", args, err, want)
		}
	}
}

func line(t *testing.T, lines *bufio.Reader) string {
	t.Helper()
	text, err := lines.ReadString('\n')
	if err != nil {
		t.Error(err)
	}
	return text
}
