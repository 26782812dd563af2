package hang

import (
	"fmt"
	"strings"
)

// How verdicts describe operations, ranks and processes to people.

// mostNamed is how many ranks or reasons a verdict names.
const mostNamed = 4

// join joins texts, up to mostNamed of them.
func join(all []string, sep string) string {
	if n := len(all) - mostNamed; n > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:mostNamed], sep), n)
	}
	return strings.Join(all, sep)
}

// rankList formats ranks for people.
func rankList(ranks []int) string {
	var all []string
	for _, r := range ranks {
		all = append(all, fmt.Sprint(r))
	}
	return join(all, ", ")
}
