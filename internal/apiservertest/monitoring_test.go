package apiservertest_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/assay-hpc/assay/harness/report"
	"github.com/assay-hpc/assay/internal/apiservertest"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/result"
)

// promtool runs promtool in a directory.
func promtool(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.Command(apiservertest.Program("promtool"), args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// TestChartAlerts: promtool accepts the alerts, and each fires when it should.
func TestChartAlerts(t *testing.T) {
	if !apiservertest.Available() {
		t.Skip("needs promtool: make test ONLY=chart")
	}
	dir := t.TempDir()
	for to, from := range map[string]string{"alerts.yaml": chart + "/files/alerts.yaml", "test.yaml": "../../.ci/kubernetes/chart/alerts_test.yaml"} {
		b, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, to), b, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	promtool(t, dir, "check", "rules", "--lint=all", "--lint-fatal", "alerts.yaml")
	promtool(t, dir, "test", "rules", "test.yaml")
}

// metricsOf are the metrics of the certificates of docs/examples, with one of them on six nodes, of
// which one has failed. They are as if made now.
func metricsOf(t *testing.T) []byte {
	t.Helper()
	var all []*certificate.Statement
	read := func(name string) *certificate.Statement {
		b, err := certificate.ReadFile("../../docs/examples/" + name + "/certificate.json")
		if err != nil {
			t.Fatal(err)
		}
		st, err := certificate.Parse(b)
		if err != nil {
			t.Fatal(err)
		}
		took := st.Predicate.Finished.Sub(st.Predicate.Started)
		st.Predicate.Finished = time.Now()
		st.Predicate.Started = st.Predicate.Finished.Add(-took)
		return st
	}
	for _, name := range []string{"h200-1x", "h200-2x", "h200-4x", "no-gpu"} {
		all = append(all, read(name))
	}
	for i := range 6 {
		st := read("h200-2x")
		st.Predicate.Node.Name = fmt.Sprintf("gpu-%d", i)
		if i == 5 {
			st.Predicate.Verdict, st.Predicate.Results[0].Verdict = result.Fail, result.Fail
		}
		all = append(all, st)
	}
	var b bytes.Buffer
	if err := report.Prometheus(&b, false, all...); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// A query is one of the dashboard.
type query struct{ panel, expr string }

// queries are the dashboard's, with its variables filled in as Grafana does for All.
func queries(t *testing.T) []query {
	t.Helper()
	b, err := os.ReadFile(chart + "/files/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
		Templating struct {
			List []struct{ Name, Type, AllValue string }
		}
	}
	if err := json.Unmarshal(b, &dashboard); err != nil {
		t.Fatal(err)
	}
	var variables []string
	for _, v := range dashboard.Templating.List {
		if v.Type == "query" {
			variables = append(variables, "$"+v.Name, v.AllValue)
		}
	}
	var out []query
	for _, p := range dashboard.Panels {
		for _, q := range p.Targets {
			out = append(out, query{p.Title, strings.NewReplacer(variables...).Replace(q.Expr)})
		}
	}
	return out
}

// TestChartDashboard: a real Prometheus, which has scraped the metrics of real certificates, has an
// answer to each query of the dashboard, and fires the alert of the node that failed.
func TestChartDashboard(t *testing.T) {
	if !apiservertest.Available() {
		t.Skip("needs Prometheus: make test ONLY=chart")
	}
	text := metricsOf(t)
	exporter, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		w.Write(text)
	})}
	go server.Serve(exporter)
	t.Cleanup(func() { server.Close() })

	dir := t.TempDir()
	rules, err := filepath.Abs(chart + "/files/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf("global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [%s]\nscrape_configs:\n  - {job_name: node, static_configs: [{targets: [%q]}]}\n", rules, exporter.Addr())
	if err := os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	address := apiservertest.StartPrometheus(t, dir)
	api := func(path string, values url.Values, to any) error {
		answer, err := http.Get("http://" + address + path + "?" + values.Encode())
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		b, err := io.ReadAll(answer.Body)
		if err != nil {
			return err
		}
		if answer.StatusCode != 200 {
			return fmt.Errorf("%s: %s", answer.Status, b)
		}
		return json.Unmarshal(b, to)
	}
	type response struct {
		Data struct {
			Result []struct {
				Metric map[string]string
				Value  []any
			}
		}
	}
	ask := func(expr string) (r response, err error) {
		err = api("/api/v1/query", url.Values{"query": {expr}}, &r)
		return r, err
	}
	var waited error
	for end := time.Now().Add(waiting); ; time.Sleep(300 * time.Millisecond) {
		var r response
		if r, waited = ask("count(assay_certificate_info)"); waited == nil && len(r.Data.Result) > 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("Prometheus has no metrics after %v: %v", waiting, waited)
		}
	}
	all := queries(t)
	for _, q := range all {
		if strings.Contains(q.expr, "$") {
			t.Errorf("%s: a variable is left in %s", q.panel, q.expr)
		}
		r, err := ask(q.expr)
		if err != nil || len(r.Data.Result) == 0 {
			t.Errorf("%s: %s: %d series, %v", q.panel, q.expr, len(r.Data.Result), err)
		}
	}
	if len(all) < 10 {
		t.Errorf("%d queries", len(all))
	}
	t.Logf("%d queries have an answer", len(all))
	var rulesNow struct {
		Data struct {
			Groups []struct {
				Rules []struct {
					Name, Health, LastError string
					Alerts                  []struct{ Labels map[string]string }
				}
			}
		}
	}
	var nodes map[string][]string
	want := map[string][]string{"AssayNodeFailed": {"gpu-5"}}
	for end := time.Now().Add(waiting); ; time.Sleep(300 * time.Millisecond) { // a rule may first be evaluated before anything is scraped
		if err := api("/api/v1/rules", nil, &rulesNow); err != nil {
			t.Fatal(err)
		}
		nodes = map[string][]string{}
		healthy := 0
		for _, g := range rulesNow.Data.Groups {
			for _, r := range g.Rules {
				if r.Health == "ok" {
					healthy++
				}
				for _, a := range r.Alerts {
					nodes[r.Name] = append(nodes[r.Name], a.Labels["node"])
				}
			}
		}
		if healthy == 6 && maps.EqualFunc(nodes, want, slices.Equal) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("alerts of nodes: %v; want %v; rules: %+v", nodes, want, rulesNow)
		}
	}
}
