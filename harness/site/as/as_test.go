package as

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/certificate/certificatetest"
	"github.com/assay-hpc/assay/internal/result"
)

// node returns a machine's certificate with some results.
func node(results ...result.Result) *certificate.Statement {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	return certificate.New(certificate.Predicate{
		Suite: "quick", Started: at, Finished: at, Results: results, Node: &certificate.Node{Name: "gpu-1", Identity: []string{"dmi x"}},
	})
}

var (
	passed  = result.Result{ID: "platform", Verdict: result.Pass}
	skipped = result.Result{ID: "mesh", Verdict: result.Skip, Reason: "there is no port"}
	warned  = result.Result{ID: "health/gpu/xid", Verdict: result.Warn, Reason: "Xid 94"}
	broken  = result.Result{ID: "diag/memory", Verdict: result.Error, Reason: "no result within 1m0s: 'x'"}
	failed  = result.Result{ID: "health/gpu/nvlink", Verdict: result.Fail, Reason: "GPU 3: <2> links are down", Remedy: "reset it", Objects: []result.Object{
		{Name: "GPU 2", Verdict: result.Pass}, {Name: "GPU 3", Verdict: result.Fail, Reason: "<2> links are down"},
	}}
)

// TestForms: the documents and exit statuses of all forms for all verdicts.
func TestForms(t *testing.T) {
	const event = `{"version":1,"events":[{"version":1,"agent":"assay","componentClass":"Node","checkName":"Assay",`
	const eventEnd = `"generatedTimestamp":"2026-03-01T12:00:00Z","nodeName":"gpu-1","processingStrategy":"EXECUTE_REMEDIATION"}]}`
	for _, tt := range []struct {
		form   string
		of     []result.Result
		status int
		want   string
	}{
		{"health-validation", []result.Result{passed, skipped}, 0, `{"overall_severity":"PASS","affected_components":[]}`},
		{"health-validation", []result.Result{passed, warned}, 0, `{"overall_severity":"WARNING","affected_components":[{"category":"XID","max_severity":"WARNING","check_ids":["health/gpu/xid"],"entities":[]}]}`},
		{"health-validation", []result.Result{warned, broken, failed}, 1, `{"overall_severity":"CRITICAL","affected_components":[{"category":"NVLINK","max_severity":"CRITICAL","check_ids":["health/gpu/nvlink"],"entities":["GPU 3"]},` +
			`{"category":"GPU","max_severity":"UNKNOWN","check_ids":["diag/memory"],"entities":[]},{"category":"XID","max_severity":"WARNING","check_ids":["health/gpu/xid"],"entities":[]}]}`},
		{"health-validation", []result.Result{passed, broken, warned}, 1, `{"overall_severity":"UNKNOWN","affected_components":[{"category":"GPU","max_severity":"UNKNOWN","check_ids":["diag/memory"],"entities":[]},` +
			`{"category":"XID","max_severity":"WARNING","check_ids":["health/gpu/xid"],"entities":[]}]}`},
		{"health-validation", []result.Result{skipped}, 1, `{"overall_severity":"UNKNOWN","affected_components":[]}`},

		{"nvsentinel", []result.Result{passed, skipped, warned}, 0, event + `"isHealthy":true,"message":"assay: suite quick, 1 checks passed","recommendedAction":"NONE",` + eventEnd},
		{"nvsentinel", []result.Result{broken, failed}, 1, event + `"isFatal":true,"message":"assay: health/gpu/nvlink: GPU 3: <2> links are down; reset it","recommendedAction":"CONTACT_SUPPORT","errorCode":["health/gpu/nvlink"],` + eventEnd},
		{"nvsentinel", []result.Result{passed, broken}, 3, event + `"message":"assay: not run: diag/memory: no result within 1m0s: 'x'","recommendedAction":"NONE","errorCode":["diag/memory"],` + eventEnd},
		{"nvsentinel", []result.Result{skipped}, 3, event + `"message":"assay: every check was skipped: nothing was shown","recommendedAction":"NONE",` + eventEnd},

		{"soperator", []result.Result{passed, skipped, warned}, 0, `{"status":"PASS","tests":[{"name":"quick","checks":[{"name":"platform","state":{"status":"PASS"}},{"name":"health/gpu/xid","state":{"status":"PASS"}}]}]}`},
		{"soperator", []result.Result{broken, failed}, 1, `{"status":"FAIL","tests":[{"name":"quick","checks":[{"name":"diag/memory","state":{"status":"ERROR","error":"no result within 1m0s: 'x'"}},{"name":"health/gpu/nvlink","state":{"status":"FAIL","error":"GPU 3: <2> links are down"}}]}]}`},
		{"soperator", []result.Result{passed, broken}, 0, `{"status":"ERROR","tests":[{"name":"quick","checks":[{"name":"platform","state":{"status":"PASS"}},{"name":"diag/memory","state":{"status":"ERROR","error":"no result within 1m0s: 'x'"}}]}]}`},
		{"soperator", []result.Result{skipped}, 0, `{"status":"ERROR","tests":[{"name":"quick","checks":[]}]}`},

		{"nhc", []result.Result{passed, skipped, warned}, 0, ""},
		{"nhc", []result.Result{broken, failed}, 1, "ERROR:  nhc:  Health check failed:  health/gpu/nvlink: GPU 3: <2> links are down; reset it"},
		{"nhc", []result.Result{passed, broken}, 3, "ERROR:  nhc:  Health check failed:  not run: diag/memory: no result within 1m0s: ’x’"},
		{"nhc", []result.Result{skipped}, 3, "ERROR:  nhc:  Health check failed:  every check was skipped: nothing was shown"},
	} {
		f, err := Lookup(tt.form)
		if err != nil {
			t.Fatal(err)
		}
		if tt.want != "" {
			tt.want += "\n"
		}
		st := node(tt.of...)
		if got, err := f.Document(st, none); err != nil || string(got) != tt.want {
			t.Errorf("%s, %s: %v\n got %s\nwant %s", tt.form, st.Predicate.Verdict, err, got, tt.want)
		}
		if got := f.Status(st, none); got != tt.status {
			t.Errorf("%s, %s: status %d; want %d", tt.form, st.Predicate.Verdict, got, tt.status)
		}
	}
}

func none(string) string { return "" }

// TestWhole: a whole certificate is one line in every form, whatever its texts contain; and each form
// has a status for it.
func TestWhole(t *testing.T) {
	st := certificatetest.Node(8)
	st.Predicate.Results[0].Verdict, st.Predicate.Results[0].Reason = result.Fail, "line\x1b[31m\nbreak\u2028 \xff"
	for _, name := range Names() {
		f, err := Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		doc, err := f.Document(st, none)
		if err != nil || bytes.Count(doc, []byte("\n")) != 1 || !bytes.HasSuffix(doc, []byte("\n")) || bytes.ContainsRune(doc, '\x1b') {
			t.Errorf("%s: %v: %q", name, err, doc)
		}
		if name != "nhc" && !json.Valid(doc) {
			t.Errorf("%s: no JSON: %s", name, doc)
		}
		if got := f.Status(st, none); got != 1 {
			t.Errorf("%s: status %d of a failure", name, got)
		}
	}
}

// TestRefused: what no form can state.
func TestRefused(t *testing.T) {
	if _, err := Lookup("nagios"); err == nil || !strings.Contains(err.Error(), "health-validation, nvsentinel, soperator, nhc") {
		t.Errorf("another name: %v", err)
	}
	image, cluster := node(passed), node(passed)
	image.Predicate.Node = nil
	cluster.Predicate.Node, cluster.Predicate.Machines = nil, []certificate.Machine{{Name: "a"}, {Name: "b"}}
	for _, f := range forms {
		if _, err := f.Document(image, none); err == nil || !strings.Contains(err.Error(), "suite quick says nothing about a machine") {
			t.Errorf("%s of an image: %v", f.Name, err)
		}
		if _, err := f.Document(cluster, none); err == nil || !strings.Contains(err.Error(), "several machines") {
			t.Errorf("%s of a cluster: %v", f.Name, err)
		}
	}
}

// TestStoreOnly: NVSentinel's checks hold no pod back then.
func TestStoreOnly(t *testing.T) {
	f, _ := Lookup("nvsentinel")
	env := map[string]string{"PROCESSING_STRATEGY": "STORE_ONLY"}
	getenv := func(name string) string { return env[name] }
	doc, err := f.Document(node(failed), getenv)
	if err != nil || !strings.Contains(string(doc), `"processingStrategy":"STORE_ONLY"`) || f.Status(node(failed), getenv) != 0 {
		t.Errorf("%v: %s, status %d", err, doc, f.Status(node(failed), getenv))
	}
	env["PROCESSING_STRATEGY"] = "STORE"
	if _, err := f.Document(node(failed), getenv); err == nil || !strings.Contains(err.Error(), "PROCESSING_STRATEGY") {
		t.Errorf("a strategy that is none: %v", err)
	}
}
