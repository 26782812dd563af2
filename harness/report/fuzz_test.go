package report

import (
	"bytes"
	"io"
	"testing"
	"time"

	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/certificate/certificatetest"
)

// FuzzReports: whatever Parse accepts, every form shows, and pages of it are
// well-formed.
func FuzzReports(f *testing.F) {
	for _, s := range []*certificate.Statement{sample(), certificatetest.Node(1), certificatetest.Node(3), crowded(), bridged()} {
		b, err := s.Marshal()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := certificate.Parse(b)
		if err != nil {
			return
		}
		everyForm(t, s)
	})
}

// FuzzTexts: any text and any two numbers, in every field that has one.
func FuzzTexts(f *testing.F) {
	f.Add(evil, -1e300, 1e308)
	f.Add("GPU 0", 1.0, 4294967296.0)
	f.Add("\xff<\u2028", 5e-324, 1e99)
	f.Add("", 0.0, 0.0)
	f.Add("1", 1e99, 1e99)
	f.Add("1", 3.0000001, 3.0000002)
	f.Add("1", 5e-324, 1e-323)
	f.Fuzz(func(t *testing.T, text string, a, b float64) {
		everyForm(t, strange(text+"x", a, b))
	})
}

func everyForm(t *testing.T, s *certificate.Statement) {
	again := later(cleanStatement(s), time.Hour)
	checkPage(t, render(t, s, Page{History: []*certificate.Statement{again}}))
	checkPage(t, renderTrend(t, s.Predicate.Suite, []*certificate.Statement{s, again}))
	if text := textOf(t, s, TextOptions{Verbose: true, Width: 80}); bytes.ContainsAny([]byte(text), "\x00\x07\x1b") {
		t.Errorf("what steers a terminal got through: %q", text)
	}
	if err := Prometheus(io.Discard, true, s); err != nil {
		t.Error(err)
	}
	var doc bytes.Buffer
	if err := JUnit(&doc, s); err != nil {
		t.Error(err)
	}
	if err := checkJUnit(doc.Bytes()); err != nil {
		t.Error(err)
	}
	samples(t, prometheus(t, s))
}
