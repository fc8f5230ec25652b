package queuetest

import (
	"context"
	"fmt"
	"maps"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// AccessList reads the command ACL SETUSER for user from ACL.md, which is at path, and returns the words of the
// command.
func AccessList(t testing.TB, path, user string) (words []any) {
	t.Helper()
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^ACL SETUSER ` + user + ` .*$`).Find(page)
	if line == nil {
		t.Fatalf("%s has no ACL SETUSER %s", path, user)
	}
	for word := range strings.FieldsSeq(string(line)) {
		words = append(words, word)
	}
	return words
}

// connecting are the commands that any client of Redis may need, whether or not it was seen to send them: with a
// password, in another database, on a subscription that is idle or moves, and when Redis has forgotten a script.
var connecting = []string{"auth", "hello", "ping", "select", "subscribe", "unsubscribe", "eval", "evalsha"}

// Sent records which commands a client of Redis sends, and which scripts it calls.
type Sent struct {
	mu       sync.Mutex
	commands map[string]bool // guarded by mu
}

// Watch records what the client sends from now on.
func Watch(rdb redis.UniversalClient) *Sent {
	s := &Sent{commands: make(map[string]bool)}
	for _, command := range connecting {
		s.commands[command] = true
	}
	rdb.AddHook(s)
	return s
}

// Needed returns the commands that the client needs: those that it sent, those of the scripts that it called, whichever
// way they go, and those that any client needs.
func (s *Sent) Needed() map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.commands)
}

func (s *Sent) note(cmd redis.Cmder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	args, name := cmd.Args(), cmd.Name()
	switch name {
	case "client": // sent with each connection, which ignores a refusal
		return
	case "script", "config":
		name += "|" + strings.ToLower(fmt.Sprint(args[1]))
	}
	s.commands[name] = true
	if name == "evalsha" {
		for _, script := range store.AllScripts {
			if args[1] == script.Hash() {
				AddCommands(s.commands, script.Source)
			}
		}
	}
}

// DialHook implements redis.Hook.
func (*Sent) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (s *Sent) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		s.note(cmd)
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook implements redis.Hook.
func (s *Sent) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			s.note(cmd)
		}
		return next(ctx, cmds)
	}
}

var (
	luaFunction = regexp.MustCompile(`(?ms)^local function (\w+)\(.*?(?:^end$| end$)`)
	luaWord     = regexp.MustCompile(`\w+`)
	luaCall     = regexp.MustCompile(`redis\.p?call\('([A-Z]+)'`)
)

// AddCommands adds the commands that a script may run: those that it names, and those of the functions that it calls.
func AddCommands(commands map[string]bool, source string) {
	bodies := make(map[string]string)
	rest := luaFunction.ReplaceAllStringFunc(source, func(text string) string {
		bodies[luaFunction.FindStringSubmatch(text)[1]] = text
		return ""
	})
	for todo := []string{rest}; len(todo) > 0; todo = todo[1:] {
		for _, match := range luaCall.FindAllStringSubmatch(todo[0], -1) {
			commands[strings.ToLower(match[1])] = true
		}
		for _, name := range luaWord.FindAllString(todo[0], -1) {
			if body, ok := bodies[name]; ok {
				todo = append(todo, body)
				delete(bodies, name)
			}
		}
	}
}
