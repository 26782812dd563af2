package platform

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/internal/words"
)

// Key returns the key of the platform with a name: its key, an alias, or its full name, in any case and with any
// punctuation. The error of another name says what it may have meant.
func (db *DB) Key(name string) (string, error) {
	if db.Platforms[name] != nil {
		return name, nil
	}
	keys := slices.SortedFunc(maps.Keys(db.Platforms), func(a, b string) int {
		if own := db.Platforms[a].own; own != db.Platforms[b].own { // one's own first
			return map[bool]int{true: -1, false: 1}[own]
		}
		return cmp.Compare(a, b)
	})
	for _, key := range keys {
		p := db.Platforms[key]
		if slices.ContainsFunc(append([]string{key, p.Name}, p.Aliases...), func(n string) bool { return words.Alphanumeric(n) == words.Alphanumeric(name) }) && words.Alphanumeric(name) != "" {
			return key, nil
		}
	}
	var like []string // its GPU, or a part of its name
	for _, key := range keys {
		p := db.Platforms[key]
		if short := words.Alphanumeric(name); len(short) > 1 && !p.Reference && strings.Contains(words.Alphanumeric(key+p.GPU), short) {
			like = append(like, key)
		}
	}
	switch nearest := words.Nearest(name, keys); {
	case len(like) > 0:
		return "", fmt.Errorf("there is no platform %q; did you mean %s?", name, strings.Join(like, ", "))
	case words.Distance(name, nearest) <= max(1, len(name)/4):
		return "", fmt.Errorf("there is no platform %q; did you mean %s?", name, nearest)
	}
	return "", unknown("platform", name, keys)
}

// Find returns the key of the platform that a text names by its key or an alias, as people write it: "GCP
// a3-megagpu-8g", "h100-8x"; "" if it names none. The longest name that occurs in the text is taken.
func (db *DB) Find(text string) string {
	parts := strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '.' || r == '-') })
	all := words.Alphanumeric(text)
	best, length := "", 0
	for _, key := range slices.Sorted(maps.Keys(db.Platforms)) {
		p := db.Platforms[key]
		if p.Reference && words.Alphanumeric(key) != all {
			continue
		}
		for _, name := range append([]string{key}, p.Aliases...) {
			short := words.Alphanumeric(name)
			// A short name must be a word of the text: others contain it by chance.
			found := slices.Contains(parts, strings.ToLower(name)) || len(short) >= 6 && occurs(all, short)
			if found && len(short) > length {
				best, length = key, len(short)
			}
		}
	}
	return best
}

// occurs says whether a name occurs in a text, and no number in it goes on: "h100" is not in "h1000".
func occurs(text, name string) bool {
	digit := func(c byte) bool { return c >= '0' && c <= '9' }
	for at := 0; ; {
		i := strings.Index(text[at:], name)
		if i < 0 {
			return false
		}
		i += at
		if end := i + len(name); end == len(text) || !digit(text[end]) || !digit(text[end-1]) {
			return true
		}
		at = i + 1
	}
}
