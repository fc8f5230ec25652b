package runtimetest

import (
	"testing"

	"github.com/quern-project/quern/runtime/bundle"
)

// Interpreted returns a handler in a language, python or javascript, as quern plugin build makes it: the engine's
// module with its own files and the handler's file. If the engine is missing, the test is skipped or fails: see Engine.
func Interpreted(t testing.TB, language, source string) []byte {
	t.Helper()
	path := Engine(t, language)
	engine, err := guests.get("engine\x00"+path, func() ([]byte, error) { return bundle.Engine(path) })
	if err != nil {
		t.Fatalf("read the engine for %s: %v", language, err)
	}
	file := map[string]string{"python": "/app/handler.py", "javascript": "/app/handler.js"}[language]
	plugin, err := bundle.Append(engine, map[string][]byte{file: []byte(source)})
	if err != nil {
		t.Fatalf("append the handler: %v", err)
	}
	return plugin
}
