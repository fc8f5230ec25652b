package units

import "fmt"

// Count returns a number with its noun, such as 1 task or 2 tasks. one and many can have a verb as well.
func Count[N int | int64](n N, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
