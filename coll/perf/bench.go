package perf

import (
	"fmt"
	"io"
	"runtime"
	"strings"
)

// benchSink writes Go benchmark lines, for benchstat.
type benchSink struct {
	silent
	out io.Writer
}

func (s *benchSink) header(r *reporter) error {
	_, err := fmt.Fprintf(s.out, "goos: linux\ngoarch: %s\npkg: github.com/assay-hpc/assay/coll/perf\ncpu: %s\nUnit algGB/s better=higher\nUnit busGB/s better=higher\n", runtime.GOARCH, r.ranks[0].Name)
	return err
}

func (s *benchSink) row(r *reporter, row *Row) error {
	engine := benchKey(r.world.Engine)
	for i, p := range []*Placement{&row.OutOfPlace, &row.InPlace} {
		_, err := fmt.Fprintf(s.out, "Benchmark%s/ranks=%d/bytes=%d/type=%s/redop=%s/root=%d/inplace=%d/engine=%s %d %.1f ns/op %.6g algGB/s %.6g busGB/s\n",
			r.c, r.n, row.Bytes, row.Type, row.Redop, row.Root, i, engine, row.Iterations, p.Time*1e3, finite(p.AlgBW), finite(p.BusBW))
		if err != nil {
			return err
		}
	}
	return nil
}

// versus writes a line for each repetition of each engine.
func (s *benchSink) versus(r *reporter, row *VersusRow) error {
	place := 0
	if row.InPlace {
		place = 1
	}
	for _, e := range row.Engines {
		for _, us := range e.Times {
			alg := e.AlgBW * e.Time / us
			_, err := fmt.Fprintf(s.out, "Benchmark%s/ranks=%d/bytes=%d/type=%s/redop=%s/root=%d/inplace=%d/launch=%s/memory=%s/engine=%s %d %.1f ns/op %.6g algGB/s %.6g busGB/s\n",
				r.c, r.n, row.Bytes, row.Type, row.Redop, row.Root, place, launchName(row.Graph), row.Memory, benchKey(e.Engine),
				row.Iterations, us*1e3, finite(alg), finite(alg*r.c.BusFactor(r.n)))
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// benchKey turns a name into one that benchstat can read in a key.
func benchKey(name string) string {
	if name == "" {
		return "unknown"
	}
	return strings.NewReplacer(" ", "-", "/", "-", "=", "-").Replace(name)
}
