// Package scaletest contains helpers of the tests that measure how assay scales. These tests
// store their measurements next to docs/scale.md.
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

// Variable is the environment variable with the directory for measurements, docs/scale. Without
// it tests store none.
const Variable = "ASSAY_SCALE"

// Record writes measurements as NAME.csv: the columns, and rows with one number per column, the
// first of which is the number of ranks or nodes.
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

// digits returns the number of decimals: none for an integer, else four significant digits.
func digits(v float64) int {
	if v == math.Trunc(v) {
		return 0
	}
	return max(0, 3-int(math.Floor(math.Log10(math.Abs(v)))))
}

// Files reports whether this process may have n files open. It tries to raise the limit.
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

// Processor returns the processor time used by this process, in seconds.
func Processor(t testing.TB) float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
