package debug

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// open returns a logger into a buffer.
func open(t *testing.T, level Level, set Subsystems) (*Logger, *bytes.Buffer) {
	t.Helper()
	var b bytes.Buffer
	l, err := Open(Options{Level: level, Subsystems: set, Host: "node7.example.org", PID: 42, Stderr: &b})
	if err != nil {
		t.Fatal(err)
	}
	return l, &b
}

func TestLines(t *testing.T) {
	l, b := open(t, Trace, All)
	l.Version("assay 0.1")
	l.Infof(Init, "before the rank is known")
	r := l.ForRank(3, 1)
	r.Infof(Net, "using %s", "eth0")
	r.Warnf("rank %d is lost", 2)
	r.Tracef(Coll, "step %d", 9)
	r.Infof(Env, "two\nlines\n")
	want := `assay 0.1
node7:42:42 [0] NCCL INFO before the rank is known
node7:42:3 [1] NCCL INFO using eth0
node7:42:3 [1] NCCL WARN rank 2 is lost
node7:42:3 [1] NCCL TRACE step 9
node7:42:3 [1] NCCL INFO two
node7:42:3 [1] NCCL INFO lines
`
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}

// TestEnabled walks all levels and a few sets: Enabled and what is written
// agree.
func TestEnabled(t *testing.T) {
	for level := None; level < numLevels; level++ {
		for _, set := range []Subsystems{0, Init, All &^ Init, All} {
			l, b := open(t, level, set)
			for _, c := range []struct {
				level Level
				sub   Subsystems
				log   func()
			}{
				{Version, 0, func() { l.Version("x") }},
				{Warn, 0, func() { l.Warnf("x") }},
				{Info, Init, func() { l.Infof(Init, "x") }},
				{Info, Net, func() { l.Infof(Net, "x") }},
				{Trace, Init, func() { l.Tracef(Init, "x") }},
			} {
				b.Reset()
				c.log()
				want := level >= c.level && (c.level <= Warn || set&c.sub != 0)
				if got := l.Enabled(c.level, c.sub); got != want {
					t.Errorf("NCCL_DEBUG=%v, subsystems %q: Enabled(%v, %v) = %v; want %v", level, set, c.level, c.sub, got, want)
				}
				if wrote := b.Len() > 0; wrote != want {
					t.Errorf("NCCL_DEBUG=%v, subsystems %q: a line of %v, %v: written %v; want %v", level, set, c.level, c.sub, wrote, want)
				}
			}
		}
	}
}

func TestNilIsSilent(t *testing.T) {
	var l *Logger
	for _, l := range []*Logger{l, l.ForRank(1, 1), {}} {
		l.Version("x")
		l.Warnf("x")
		l.Infof(All, "x")
		l.Tracef(All, "x")
		if l.Enabled(None, All) || l.Enabled(Warn, All) {
			t.Error("a silent logger is enabled")
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestDisabledAllocatesNothing(t *testing.T) {
	l, _ := open(t, Info, Init)
	n := 12345
	if got := testing.AllocsPerRun(100, func() {
		if l.Enabled(Trace, Coll) || l.Enabled(Info, Coll) {
			l.Tracef(Coll, "step %d", n)
		}
		l.Infof(Coll, "nothing to box")
	}); got != 0 {
		t.Errorf("%v allocations; want 0", got)
	}
}

func BenchmarkDisabled(b *testing.B) {
	l, err := Open(Options{Level: Warn})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if l.Enabled(Trace, Coll) {
			b.Fatal("enabled")
		}
	}
}

// TestParsers: what tools take NCCL's lines apart with reads ours.
func TestParsers(t *testing.T) {
	line := regexp.MustCompile(`^(\S+):(\d+):(\d+) \[(\d+)\] NCCL (INFO|WARN) (.*)$`)
	l, b := open(t, Info, All)
	l.ForRank(11, 3).Infof(Init, "comm 0x1 rank 11 nranks 16")
	l.ForRank(11, 3).Warnf("trouble")
	for s := range strings.Lines(b.String()) {
		if m := line.FindStringSubmatch(strings.TrimSuffix(s, "\n")); m == nil || m[3] != "11" || m[4] != "3" {
			t.Errorf("%q is taken apart as %q", s, m)
		}
	}
}

// TestManyGoroutines: lines do not mix, in a file that several loggers share.
func TestManyGoroutines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.%h.%p")
	const ranks, lines = 8, 50
	var wg sync.WaitGroup
	for rank := range ranks {
		wg.Go(func() {
			root, err := Open(Options{Level: Info, Subsystems: All, File: path, Host: "h", PID: 7})
			if err != nil {
				t.Error(err)
				return
			}
			defer root.Close()
			l := root.ForRank(rank, rank)
			for i := range lines {
				l.Infof(Coll, "line %d %s", i, strings.Repeat("x", i))
			}
		})
	}
	wg.Wait()
	got, err := os.ReadFile(strings.NewReplacer("%h", "h", "%p", "7").Replace(path))
	if err != nil {
		t.Fatal(err)
	}
	next := make([]int, ranks)
	for line := range strings.Lines(string(got)) {
		var rank, index, i int
		var x string
		fmt.Sscanf(line, "h:7:%d [%d] NCCL INFO line %d %s", &rank, &index, &i, &x)
		if rank != index || rank < 0 || rank >= ranks || i != next[rank] || len(x) != i {
			t.Fatalf("line %q; rank %d is at %d", line, rank, next[rank])
		}
		next[rank]++
	}
	for rank, n := range next {
		if n != lines {
			t.Errorf("rank %d: %d lines; want %d", rank, n, lines)
		}
	}
}

func TestShort(t *testing.T) {
	for _, tt := range []struct {
		in   string
		most int
		want string
	}{
		{"", 4, ""}, {"abcd", 4, "abcd"}, {"abcde", 4, "ab … de (5 bytes)"}, {"a€€€€b", 8, "a€ … €b (14 bytes)"}, {"€€€€", 4, " …  (12 bytes)"},
	} {
		if got := Short(tt.in, tt.most); got != tt.want {
			t.Errorf("Short(%q, %d) = %q; want %q", tt.in, tt.most, got, tt.want)
		}
	}
}
