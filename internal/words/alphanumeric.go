package words

import "strings"

// Alphanumeric reduces a text to its letters a to z, small, and digits: names that differ in case and punctuation alone
// become the same.
func Alphanumeric(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, strings.ToLower(s))
}
