package kernels

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"regexp"
)

// comment matches a comment of C, or a literal, in which there is none.
var comment = regexp.MustCompile(`"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|//[^\n]*|(?s:/\*.*?\*/)`)

// SourceSum is the SHA-256 of a source without comments and empty lines, which change nothing that is
// compiled.
func SourceSum(text []byte) string {
	text = comment.ReplaceAllFunc(text, func(m []byte) []byte {
		if m[0] == '/' {
			return []byte(" ")
		}
		return m
	})
	sum := sha256.New()
	for line := range bytes.Lines(text) {
		if line = bytes.TrimRight(line, " \t\r\n"); len(line) > 0 {
			fmt.Fprintf(sum, "%s\n", line)
		}
	}
	return fmt.Sprintf("%x", sum.Sum(nil))
}
