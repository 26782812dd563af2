// Package noun puts numbers before English nouns.
package noun

import "fmt"

// Count returns "1 check", "2 checks".
func Count(n int, noun string) string { return fmt.Sprintf("%d %s", n, Form(n, noun)) }

// Form returns the noun alone, in its form for n of them. It is for nouns whose plural has an s.
func Form(n int, noun string) string {
	if n == 1 {
		return noun
	}
	return noun + "s"
}
