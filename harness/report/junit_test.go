package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/certificate/certificatetest"
	"github.com/assay-hpc/assay/internal/golden"
)

// An element says what Jenkins's schema of JUnit files lets an element have.
type element struct {
	required, optional []string // attributes
	children           []string // in an order that all of them keep here
}

var junitSchema = map[string]element{
	"testsuites": {nil, []string{"name", "time", "tests", "failures", "disabled", "errors"}, []string{"testsuite"}},
	"testsuite": {
		[]string{"name", "tests"}, []string{"failures", "errors", "time", "disabled", "skipped", "skips", "timestamp", "hostname", "id", "package"},
		[]string{"properties", "testcase", "system-out", "system-err"},
	},
	"properties": {nil, nil, []string{"property"}},
	"property":   {[]string{"name", "value"}, nil, nil},
	"testcase":   {[]string{"name", "classname"}, []string{"assertions", "time", "status"}, []string{"skipped", "error", "failure", "system-out", "system-err"}},
	"skipped":    {},
	"error":      {nil, []string{"message", "type"}, nil},
	"failure":    {nil, []string{"message", "type"}, nil},
	"system-out": {}, "system-err": {},
}

// checkJUnit holds a document against junitSchema, and its counts against its
// test cases.
func checkJUnit(doc []byte) error {
	d := xml.NewDecoder(bytes.NewReader(doc))
	var path []string
	last := map[int]int{}      // depth → place of the last child in its parent's order
	count := map[string]int{}  // elements of the suite
	want := map[string]int{}   // what its attributes say
	total := map[string]int{}  // of all suites
	claims := map[string]int{} // what testsuites says
	for {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		switch tok := tok.(type) {
		case xml.StartElement:
			name := tok.Name.Local
			el, ok := junitSchema[name]
			if !ok {
				return fmt.Errorf("unknown element %s", name)
			}
			if len(path) == 0 && name != "testsuites" {
				return fmt.Errorf("the root is %s", name)
			}
			if len(path) > 0 {
				i := slices.Index(junitSchema[path[len(path)-1]].children, name)
				if i < last[len(path)] {
					return fmt.Errorf("%s in %v: not there", name, path)
				}
				last[len(path)] = i
			}
			have := map[string]string{}
			for _, a := range tok.Attr {
				if !slices.Contains(el.required, a.Name.Local) && !slices.Contains(el.optional, a.Name.Local) {
					return fmt.Errorf("%s has %s", name, a.Name.Local)
				}
				have[a.Name.Local] = a.Value
			}
			for _, a := range el.required {
				if _, ok := have[a]; !ok {
					return fmt.Errorf("%s has no %s", name, a)
				}
			}
			path = append(path, name)
			last[len(path)] = 0
			into := map[string]map[string]int{"testsuites": claims, "testsuite": want}[name]
			for _, key := range []string{"tests", "failures", "errors", "skipped"} {
				if n, err := strconv.Atoi(have[key]); err == nil && into != nil {
					into[key] = n
				}
			}
			if name == "testsuite" {
				clear(count)
			}
			if key := map[string]string{"testcase": "tests", "failure": "failures", "error": "errors", "skipped": "skipped"}[name]; key != "" {
				count[key]++
				total[key]++
			}
		case xml.EndElement:
			path = path[:len(path)-1]
			if tok.Name.Local == "testsuite" && fmt.Sprint(want) != fmt.Sprint(with0(count)) {
				return fmt.Errorf("the suite says %v and has %v", want, count)
			}
		}
	}
	for key, n := range claims {
		if total[key] != n {
			return fmt.Errorf("testsuites says %d %s and has %d", n, key, total[key])
		}
	}
	return nil
}

func with0(m map[string]int) map[string]int {
	out := map[string]int{"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
	for k, v := range m {
		out[k] = v
	}
	return out
}

func TestJUnit(t *testing.T) {
	var got bytes.Buffer
	if err := JUnit(&got, sample()); err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "junit.xml", got.String())
	for name, in := range map[string][]*certificate.Statement{
		"one": {sample()}, "several": {sample(), hostile(), sample()}, "none": nil, "empty": {certificate.New(certificate.Predicate{Suite: "s"})},
		"node": {certificatetest.Node(8)}, "sick": {sick()},
	} {
		got.Reset()
		if err := JUnit(&got, in...); err != nil {
			t.Fatal(err)
		}
		if err := checkJUnit(got.Bytes()); err != nil {
			t.Errorf("%s: %v\n%s", name, err, got.String())
		}
		if dir := os.Getenv("ASSAY_REPORT_DIR"); dir != "" {
			if err := os.WriteFile(filepath.Join(dir, name+".xml"), got.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestJUnitNode: a warning is a passed test that says so, and a failure names
// the objects.
func TestJUnitNode(t *testing.T) {
	var got bytes.Buffer
	if err := JUnit(&got, certificatetest.Node(8)); err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "node.xml", got.String())
	var doc junitSuites
	if err := xml.Unmarshal(got.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	said := map[string]string{}
	for _, c := range doc.Suites[0].Cases {
		said[c.Name] = c.Output
		if bad := c.Failure != nil || c.Error != nil; bad != (c.Name == "bandwidth/h2d" || c.Name == "diag/pulse") {
			t.Errorf("%s: failed: %v", c.Name, bad)
		}
	}
	for name, want := range map[string]string{
		"health/xid":    "warning: Xid 94 on GPU 1, 40 minutes ago\nremedy: restart the program that was hit\n",
		"bandwidth/h2d": "fail: GPU 0: 31.2 GB/s, less than 48; limit: at least 48 GB/s (Azure); expected: 64 GB/s (PCIe 5 x16)\n",
		"diag/pulse":    "round 3\nround 4\n",
	} {
		if said[name] != want {
			t.Errorf("%s says %q; want %q", name, said[name], want)
		}
	}
}

// TestCheckJUnit: what the other test relies on sees faults.
func TestCheckJUnit(t *testing.T) {
	for _, bad := range []string{
		`<testsuite name="a" tests="0"/>`, `<testsuites><testcase name="a" classname="b"/></testsuites>`,
		`<testsuites tests="1"></testsuites>`, `<testsuites><testsuite tests="0"/></testsuites>`,
		`<testsuites><testsuite name="a" tests="1" failures="0" errors="0" skipped="0"></testsuite></testsuites>`,
		`<testsuites><testsuite name="a" tests="1" failures="1" errors="0" skipped="0"><testcase name="a" classname="b"><system-out/><failure/></testcase></testsuite></testsuites>`,
		`<testsuites><testsuite name="a" tests="1" failures="0" errors="0" skipped="0"><testcase name="a"/></testsuite></testsuites>`,
	} {
		if checkJUnit([]byte(bad)) == nil {
			t.Errorf("accepted %s", bad)
		}
	}
}
