package mesh

import (
	"fmt"
	"testing"
)

// check holds the rounds against what they must be: each wanted pair once, no
// port twice in a round.
func check(t *testing.T, what string, rounds [][]Pair, ports int, want func(a, b int) bool) {
	t.Helper()
	seen := map[Pair]int{}
	for r, round := range rounds {
		if len(round) == 0 {
			t.Errorf("%s: round %d is empty", what, r)
		}
		used := map[int]bool{}
		for _, p := range round {
			for _, port := range []int{p.A, p.B} {
				if used[port] && p.A != p.B {
					t.Errorf("%s: round %d has port %d twice", what, r, port)
				}
				used[port] = true
			}
			seen[Pair{min(p.A, p.B), max(p.A, p.B)}]++
		}
	}
	for a := range ports {
		for b := a; b < ports; b++ {
			n := 0
			if want(a, b) {
				n = 1
			}
			if got := seen[Pair{a, b}]; got != n {
				t.Errorf("%s: pair %d, %d is there %d times; want %d", what, a, b, got, n)
			}
		}
	}
}

// layouts of n ports: one host, a host each, two hosts, hosts of three, and
// hosts of different sizes.
func layouts(n int) map[string][]int {
	out := map[string][]int{}
	add := func(name string, host func(i int) int) {
		var hosts []int
		for i := range n {
			hosts = append(hosts, host(i))
		}
		out[fmt.Sprintf("%d ports, %s", n, name)] = hosts
	}
	add("one host", func(int) int { return 7 })
	add("a host each", func(i int) int { return i })
	add("two hosts", func(i int) int { return i * 2 / n })
	add("alternating", func(i int) int { return i % 2 })
	add("three each", func(i int) int { return i / 3 })
	add("unequal", func(i int) int {
		host := 0
		for ; i > host; host++ {
			i -= host + 1
		}
		return host
	})
	return out
}

// rails are each port's position on its host.
func rails(hosts []int) (out []int) {
	n := map[int]int{}
	for _, h := range hosts {
		out = append(out, n[h])
		n[h]++
	}
	return out
}

func schedule(t *testing.T, p Pattern, hosts []int) [][]Pair {
	t.Helper()
	rounds, err := Schedule(p, hosts)
	if err != nil {
		t.Fatal(err)
	}
	return rounds
}

func TestSchedule(t *testing.T) {
	for n := 2; n <= 33; n++ {
		for name, hosts := range layouts(n) {
			one := len(groupsOf(hosts)) == 1
			rail := rails(hosts)
			apart := func(a, b int) bool { return a != b && (one || hosts[a] != hosts[b]) }
			check(t, name+" all-pairs", schedule(t, AllPairs, hosts), n, apart)
			check(t, name+" rail", schedule(t, Rail, hosts), n, func(a, b int) bool { return apart(a, b) && (one || rail[a] == rail[b]) })
			check(t, name+" loopback", schedule(t, Loopback, hosts), n, func(a, b int) bool { return a != b && hosts[a] == hosts[b] })
			check(t, name+" self", schedule(t, Self, hosts), n, func(a, b int) bool { return a == b })
		}
	}
}

// TestRing: neighbours alone, in two rounds, or three of an odd ring.
func TestRing(t *testing.T) {
	for n := 2; n <= 33; n++ {
		for name, hosts := range map[string][]int{"one host": make([]int, n), "a host each": rails(make([]int, n))} {
			rounds := schedule(t, Ring, hosts)
			check(t, fmt.Sprintf("%d %s", n, name), rounds, n, func(a, b int) bool { return b == a+1 || n > 2 && a == 0 && b == n-1 })
			want := 2 + n%2
			if n == 2 {
				want = 1
			}
			if len(rounds) != want {
				t.Errorf("a ring of %d takes %d rounds; want %d", n, len(rounds), want)
			}
		}
	}
}

// TestBisection: halves, in one round.
func TestBisection(t *testing.T) {
	for n := 2; n <= 33; n++ {
		rounds := schedule(t, Bisection, rails(make([]int, n)))
		check(t, fmt.Sprint(n), rounds, n, func(a, b int) bool { return b == a+n/2 && b < n/2*2 })
		if len(rounds) != 1 {
			t.Errorf("%d ports take %d rounds", n, len(rounds))
		}
	}
}

// TestRounds: as few as there can be of equal hosts: each port meets those of
// the others, one at a time.
func TestRounds(t *testing.T) {
	for hosts := 2; hosts <= 8; hosts += 2 {
		for ports := 1; ports <= 8; ports++ {
			var of []int
			for i := range hosts * ports {
				of = append(of, i/ports)
			}
			if got, want := len(schedule(t, AllPairs, of)), (hosts-1)*ports; got != want {
				t.Errorf("%d hosts of %d ports take %d rounds; want %d", hosts, ports, got, want)
			}
		}
	}
}

func TestSteps(t *testing.T) {
	rounds := [][]Pair{{{0, 1}, {2, 3}}, {{4, 4}}}
	for _, tt := range []struct {
		both, serial bool
		want         string
	}{
		{false, false, "[[{0 1} {2 3}] [{1 0} {3 2}] [{4 4}]]"},
		{true, false, "[[{0 1} {2 3}] [{4 4}]]"},
		{false, true, "[[{0 1}] [{2 3}] [{1 0}] [{3 2}] [{4 4}]]"},
	} {
		if got := fmt.Sprint(steps(rounds, tt.both, tt.serial)); got != tt.want {
			t.Errorf("steps(both %v, serial %v) = %s; want %s", tt.both, tt.serial, got, tt.want)
		}
	}
	if _, err := Schedule("star", []int{0, 1}); err == nil {
		t.Error("there is no pattern star")
	}
}
