package report

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/result"
)

// The elements of JUnit's XML, as Ant and Jenkins define them. The order of the elements in a test
// case matters.
type (
	junitSuites struct {
		XMLName  xml.Name     `xml:"testsuites"`
		Name     string       `xml:"name,attr"`
		Tests    int          `xml:"tests,attr"`
		Failures int          `xml:"failures,attr"`
		Errors   int          `xml:"errors,attr"`
		Time     seconds      `xml:"time,attr"`
		Suites   []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name       string          `xml:"name,attr"`
		ID         int             `xml:"id,attr"`
		Tests      int             `xml:"tests,attr"`
		Failures   int             `xml:"failures,attr"`
		Errors     int             `xml:"errors,attr"`
		Skipped    int             `xml:"skipped,attr"`
		Time       seconds         `xml:"time,attr"`
		Timestamp  string          `xml:"timestamp,attr"`
		Hostname   string          `xml:"hostname,attr,omitempty"`
		Properties []junitProperty `xml:"properties>property"`
		Cases      []junitCase     `xml:"testcase"`
	}
	junitProperty struct {
		Name  string `xml:"name,attr"`
		Value string `xml:"value,attr"`
	}
	junitCase struct {
		Name    string        `xml:"name,attr"`
		Class   string        `xml:"classname,attr"`
		Time    seconds       `xml:"time,attr"`
		Skipped *junitSkipped `xml:"skipped"`
		Error   *junitFault   `xml:"error"`
		Failure *junitFault   `xml:"failure"`
		Output  string        `xml:"system-out,omitempty"`
	}
	// Jenkins's schema has no message attribute here. Readers that support the attribute fall back
	// to the text.
	junitSkipped struct {
		Reason string `xml:",chardata"`
	}
	junitFault struct {
		Message string `xml:"message,attr"`
		Type    string `xml:"type,attr"`
		Text    string `xml:",chardata"`
	}
)

// seconds are written without an exponent, which some readers cannot parse.
type seconds float64

// MarshalText implements encoding.TextMarshaler.
func (s seconds) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%.6f", float64(s)), nil }

// JUnit writes certificates as JUnit XML, which CI systems display. Each certificate is a test
// suite, and each check a test case. The class name of a test case is the suite and the component.
func JUnit(w io.Writer, certificates ...*certificate.Statement) error {
	all := junitSuites{Name: "assay"}
	for i, s := range certificates {
		one := junit(s)
		one.ID = i
		all.Suites = append(all.Suites, one)
		all.Tests += one.Tests
		all.Failures += one.Failures
		all.Errors += one.Errors
		all.Time += one.Time
	}
	b, err := xml.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	_, err = w.Write(append([]byte(xml.Header), append(b, '\n')...))
	return err
}

func junit(s *certificate.Statement) junitSuite {
	p := &s.Predicate
	count := result.Count(p.Results)
	one := junitSuite{
		Name: p.Suite, Tests: len(p.Results), Failures: count[result.Fail], Errors: count[result.Error], Skipped: count[result.Skip],
		Time: seconds(p.Finished.Sub(p.Started).Seconds()), Timestamp: p.Started.Format(time.DateOnly + "T" + time.TimeOnly), // the format has no zone
	}
	for _, f := range facts(s) {
		one.Properties = append(one.Properties, junitProperty(f))
	}
	if p.Node != nil {
		one.Hostname = p.Node.Name
		for _, f := range nodeFacts(p.Node) {
			one.Properties = append(one.Properties, junitProperty(f))
		}
	}
	for _, r := range p.Results {
		one.Cases = append(one.Cases, junitCaseOf(p.Suite, r))
	}
	return one
}

// junitCaseOf converts a check. JUnit has no warnings: a check that warns is a passed test with the
// warning in its output.
func junitCaseOf(suite string, r result.Result) junitCase {
	c := junitCase{Name: r.ID, Class: strings.TrimSuffix(suite+"."+r.Component, "."), Time: seconds(r.Seconds)}
	figures := ""
	if r.Measured != nil {
		figures = "measured: " + measuredAll(r.Measured) + "\n"
	}
	remedy := ""
	if r.Wanted != "" {
		remedy = "wanted: " + r.Wanted + "\n"
	}
	if r.Remedy != "" {
		remedy += "remedy: " + r.Remedy + "\n"
	}
	fault := &junitFault{Message: r.Reason, Type: string(r.Verdict), Text: r.Title + "\n" + remedy + figures}
	switch r.Verdict {
	case result.Skip:
		c.Skipped = &junitSkipped{r.Reason}
		c.Output = r.Output
	case result.Error:
		c.Error = fault
		c.Output = junitObjects(r.Objects) + r.Output
	case result.Fail:
		c.Failure = fault
		c.Output = junitObjects(r.Objects) + r.Output
	case result.Warn:
		c.Output = "warning: " + r.Reason + "\n" + remedy + figures + junitObjects(r.Objects) + r.Output
	case result.Pass:
		c.Output = figures + r.Output
	}
	return c
}

// junitObjects returns a line for each bunch of objects that are not well.
func junitObjects(objects []result.Object) string {
	var b strings.Builder
	for _, of := range bunches(objects) {
		if worthy(of.Verdict) {
			fmt.Fprintf(&b, "%s: %s: %s\n", of.Verdict, of.names(), of.outcome())
		}
	}
	return b.String()
}
