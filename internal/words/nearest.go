package words

import "strings"

// Nearest returns the name with the fewest edits from s; the first one if several are equal, "" if there
// are no names. Names that have s as a part, between letters and digits of their own, come first: who
// writes h100 does not mean a40.
func Nearest(s string, names []string) string {
	best, least, part := "", -1, false
	for _, n := range names {
		d, has := Distance(s, n), hasPart(n, s)
		if least < 0 || has && !part || has == part && d < least {
			best, least, part = n, d, has
		}
	}
	return best
}

// hasPart reports whether a name begins with s, or has it between -, _ or the like.
func hasPart(name, s string) bool {
	if len(s) < minPart {
		return false
	}
	name, s = strings.ToLower(name), strings.ToLower(s)
	word := func(r rune) bool { return r == '-' || r == '_' || r == '.' || r == '/' || r == ' ' }
	return strings.HasPrefix(name, s) || strings.Contains("-"+strings.Join(strings.FieldsFunc(name, word), "-")+"-", "-"+strings.Join(strings.FieldsFunc(s, word), "-")+"-")
}

// minPart is the length in bytes from which a part says more than edits do.
const minPart = 3

// Distance returns the number of insertions, deletions and substitutions of bytes (Levenshtein
// distance).
func Distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			substitute := diagonal
			if a[i] != b[j] {
				substitute++
			}
			diagonal = row[j+1]
			row[j+1] = min(row[j]+1, row[j+1]+1, substitute)
		}
	}
	return row[len(b)]
}
