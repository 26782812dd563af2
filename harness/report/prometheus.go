package report

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/result"
	"github.com/assay-hpc/assay/internal/words"
)

// A scale converts a unit to one of Prometheus's base units.
type scale struct {
	suffix string // of the metric's name
	unit   string
	factor float64
}

// scales contains the units that have a base unit. Values in other units keep theirs, only as a
// label.
var scales = map[string]scale{
	"B/s": {"bytes_per_second", "B/s", 1}, "MB/s": {"bytes_per_second", "B/s", 1e6}, "GB/s": {"bytes_per_second", "B/s", 1e9}, "TB/s": {"bytes_per_second", "B/s", 1e12},
	"MiB/s": {"bytes_per_second", "B/s", 1 << 20}, "GiB/s": {"bytes_per_second", "B/s", 1 << 30},
	"Mb/s": {"bits_per_second", "b/s", 1e6}, "Gb/s": {"bits_per_second", "b/s", 1e9},
	"B": {"bytes", "B", 1}, "KiB": {"bytes", "B", 1 << 10}, "MiB": {"bytes", "B", 1 << 20}, "GiB": {"bytes", "B", 1 << 30}, "GB": {"bytes", "B", 1e9},
	"s": {"seconds", "s", 1}, "ms": {"seconds", "s", 1e-3}, "us": {"seconds", "s", 1e-6}, "µs": {"seconds", "s", 1e-6}, "ns": {"seconds", "s", 1e-9},
	"MHz": {"hertz", "Hz", 1e6}, "GHz": {"hertz", "Hz", 1e9}, "W": {"watts", "W", 1}, "°C": {"celsius", "°C", 1}, "C": {"celsius", "°C", 1},
	"%": {"ratio", "1", 1e-2}, "TFLOPS": {"flops", "FLOPS", 1e12}, "GFLOPS": {"flops", "FLOPS", 1e9}, "TFLOP/s": {"flops", "FLOPS", 1e12}, "GFLOP/s": {"flops", "FLOPS", 1e9},
}

// Prometheus writes certificates as a text file for node_exporter's textfile collector. A verdict
// is a state set: of its five series one is 1. Two certificates with the same suite, node, image
// and platform would be the same series; that is an error.
func Prometheus(w io.Writer, certificates ...*certificate.Statement) error {
	var m metrics
	seen := map[string]bool{}
	for _, s := range certificates {
		of := labels{"suite", s.Predicate.Suite, "node", nodeName(s), "image", imageName(s), "platform", s.Predicate.Environment.Platform}
		key := of.String()
		if seen[key] {
			return fmt.Errorf("two certificates have the labels %s, and metrics can show but one of them: leave one out", key)
		}
		seen[key] = true
		m.certificate(of, s)
		for i := range s.Predicate.Results {
			m.check(of, &s.Predicate.Results[i])
		}
	}
	_, err := w.Write(m.bytes())
	return err
}

func nodeName(s *certificate.Statement) string {
	if s.Predicate.Node == nil {
		return ""
	}
	return s.Predicate.Node.Name
}

// imageName returns the name of the first image among the certificate's subjects.
func imageName(s *certificate.Statement) string {
	for _, sub := range s.Subject {
		if !isNode(sub) {
			return sub.Name
		}
	}
	return ""
}

func (m *metrics) certificate(of labels, s *certificate.Statement) {
	p := &s.Predicate
	info := of.with("harness", p.Harness.Version, "target", p.Environment.Target, "recipe", p.Environment.Recipe, "kernel", p.Environment.Kernel, "os", p.Environment.OS)
	if n := p.Node; n != nil { // by which like nodes can be compared
		info = info.with("hardware", n.Platform, "gpus", strconv.Itoa(len(n.GPUs)), "driver", n.Driver)
	}
	m.add("assay_certificate_info", "What the certificate is about and where it was made; always 1.", info, 1)
	count := result.Count(p.Results)
	for _, v := range result.Verdicts() {
		m.add("assay_certificate_verdict", "1 for the certificate's verdict, 0 for the others.", of.with("verdict", string(v)), is(p.Verdict == v))
		m.add("assay_certificate_checks", "Checks by verdict.", of.with("verdict", string(v)), float64(count[v]))
	}
	m.add("assay_certificate_finished_timestamp_seconds", "When the last check ended, in seconds since 1970.", of, float64(p.Finished.UnixMilli())/1e3)
	m.add("assay_certificate_duration_seconds", "How long all checks took.", of, p.Finished.Sub(p.Started).Seconds())
}

func (m *metrics) check(of labels, r *result.Result) {
	of = of.with("check", r.ID, "component", r.Component)
	for _, v := range result.Verdicts() {
		m.add("assay_check_verdict", "1 for the check's verdict, 0 for the others.", of.with("verdict", string(v)), is(r.Verdict == v))
	}
	m.add("assay_check_duration_seconds", "How long the check took.", of, r.Seconds)
	m.measurement("check", of, r.Measured)
	for i := range r.Objects {
		m.object(of, &r.Objects[i])
	}
}

func (m *metrics) object(of labels, o *result.Object) {
	of = of.with("object", o.Name, "peer", o.Peer, "quantity", o.Quantity, "id", o.ID)
	for _, v := range result.Verdicts() {
		m.add("assay_object_verdict", "1 for the object's verdict in the check, 0 for the others.", of.with("verdict", string(v)), is(o.Verdict == v))
	}
	m.measurement("object", of, o.Measured)
}

// measurement adds a measurement of a check or of an object.
func (m *metrics) measurement(whose string, of labels, v *result.Measurement) {
	if v == nil {
		return
	}
	to, ok := scales[v.Unit]
	if !ok {
		to = scale{"", v.Unit, 1}
	}
	of = of.with("unit", to.unit)
	name := func(s string) string { return strings.TrimSuffix("assay_"+whose+"_"+s+"_"+to.suffix, "_") }
	m.add(name("measured"), "What the "+whose+" was measured at.", of, v.Value*to.factor)
	if v.Limit != nil {
		m.add(name("limit"), "What decides: the least or the most that passes, as the label kind says.", of.with("kind", string(v.Limit.Kind)), v.Limit.Value*to.factor)
	}
	if v.Expected != 0 {
		m.add(name("expected"), "What should have been measured, by the certificate's source.", of, v.Expected*to.factor)
		m.add("assay_"+whose+"_measured_of_expected_ratio", "What was measured as a part of what was expected.", of, v.Ratio)
	}
}

func is(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// labels are alternating names and values. A label without a value is omitted.
type labels []string

func (l labels) with(more ...string) labels { return append(l[:len(l):len(l)], more...) }

var escaper = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

func (l labels) String() string {
	var b strings.Builder
	for i := 0; i < len(l); i += 2 {
		if l[i+1] == "" {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(l[i] + `="` + escaper.Replace(words.Line(l[i+1])) + `"`)
	}
	return "{" + b.String() + "}"
}

// metrics groups samples by name, as the format requires.
type metrics struct {
	names []string
	help  map[string]string
	lines map[string][]string
}

func (m *metrics) add(name, help string, l labels, v float64) {
	if m.help == nil {
		m.help, m.lines = map[string]string{}, map[string][]string{}
	}
	if m.help[name] == "" {
		m.names = append(m.names, name)
		m.help[name] = help
	}
	m.lines[name] = append(m.lines[name], name+l.String()+" "+strconv.FormatFloat(v, 'g', -1, 64))
}

func (m *metrics) bytes() []byte {
	var b bytes.Buffer
	for _, name := range m.names {
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s gauge\n", name, m.help[name], name)
		for _, line := range m.lines[name] {
			b.WriteString(line + "\n")
		}
	}
	return b.Bytes()
}
