package manifest

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// The rules of names, for messages.
const (
	WordRule     = "1 to 128 printable ASCII characters without a space"
	secretRule   = "write letters, digits, _, - and ., not beginning with a dot"
	variableRule = "write letters, digits and _, not beginning with a digit"
)

// The maximum lengths of names and paths.
const (
	maxWord = 128  // bytes of a name, a queue or a version
	maxPath = 1024 // bytes of a path
	maxName = 255  // bytes between two slashes of a path
)

// CheckWord returns what is wrong with a name, a queue or a version; nil if it is valid. Redis keys and Prometheus
// labels both accept every valid word.
func CheckWord(word string) error {
	if word == "" {
		return errors.New("is empty")
	}
	if len(word) > maxWord {
		return fmt.Errorf("has %d bytes", len(word))
	}
	if i := strings.IndexFunc(word, func(r rune) bool { return r < '!' || r > '~' }); i >= 0 {
		return fmt.Errorf("has the byte 0x%02x", word[i])
	}
	return nil
}

// IsTenant reports whether a text is a valid name of a tenant: 1 to 32 of a-z, 0-9 and -, or a word of this form in
// braces.
func IsTenant(name string) bool {
	if strings.HasPrefix(name, "{") && strings.HasSuffix(name, "}") && len(name) > 2 {
		name = name[1 : len(name)-1]
	}
	return len(name) >= 1 && len(name) <= 32 && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

// DatabaseRule says what IsDatabase accepts.
const DatabaseRule = "1 to 64 of A-Z, a-z, 0-9, - and _"

// IsDatabase reports whether a text is a valid name of a database, or the value of a header that chooses one. No such
// text has a dot, so that database.NAME.VALUE is the secret of a value and of nothing else.
func IsDatabase(name string) bool { return databaseName.MatchString(name) }

const databasePattern = `^[A-Za-z0-9_-]{1,64}$`

var databaseName = regexp.MustCompile(databasePattern)

// isVariable reports whether every shell and libc accepts the name for an environment variable.
func isVariable(name string) bool {
	const digits, others = "0123456789", "_ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	return name != "" && len(name) <= maxWord &&
		strings.Trim(name, digits+others) == "" && !strings.ContainsAny(name[:1], digits)
}

// isSecret reports whether a text is a valid name of a secret: every system accepts it as the name of a file, and the
// file is not hidden.
func isSecret(name string) bool {
	return name != "" && name[0] != '.' && isVariable("_"+strings.NewReplacer("-", "_", ".", "_").Replace(name))
}

// isPath reports whether a text is a clean relative path.
func isPath(text string) bool {
	long := func(name string) bool { return len(name) > maxName }
	return fs.ValidPath(text) && text != "." && len(text) <= maxPath &&
		!slices.ContainsFunc(strings.Split(text, "/"), long) &&
		!strings.ContainsFunc(text, unicode.IsControl)
}
