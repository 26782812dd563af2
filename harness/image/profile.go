package image

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// An assignment is one variable that a profile script exports.
type assignment struct{ name, value string }

var exportLine = regexp.MustCompile(`^(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)=(.*)$`)

// parseProfile reads a script that contains only exports, as assay writes it. Anything else is an
// error: a shell could give another result than this parser.
func parseProfile(script string) ([]assignment, error) {
	var vars []assignment
	n := 0
	for line := range strings.Lines(script) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		m := exportLine.FindStringSubmatch(line)
		if m == nil {
			return nil, fmt.Errorf("%d: %.60q is not of the form export NAME=VALUE", n, line)
		}
		value, err := unquote(m[2])
		if err != nil {
			return nil, fmt.Errorf("%d: %w", n, err)
		}
		vars = append(vars, assignment{m[1], value})
	}
	return vars, nil
}

// unquote removes the quotes of a shell word. References stay as they are.
func unquote(word string) (string, error) {
	var out strings.Builder
	var quote rune
	escaped := false
	for _, c := range word {
		switch {
		case escaped:
			if quote == '"' && !strings.ContainsRune("$`\"\\", c) {
				out.WriteByte('\\') // before any other character the backslash stays
			}
			out.WriteRune(c)
			escaped = false
		case c == '\\' && quote != '\'':
			escaped = true
		case c == quote:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			quote = c
		case quote == 0 && strings.ContainsRune(" \t;&|<>()`", c), c == '`' && quote == '"':
			return "", fmt.Errorf("%.60q is more than one plain word", word)
		default:
			out.WriteRune(c)
		}
	}
	if quote != 0 || escaped {
		return "", fmt.Errorf("a quote in %.60q is not closed", word)
	}
	return out.String(), nil
}

// reference matches $NAME, ${NAME} and ${NAME:+:…}, the forms that extend a possibly empty list.
var reference = regexp.MustCompile(`\$\{?[A-Za-z_][A-Za-z0-9_]*(:?[+-][^}]*(\$\{?[A-Za-z_][A-Za-z0-9_]*\}?)?[^}]*)?\}?`)

// agrees reports whether the exported value matches the image's. If it extends the login shell's
// value, all entries that it adds must be in the image's value, in the same order.
func (a assignment) agrees(image string) bool {
	if !reference.MatchString(a.value) {
		return a.value == image
	}
	rest := filepath.SplitList(image)
	for _, entry := range filepath.SplitList(reference.ReplaceAllString(a.value, ":")) {
		if entry == "" {
			continue
		}
		i := slices.Index(rest, entry)
		if i < 0 {
			return false
		}
		rest = rest[i+1:]
	}
	return true
}
