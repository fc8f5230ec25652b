package queuetest

import (
	"os"
	"regexp"
	"strings"
	"testing"
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
