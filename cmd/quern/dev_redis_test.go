package main

import (
	"bufio"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/cmd/quern/connect"
)

// passwordIn is the password in a URL.
func passwordIn(t *testing.T, raw string) string {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	password, _ := u.User.Password()
	return password
}

// devRedis is the URL of the user's `quern dev`.
func (u *user) devRedis() string {
	u.t.Helper()
	var said connect.Dev
	path := filepath.Join(u.env["XDG_RUNTIME_DIR"], "quern", "dev.json")
	eventually(u.t, "dev.json", func() bool {
		text, err := os.ReadFile(path)
		return err == nil && json.Unmarshal(text, &said) == nil
	})
	return said.Redis
}

// say sends bytes to a Redis and returns the first line of its answer to each line end that is asked for; "" when it has closed.
func say(t *testing.T, address, text string, answers int) (lines []string) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(testTimeout)); err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(conn, text) // it may have closed already
	answer := bufio.NewReader(conn)
	for range answers {
		line, _ := answer.ReadString('\n')
		lines = append(lines, strings.TrimSpace(line))
	}
	return lines
}

// Other users of the machine get nothing from the embedded Redis, and no bytes that anybody sends end the process.
func TestDevRedisIsGuarded(t *testing.T) {
	t.Parallel()
	u := newUser(t, "")
	dev := u.spawn("dev", "--plugins", t.TempDir())
	address := dev.stderr.await(t, regexp.MustCompile(`redis=redis://([0-9.:]+)/0`))
	password := passwordIn(t, u.devRedis())
	login := "*2\r\n$4\r\nAUTH\r\n$26\r\n" + password + "\r\n"
	const ping = "*1\r\n$4\r\nPING\r\n"
	for _, test := range []struct {
		text string
		want []string
	}{
		{"*0\r\n", []string{"-ERR Protocol error", ""}},
		{"*-1\r\n", []string{"-ERR Protocol error", ""}},
		{"*2147483647\r\n", []string{"-ERR Protocol error", ""}},
		{"*1\r\n$-2\r\n", []string{"-ERR Protocol error", ""}},
		{"*1\r\n$2147483647\r\n", []string{"-ERR Protocol error", ""}},
		{"*1\r\n*1\r\n$4\r\nPING\r\n", []string{"-ERR Protocol error", ""}},
		{"*3\r\n$7\r\nEVALSHA\r\n$2000\r\n", []string{"-NOAUTH Authentication required.", ""}},
		{"*11\r\n$4\r\nPING\r\n", []string{"-NOAUTH Authentication required.", ""}},
		{"\r\n", []string{"-ERR Protocol error", ""}},
		{"GET / HTTP/1.1\r\n\r\n", []string{"-ERR Protocol error", ""}},
		{strings.Repeat("x", 5000), []string{"-ERR Protocol error", ""}},
		{ping + ping, []string{"-NOAUTH Authentication required.", "-NOAUTH Authentication required."}},
		{"*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n" + login + ping, []string{"-NOAUTH Authentication required.", "+OK", "+PONG"}},
		{"*2\r\n$4\r\nAUTH\r\n$5\r\nwrong\r\n" + ping, []string{"-WRONGPASS invalid username-password pair or user is disabled.", "-NOAUTH Authentication required."}},
		{"*1\r\n$4\r\nAUTH\r\n", []string{"-NOAUTH Authentication required."}},
		{login + ping + "*0\r\n", []string{"+OK", "+PONG", "-ERR Protocol error", ""}},
		{login + "*1\r\n$2147483647\r\n", []string{"+OK", "-ERR Protocol error", ""}},
		{login + "*2\r\n$4\r\nECHO\r\n$3\r\na\r\n\r\n", []string{"+OK", "$3", "a"}},
	} {
		got := say(t, address, test.text, len(test.want))
		slices.Sort(got) // a refusal may overtake an answer
		slices.Sort(test.want)
		if !slices.Equal(got, test.want) {
			t.Errorf("%.60q: %q, want %q", test.text, got, test.want)
		}
	}
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // to repeat it
	parts := []string{"*", "$", "0", "1", "2", "-1", "9", "\r\n", "\n", "\r", "PING", "EVAL", "HELLO", "AUTH", "SUBSCRIBE", "MULTI", "EXEC", "+", ":", "\x00", "\xff", ping, "*0\r\n", "*2\r\n"}
	for i := range 400 {
		var text strings.Builder
		if i%2 == 0 {
			text.WriteString(login)
		}
		for range random.IntN(20) {
			text.WriteString(parts[random.IntN(len(parts))])
		}
		say(t, address, text.String(), 0)
	}
	if got := say(t, address, login+ping, 2); strings.Join(got, "|") != "+OK|+PONG" {
		t.Errorf("after random bytes: %q\n%s", got, dev.stderr)
	}
	if log := dev.stderr.String(); strings.Contains(log, password) {
		t.Errorf("its log has the password:\n%s", log)
	}
}
