package report

import (
	"bytes"
	"fmt"
	"io"
	"math"
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

// MetricLines is the largest number of lines of a certificate in Prometheus' format, without those
// of all objects.
const MetricLines = 400

// verdictValues are verdicts as the values of metrics: above 0 is a problem, and the largest of
// several is the worst.
var verdictValues = map[result.Verdict]float64{result.Skip: -1, result.Pass: 0, result.Warn: 1, result.Error: 2, result.Fail: 3}

const verdictHelp = "-1 skip, 0 pass, 1 warn, 2 could not run, 3 fail."

// Prometheus writes certificates as a text file for node_exporter's textfile collector. Of each
// certificate it writes at most [MetricLines] lines, the most important first: of objects those
// that are not well. With objects it writes all. Two certificates with the same suite, node, image
// and platform would be the same series; that is an error.
func Prometheus(w io.Writer, objects bool, certificates ...*certificate.Statement) error {
	var m metrics
	seen := map[string]bool{}
	for _, s := range certificates {
		of := labels{"suite", s.Predicate.Suite, "node", nodeName(s), "image", imageName(s), "platform", s.Predicate.Environment.Platform}
		key := of.String()
		if seen[key] {
			return fmt.Errorf("two certificates have the labels %s, and metrics can show but one of them: leave one out", key)
		}
		seen[key] = true
		m.room, m.left = MetricLines, 0
		if objects {
			m.room = math.MaxInt
		}
		m.certificate(of, s)
		if m.checks(of, s.Predicate.Results, objects); m.left > 0 {
			m.room = MetricLines
			m.add("assay_certificate_samples_left_out", "Samples that were not written, beyond the limit of lines.", of, float64(m.left))
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
	m.add("assay_certificate_verdict", "The certificate's verdict: "+verdictHelp, of, verdictValues[p.Verdict])
	for _, v := range result.Verdicts() {
		m.add("assay_certificate_checks", "Checks by verdict.", of.with("verdict", string(v)), float64(count[v]))
	}
	m.add("assay_certificate_finished_timestamp_seconds", "When the last check ended, in seconds since 1970.", of, float64(p.Finished.UnixMilli())/1e3)
	m.add("assay_certificate_duration_seconds", "How long all checks took.", of, p.Finished.Sub(p.Started).Seconds())
}

// checks adds the checks that were not skipped: verdicts, then values, then objects, then what the
// values are compared with.
func (m *metrics) checks(of labels, results []result.Result, objects bool) {
	each := func(add func(of labels, r *result.Result)) {
		for i := range results {
			if r := &results[i]; r.Verdict != result.Skip {
				add(of.with("check", r.ID, "component", r.Component), r)
			}
		}
	}
	each(func(of labels, r *result.Result) {
		m.add("assay_check_verdict", "The check's verdict: "+verdictHelp, of, verdictValues[r.Verdict])
	})
	each(func(of labels, r *result.Result) { m.measured("check", of, r.Measured) })
	each(func(of labels, r *result.Result) {
		for i := range r.Objects {
			if o := &r.Objects[i]; objects || worthy(o.Verdict) {
				m.object(of.with("object", o.Name, "peer", o.Peer, "quantity", o.Quantity, "id", o.ID), o)
			}
		}
	})
	each(func(of labels, r *result.Result) { m.ratio("check", of, r.Measured) })
	each(func(of labels, r *result.Result) { m.limit("check", of, r.Measured) })
}

func (m *metrics) object(of labels, o *result.Object) {
	m.add("assay_object_verdict", "The object's verdict in the check: "+verdictHelp, of, verdictValues[o.Verdict])
	m.measured("object", of, o.Measured)
	m.ratio("object", of, o.Measured)
	m.limit("object", of, o.Measured)
}

// scaled returns the base unit of a value, and the name of a metric of it.
func scaled(unit, name string) (scale, string) {
	to, ok := scales[unit]
	if !ok {
		to = scale{"", unit, 1}
	}
	return to, strings.TrimSuffix(name+"_"+to.suffix, "_")
}

// measured adds the value of a check or an object.
func (m *metrics) measured(whose string, of labels, v *result.Measurement) {
	if v != nil {
		to, name := scaled(v.Unit, "assay_"+whose+"_measured")
		m.add(name, "What the "+whose+" was measured at.", of.with("unit", to.unit), v.Value*to.factor)
	}
}

func (m *metrics) ratio(whose string, of labels, v *result.Measurement) {
	if v != nil && v.Expected != 0 {
		to, _ := scaled(v.Unit, "")
		m.add("assay_"+whose+"_measured_of_expected_ratio", "What was measured as a part of what was expected.", of.with("unit", to.unit), v.Ratio)
	}
}

func (m *metrics) limit(whose string, of labels, v *result.Measurement) {
	if v != nil && v.Limit != nil {
		to, name := scaled(v.Unit, "assay_"+whose+"_limit")
		m.add(name, "What decides: the least or the most that passes, as the label kind says.", of.with("unit", to.unit, "kind", string(v.Limit.Kind)), v.Limit.Value*to.factor)
	}
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
	room  int // lines that the certificate may still have
	left  int // samples that found no room
}

func (m *metrics) add(name, help string, l labels, v float64) {
	if m.help == nil {
		m.help, m.lines = map[string]string{}, map[string][]string{}
	}
	lines := 1
	if m.help[name] == "" {
		lines = 3
	}
	const reserve = 3 // for how many were left out
	if m.room-lines < reserve && name != "assay_certificate_samples_left_out" {
		m.left++
		return
	}
	m.room -= lines
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
