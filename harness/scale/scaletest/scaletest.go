// Package scaletest is what the tests have in common that measure how assay
// scales: they keep what they measured beside docs/scale.md.
package scaletest

import (
	"bytes"
	"encoding/csv"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// Variable names the folder that measurements are written to, docs/scale. Tests
// write none where it is not set.
const Variable = "ASSAY_SCALE"

// Record writes a table of what was measured as NAME.csv: columns, and rows of
// as many numbers, the first of which is the number of ranks or nodes.
func Record(t testing.TB, name string, columns []string, rows [][]float64) {
	t.Helper()
	dir := os.Getenv(Variable)
	if dir == "" {
		return
	}
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	w.Write(columns)
	for _, r := range rows {
		var line []string
		for _, v := range r {
			line = append(line, strconv.FormatFloat(v, 'f', digits(v), 64))
		}
		w.Write(line)
	}
	if w.Flush(); w.Error() != nil {
		t.Fatal(w.Error())
	}
	if err := os.WriteFile(filepath.Join(dir, name+".csv"), b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// digits after the point: none of a count, four of what counts otherwise.
func digits(v float64) int {
	if v == math.Trunc(v) {
		return 0
	}
	return max(0, 3-int(math.Floor(math.Log10(math.Abs(v)))))
}

// Files reports whether this process may have n files open, after trying to
// raise its limit.
func Files(n int) bool {
	var now syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &now) != nil {
		return false
	}
	if now.Cur >= uint64(n) {
		return true
	}
	want := syscall.Rlimit{Cur: uint64(n), Max: max(now.Max, uint64(n))}
	return syscall.Setrlimit(syscall.RLIMIT_NOFILE, &want) == nil
}

// Processor is the processor time that this process has had, in seconds.
func Processor(t testing.TB) float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
