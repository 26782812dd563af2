package hang

import (
	"slices"
	"testing"
)

// TestRound: who has left is not visited any more, and with the last one the timer ends.
func TestRound(t *testing.T) {
	r := round{all: map[*Watchdog]func(){}, runs: true} // without its timer
	a, b := new(Watchdog), new(Watchdog)
	visited := map[*Watchdog]int{}
	for _, c := range []*Watchdog{a, b} {
		r.join(c, func() { visited[c]++ })
	}
	more := []bool{r.visit()}
	r.leave(a)
	more = append(more, r.visit())
	r.leave(b)
	more = append(more, r.visit())
	if visited[a] != 1 || visited[b] != 2 || !slices.Equal(more, []bool{true, true, false}) || r.runs {
		t.Errorf("visited %d and %d times, more %v", visited[a], visited[b], more)
	}
}
