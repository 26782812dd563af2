package report

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/certificate/certificatetest"
	"github.com/assay-hpc/assay/internal/golden"
	"github.com/assay-hpc/assay/internal/result"
)

// samples reads metrics as Prometheus does: values by name and labels.
func samples(t testing.TB, text []byte) map[string]float64 {
	t.Helper()
	p := expfmt.NewTextParser(model.LegacyValidation)
	families, err := p.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	out := map[string]float64{}
	for name, f := range families {
		for _, m := range f.GetMetric() {
			set := model.Metric{model.MetricNameLabel: model.LabelValue(name)}
			for _, l := range m.GetLabel() {
				set[model.LabelName(l.GetName())] = model.LabelValue(l.GetValue())
			}
			key := set.String()
			if _, ok := out[key]; ok {
				t.Errorf("%s is there twice", key)
			}
			out[key] = m.GetGauge().GetValue()
		}
	}
	return out
}

func prometheus(t testing.TB, in ...*certificate.Statement) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := Prometheus(&b, true, in...); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestPrometheus(t *testing.T) {
	var b bytes.Buffer
	if err := Prometheus(&b, false, sample()); err != nil {
		t.Fatal(err)
	}
	text := b.Bytes()
	golden.Check(t, "metrics.prom", string(text))
	got := samples(t, text)
	const of = `image="ghcr.io/x/assay", platform="linux/amd64", suite="image"`
	for key, want := range map[string]float64{
		`assay_certificate_verdict{` + of + `}`:                                             3,
		`assay_certificate_checks{` + of + `, verdict="skip"}`:                              2,
		`assay_certificate_finished_timestamp_seconds{` + of + `}`:                          1767323046.234,
		`assay_check_verdict{check="libraries", ` + of + `}`:                                3,
		`assay_check_verdict{check="slow", ` + of + `}`:                                     2,
		`assay_check_verdict{check="component/nccl/load", component="nccl", ` + of + `}`:    0,
		`assay_check_measured_bytes_per_second{check="bandwidth", ` + of + `, unit="B/s"}`:  187.5e9,
		`assay_check_measured_of_expected_ratio{check="bandwidth", ` + of + `, unit="B/s"}`: 0.9375,
	} {
		if v, ok := got[key]; !ok || math.Abs(v-want) > 1e-12*want {
			t.Errorf("%s = %v (%v); want %v", key, v, ok, want)
		}
	}
	if strings.Contains(string(text), "NaN") {
		t.Error("a value is not a number")
	}
}

// TestPrometheusNode: a node's certificate has series for each object.
func TestPrometheusNode(t *testing.T) {
	text := prometheus(t, certificatetest.Node(8), sample())
	got := samples(t, text)
	key := func(metric, check, id, labels, unit string) string {
		return metric + `{check="` + check + `", id="` + id + `", ` + labels + `platform="linux/amd64", suite="node", ` + unit + `}`
	}
	const (
		gpu  = "GPU-00000000-1111-2222-3333-444444444444"
		on   = `node="node07", object="GPU 0", `
		rate = `unit="B/s"`
	)
	for key, want := range map[string]float64{
		`assay_certificate_verdict{node="node07", platform="linux/amd64", suite="node"}`:                                                             3,
		`assay_certificate_checks{node="node07", platform="linux/amd64", suite="node", verdict="warn"}`:                                              1,
		`assay_check_verdict{check="health/xid", node="node07", platform="linux/amd64", suite="node"}`:                                               1,
		`assay_check_limit_bytes_per_second{check="bandwidth/h2d", kind="atLeast", node="node07", platform="linux/amd64", suite="node", unit="B/s"}`: 48e9,

		`assay_object_verdict{check="bandwidth/h2d", id="` + gpu + `", ` + on + `platform="linux/amd64", suite="node"}`:                                                               3,
		key("assay_object_measured_bytes_per_second", "bandwidth/h2d", gpu, on, rate):                                                                                                 31.2e9,
		key("assay_object_measured_celsius", "health/gpu/temperature", gpu, on, `unit="°C"`):                                                                                          41,
		key("assay_object_limit_celsius", "health/gpu/temperature", gpu, `kind="atLeast", `+on, `unit="°C"`):                                                                          5,
		`assay_object_measured_bytes_per_second{check="bandwidth/p2p", id="` + gpu + `", ` + on + `peer="GPU 3", platform="linux/amd64", quantity="write", suite="node", unit="B/s"}`: 389e9,
	} {
		if v, ok := got[key]; !ok || math.Abs(v-want) > 1e-12*want {
			t.Errorf("%s = %v (%v); want %v", key, v, ok, want)
		}
	}
}

// TestPrometheusLint: what promtool check metrics looks at finds nothing.
func TestPrometheusLint(t *testing.T) {
	for name, s := range map[string]*certificate.Statement{"image": sample(), "node": certificatetest.Node(8), "hostile": hostile()} {
		problems, err := promlint.New(bytes.NewReader(prometheus(t, s))).Lint()
		if err != nil || len(problems) > 0 {
			t.Errorf("%s: %v, %v", name, problems, err)
		}
	}
}

func TestPrometheusEscapes(t *testing.T) {
	got := samples(t, prometheus(t, sample(), hostile(), certificate.New(certificate.Predicate{Suite: "s"})))
	found := 0
	for key := range got {
		if strings.Contains(key, `check="x\"y\\z"`) && strings.Contains(key, `component="<c>\\n"`) {
			found++
		}
	}
	if found != 1 { // its verdict
		t.Errorf("%d series of the hostile check; want 1", found)
	}
}

// TestMetricLines: a certificate has a bounded number of lines, whatever it contains; what is left out
// is counted, and verdicts are not.
func TestMetricLines(t *testing.T) {
	many := certificatetest.Node(8)
	for i := range 350 {
		r := many.Predicate.Results[0]
		r.ID, r.Verdict, r.Reason = fmt.Sprintf("more/%d", i), result.Fail, "no"
		r.Measured = &result.Measurement{Value: 1, Unit: "W"}
		r.Objects = []result.Object{{Name: "GPU 0", Verdict: result.Fail, Reason: "no"}}
		many.Predicate.Results = append(many.Predicate.Results, r)
	}
	for name, s := range map[string]*certificate.Statement{"node": certificatetest.Node(8), "many": many} {
		var b bytes.Buffer
		if err := Prometheus(&b, false, s); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(b.String(), "\n"); n > MetricLines || name == "many" && n < MetricLines-5 {
			t.Errorf("%s: %d lines", name, n)
		}
		got := samples(t, b.Bytes())
		verdicts, left := 0, false
		for key := range got {
			if strings.HasPrefix(key, "assay_check_verdict{") {
				verdicts++
			}
			left = left || strings.HasPrefix(key, "assay_certificate_samples_left_out{")
		}
		count := result.Count(s.Predicate.Results)
		if want := len(s.Predicate.Results) - count[result.Skip]; verdicts != want || left != (name == "many") {
			t.Errorf("%s: %d verdicts of %d, left out: %v", name, verdicts, want, left)
		}
	}
}

func TestPrometheusRefuses(t *testing.T) {
	err := Prometheus(&bytes.Buffer{}, false, sample(), sample())
	if err == nil || !strings.Contains(err.Error(), `suite="image"`) {
		t.Errorf("two certificates of the same series: %v", err)
	}
}
