package sql

import "strings"

// allowed are the words with which a statement may begin. ROLLBACK must go on with TO.
var allowed = map[string]bool{
	"SELECT": true, "VALUES": true, "TABLE": true, "WITH": true, "INSERT": true, "UPDATE": true, "DELETE": true,
	"MERGE": true, "EXPLAIN": true, "DECLARE": true, "FETCH": true, "MOVE": true, "CLOSE": true, "SAVEPOINT": true,
	"RELEASE": true, "ROLLBACK": true,
}

// refusedWord returns the word with which a statement begins although it may not; "" if the statement may run.
func refusedWord(statement string) string {
	word, rest := firstWord(statement)
	switch {
	case !allowed[word]:
		return word
	case word != "ROLLBACK":
		return ""
	}
	second, rest := firstWord(rest)
	if second == "WORK" || second == "TRANSACTION" {
		second, _ = firstWord(rest)
	}
	if second != "TO" {
		return word
	}
	return ""
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
