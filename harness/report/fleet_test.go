package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/assay-hpc/assay/harness/fleet"
	"github.com/assay-hpc/assay/harness/fleet/fleettest"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/result"
)

// sickFleet is n machines of which some are slow, some have another driver, and some failed checks.
func sickFleet(t testing.TB, n int) *fleet.Fleet {
	t.Helper()
	base, err := fleettest.Real("../..", "h200-2x")
	if err != nil {
		t.Fatal(err)
	}
	m := &fleettest.Maker{Base: base, Rand: rand.New(rand.NewPCG(1, 46)), Machine: 0.005, Object: 0.005, Start: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	c := fleet.NewCollector()
	for i := range n {
		for _, day := range []float64{0, 7} {
			if day == 0 && i > 20 {
				continue
			}
			st := m.Make(i, day)
			if i%7 == 3 {
				st.Predicate.Node.Driver = "570.172.08"
				fleettest.Slow(st, "coll/all_", "", 0.94)
			}
			if i == 17 && day == 7 {
				fleettest.Slow(st, "bandwidth/peer_", "", 0.88)
			}
			if i > n-15 {
				fleettest.Slow(st, "memory_bandwidth", "GPU 1", 0.8)
			}
			if i%5 == 1 {
				for k := 0; k < 60; k += 5 {
					r := &st.Predicate.Results[k]
					r.Verdict, r.Reason, r.Remedy = result.Fail, fmt.Sprintf("it is %d", i), "do this, and if it does not help then do something else entirely"
				}
			}
			c.Add(st)
		}
	}
	e, err := fleet.ParseExpected("x", fmt.Sprintf("node[0000-%04d]", n+3))
	if err != nil {
		t.Fatal(err)
	}
	return c.Fleet(fleet.Options{Now: m.Start.Add(30 * 24 * time.Hour), MaxAge: 7 * 24 * time.Hour, Expected: e})
}

// The text fits a screen, whatever the fleet, and its first line has what matters most.
func TestFleetText(t *testing.T) {
	f := sickFleet(t, 120)
	for _, width := range []int{0, 60, 80, 200} {
		var b bytes.Buffer
		if err := FleetText(&b, f, TextOptions{Width: width}); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
		if len(lines) > FleetLines {
			t.Errorf("%d lines", len(lines))
		}
		most := max(min(width, unfolded), 60)
		if width == 0 {
			most = 80
		}
		for _, line := range lines {
			if n := utf8.RuneCountInString(line); n > most {
				t.Errorf("%d characters: %s", n, line)
			}
		}
		for _, want := range []string{"stand out, most of all node01", "with driver 570.172.08 are worse by", "✗ ", "not certified: 4: node[0120-0123]"} {
			if !strings.Contains(b.String(), want) {
				t.Errorf("it lacks %q:\n%s", want, b.String())
			}
		}
	}
}

// A fleet of healthy machines says so.
func TestFleetHealthy(t *testing.T) {
	c := fleet.NewCollector()
	base, err := fleettest.Real("../..", "h200-1x")
	if err != nil {
		t.Fatal(err)
	}
	m := &fleettest.Maker{Base: base, Rand: rand.New(rand.NewPCG(1, 1)), Machine: 0.005, Object: 0.005, Start: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	for i := range 3 {
		c.Add(m.Make(i, 0))
	}
	if got := fleetHeadline(c.Fleet(fleet.Options{})); got != "3 nodes, too few of a kind to compare (5)" {
		t.Error(got)
	}
	for i := range 30 {
		c.Add(m.Make(i+3, 0))
	}
	if got := fleetHeadline(c.Fleet(fleet.Options{})); got != "None of 33 nodes stands out from its peers" {
		t.Error(got)
	}
}

// The page is well-formed, names what stands out in its title, and stays small.
func TestFleetHTML(t *testing.T) {
	var b bytes.Buffer
	if err := FleetHTML(&b, sickFleet(t, 120)); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	wellFormed(t, page)
	if dir := os.Getenv("ASSAY_REPORT_DIR"); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, "fleet.html"), b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"<title>15 of 120 nodes stand out, most of all ", "node[0120-0123]", "has to do with GPU 1", "570.172.08", "over time: "} {
		if !strings.Contains(page, want) {
			t.Errorf("it lacks %q", want)
		}
	}
	if strings.Contains(page, "<script") || strings.Contains(page, "http://") || len(page) > 500_000 {
		t.Errorf("%d bytes, or it needs something from elsewhere", len(page))
	}
}

// Texts of certificates cannot steer a terminal or a page.
func TestFleetHostile(t *testing.T) {
	c := fleet.NewCollector()
	for i := range 6 {
		st := hostile()
		st.Predicate.Node.Name = fmt.Sprint(evil, i)
		c.Add(st)
	}
	f := c.Fleet(fleet.Options{})
	var b bytes.Buffer
	if err := FleetHTML(&b, f); err != nil {
		t.Fatal(err)
	}
	wellFormed(t, b.String())
	b.Reset()
	if err := FleetText(&b, f, TextOptions{}); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(b.String(), "\x00\x07\x1b\u202e") {
		t.Errorf("what steers a terminal got through: %q", b.String())
	}
}

// docs/fleet.schema.json is true: it takes what is written, and every property of it occurs in the types.
func TestFleetSchema(t *testing.T) {
	text, err := os.ReadFile("../../docs/fleet.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("fleet.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("fleet.json")
	if err != nil {
		t.Fatal(err)
	}
	empty := fleet.NewCollector()
	empty.Add(&certificate.Statement{})
	for name, f := range map[string]*fleet.Fleet{"sick": sickFleet(t, 60), "empty": empty.Fleet(fleet.Options{})} {
		b, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(v); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
