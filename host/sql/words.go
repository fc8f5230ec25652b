package sql

import "strings"

// allowed are the words with which a statement may begin, besides ROLLBACK TO.
var allowed = map[string]bool{
	"SELECT": true, "VALUES": true, "TABLE": true, "WITH": true, "INSERT": true, "UPDATE": true, "DELETE": true,
	"MERGE": true, "EXPLAIN": true, "DECLARE": true, "FETCH": true, "MOVE": true, "CLOSE": true, "SAVEPOINT": true,
	"RELEASE": true,
}

// mayRun reports whether a statement begins with a word of the list, and returns the word.
func mayRun(statement string) (word string, ok bool) {
	word, rest := firstWord(statement)
	if word != "ROLLBACK" {
		return word, allowed[word]
	}
	second, rest := firstWord(rest)
	if second == "WORK" || second == "TRANSACTION" {
		second, _ = firstWord(rest)
	}
	return word, second == "TO"
}

// firstWord returns the first word of a statement in capitals, and what follows it. It skips spaces, comments and
// opening parentheses. A statement without a word has its beginning in place of it.
func firstWord(statement string) (word, rest string) {
	s := statement
	for {
		s = strings.TrimLeft(s, " \t\r\n\f\v(")
		switch {
		case strings.HasPrefix(s, "--"):
			if end := strings.IndexAny(s, "\r\n"); end >= 0 {
				s = s[end:]
			} else {
				s = ""
			}
		case strings.HasPrefix(s, "/*"):
			s = s[commentEnd(s):]
		default:
			n := 0
			for n < len(s) && (s[n]|0x20 >= 'a' && s[n]|0x20 <= 'z' || s[n] == '_') {
				n++
			}
			if n == 0 {
				n = min(len(s), 16)
			}
			return strings.ToUpper(s[:n]), s[n:]
		}
	}
}

// commentEnd returns where the comment ends with which s begins. Comments can be nested.
func commentEnd(s string) int {
	depth := 0
	for i := 0; i+1 < len(s); i++ {
		switch s[i : i+2] {
		case "/*":
			depth++
			i++
		case "*/":
			depth--
			i++
			if depth == 0 {
				return i + 1
			}
		}
	}
	return len(s)
}
