package apiservertest_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/discovery"

	"github.com/assay-hpc/assay/internal/apiservertest"
)

// schemas writes the JSON Schema of each kind that the server serves into a
// directory, and returns the location in it that kubeconform takes. A schema is
// the server's own OpenAPI document of the kind's group and version, in which a
// field that it does not name is an error.
func (s *server) schemas(t *testing.T) string {
	t.Helper()
	client, err := discovery.NewDiscoveryClientForConfig(apiservertest.As(s.config, apiservertest.Admin))
	if err != nil {
		t.Fatal(err)
	}
	paths, err := client.OpenAPIV3().Paths()
	if err != nil {
		t.Fatal(err)
	}
	dir, kinds := t.TempDir(), 0
	for path, group := range paths {
		text, err := group.Schema("application/json")
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		var doc struct {
			Components struct {
				Schemas map[string]map[string]any `json:"schemas"`
			} `json:"components"`
		}
		if err := json.Unmarshal(text, &doc); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		for _, schema := range doc.Components.Schemas { // all of them: each file has those of its document
			closeObjects(schema)
		}
		for name, schema := range doc.Components.Schemas {
			list, _ := schema["x-kubernetes-group-version-kind"].([]any)
			for _, v := range list {
				kind, _ := v.(map[string]any)
				// As the path says: documents repeat what other groups share, such as DeleteOptions.
				at := strings.TrimPrefix(fmt.Sprintf("%v/%v", kind["group"], kind["version"]), "/")
				if !strings.HasSuffix(path, "/"+at) {
					continue
				}
				file := filepath.Join(dir, at, strings.ToLower(fmt.Sprint(kind["kind"]))+".json")
				text, err := json.Marshal(map[string]any{"$ref": "#/components/schemas/" + name, "components": doc.Components})
				if err == nil {
					err = os.MkdirAll(filepath.Dir(file), 0o755)
				}
				if err == nil {
					err = os.WriteFile(file, text, 0o644)
				}
				if err != nil {
					t.Fatal(err)
				}
				kinds++
			}
		}
	}
	t.Logf("%d kinds of %d groups", kinds, len(paths))
	return dir + "/{{ if ne .Group .ResourceAPIVersion }}{{ .Group }}/{{ end }}{{ .ResourceAPIVersion }}/{{ .ResourceKind }}.json"
}

// closeObjects makes fields that a schema does not name errors.
func closeObjects(v any) {
	schema, ok := v.(map[string]any)
	if !ok {
		return
	}
	fields, named := schema["properties"].(map[string]any)
	if _, others := schema["additionalProperties"]; named && !others && schema["x-kubernetes-preserve-unknown-fields"] != true {
		schema["additionalProperties"] = false
	}
	for _, field := range fields {
		closeObjects(field)
	}
	closeObjects(schema["items"])
	closeObjects(schema["additionalProperties"])
}

// kubeconform returns the resources that it judged, and what it said of those that it refused.
func kubeconform(t *testing.T, location string, text []byte) (valid map[string]int, refused []string) {
	t.Helper()
	cmd := exec.Command(apiservertest.Program("kubeconform"), "-strict", "-verbose", "-output", "json", "-schema-location", location, "-")
	cmd.Stdin = bytes.NewReader(text)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, failed := cmd.Output()
	var report struct {
		Resources []struct{ Kind, Name, Status, Msg string }
	}
	if err := json.Unmarshal(out, &report); err != nil || len(report.Resources) == 0 {
		t.Fatalf("kubeconform judged %d resources: %v, %v\n%s%s", len(report.Resources), failed, err, out, stderr.String())
	}
	valid = map[string]int{}
	for _, r := range report.Resources {
		if r.Status == "statusValid" {
			valid[r.Kind]++
		} else {
			refused = append(refused, fmt.Sprintf("%s %s: %s %s", r.Kind, r.Name, r.Status, r.Msg))
		}
	}
	if (failed != nil) != (len(refused) > 0) {
		t.Fatalf("kubeconform ended with %v and refused %d resources", failed, len(refused))
	}
	return valid, refused
}

// TestChartConforms: what the chart renders, and the manifests under examples, keep to the
// schemas of the server that the other tests run.
func TestChartConforms(t *testing.T) {
	s := startCluster(t)
	s.define(t, fileOf(t, operator, operatorSum, "example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml"))
	location := s.schemas(t)
	texts := map[string][]byte{
		"the chart":                 []byte(helm(t, rendered(needed...)...)),
		"the chart with everything": []byte(helm(t, append([]string{"template", "assay", chart, "--kube-version", "1.36.3"}, everything...)...)),
		"the chart without a gate":  []byte(helm(t, rendered(append(needed, "--set", "mode=certify")...)...)),
	}
	for _, file := range manifestFiles(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		texts[file] = text
	}
	kinds := map[string]int{}
	for name, text := range texts {
		valid, refused := kubeconform(t, location, text)
		for _, r := range refused {
			t.Errorf("%s: %s", name, r)
		}
		for kind, n := range valid {
			kinds[kind] += n
		}
	}
	t.Logf("%d texts conform: %v", len(texts), kinds)
	for _, kind := range []string{"DaemonSet", "ValidatingAdmissionPolicy", "MutatingAdmissionPolicy", "PrometheusRule", "MPIJob", "JobSet"} {
		if kinds[kind] == 0 {
			t.Errorf("no %s was judged", kind)
		}
	}

	// It would say so.
	whole := string(texts["the chart"])
	for _, wrong := range []struct{ what, old, bad, says string }{
		{"a field that there is not", "terminationGracePeriodSeconds", "terminationGraceSeconds", "terminationGraceSeconds"},
		{"a field of another type", "terminationGracePeriodSeconds: 60", "terminationGracePeriodSeconds: long", "want integer"},
		{"a kind that there is not", "\nkind: DaemonSet\n", "\nkind: DaemonSets\n", "could not find schema"},
		{"a version that there is not", "\napiVersion: apps/v1\n", "\napiVersion: apps/v9\n", "could not find schema"},
	} {
		bad := strings.Replace(whole, wrong.old, wrong.bad, 1)
		if bad == whole {
			t.Fatalf("%s: the chart has no %q", wrong.what, wrong.old)
		}
		if _, refused := kubeconform(t, location, []byte(bad)); len(refused) != 1 || !strings.Contains(refused[0], wrong.says) {
			t.Errorf("%s: kubeconform says %q", wrong.what, refused)
		}
	}
}
