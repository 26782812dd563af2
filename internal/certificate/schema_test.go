package certificate_test

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/certificate/certificatetest"
	"github.com/assay-hpc/assay/internal/result"
)

// full has every field.
func full(t *testing.T) string {
	t.Helper()
	begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s := certificate.New(certificate.Predicate{
		Suite: "image", Started: begin, Finished: begin.Add(1500 * time.Millisecond), Harness: certificate.Harness{Version: "v1", Commit: "c"},
		Environment: certificate.Environment{Platform: "linux/amd64", Kernel: "k", OS: "o", OSID: "i", CPU: "c", CPUs: 2, Target: "t", Recipe: "r"},
		Results: []result.Result{
			{
				ID: "a", Component: "c", Title: "A", Verdict: result.Pass, Reason: "good", Seconds: 0.25, Output: "x\n",
				Measured: &result.Measurement{Value: 3.5, Unit: "GB/s", Expected: 4, Source: "sheet", Ratio: 0.875},
			},
			{ID: "b", Title: "B", Verdict: result.Fail, Reason: "broken", Remedy: "mend it"},
			{ID: "c", Title: "C", Verdict: result.Skip, Reason: "no GPU"},
		},
	})
	if err := s.SetSubject("ghcr.io/x/assay", "sha256:"+strings.Repeat("0a", 32)); err != nil {
		t.Fatal(err)
	}
	b, err := s.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func nodeText(t *testing.T) string {
	t.Helper()
	b, err := certificatetest.Node(4).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestSchemaTakesCertificates(t *testing.T) {
	if err := certificatetest.Validate([]byte(full(t))); err != nil {
		t.Error(err)
	}
	if err := certificatetest.Validate([]byte(nodeText(t))); err != nil {
		t.Error(err)
	}
	for _, results := range [][]result.Result{
		nil,
		{{ID: "a", Title: "A", Verdict: result.Skip, Reason: "r"}},
		{{ID: "a", Title: "A", Verdict: result.Pass}},
		{{ID: "a", Title: "A", Verdict: result.Pass}, {ID: "b", Verdict: result.Error, Reason: "r"}},
	} {
		b, err := certificate.New(certificate.Predicate{Suite: "s", Results: results}).Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if err := certificatetest.Validate(b); err != nil {
			t.Errorf("%s: %v", b, err)
		}
	}
}

func TestSchemaRefuses(t *testing.T) {
	good := full(t)
	for name, edit := range map[string][2]string{
		"unknown field":         {`"suite":`, `"extra":1,"suite":`},
		"unknown in a result":   {`"title":"A"`, `"title":"A","tilte":"A"`},
		"field missing":         {`"suite":"image",`, ``},
		"other type":            {"Statement/v1", "Statement/v2"},
		"other predicate":       {"certificate/v1", "certificate/v2"},
		"other schema":          {`"schema":1`, `"schema":2`},
		"verdict not borne":     {`"verdict":"fail","started"`, `"verdict":"pass","started"`},
		"unknown verdict":       {`"verdict":"skip"`, `"verdict":"good"`},
		"skip without reason":   {`"reason":"no GPU",`, ``},
		"failure without words": {`"reason":"broken"`, `"reason":" "`},
		"finer time":            {`05Z`, `05.6781Z`},
		"no such day":           {`2026-01-02`, `2026-02-30`},
		"local time":            {`05Z`, `05+01:00`},
		"no subject name":       {`"name":"ghcr.io/x/assay"`, `"name":""`},
		"no digest":             {`"digest":{"sha256":"` + strings.Repeat("0a", 32) + `"}`, `"digest":{}`},
		"digest too short":      {`"sha256":"0a`, `"sha256":"`},
		"unit missing":          {`"unit":"GB/s",`, ``},
		"expected from nowhere": {`"source":"sheet",`, ``},
		"negative time":         {`"seconds":0.25`, `"seconds":-1`},
		"number as text":        {`"value":3.5`, `"value":"3.5"`},
		"results no list":       {`"results":[`, `"results":{},"x":[`},
	} {
		bad := strings.Replace(good, edit[0], edit[1], 1)
		if bad == good {
			t.Errorf("%s: the edit changes nothing", name)
		}
		if certificatetest.Validate([]byte(bad)) == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// TestSchemaFields wants the schema to have the fields of the types, no more and
// no less, and to require those that are always written.
func TestSchemaFields(t *testing.T) {
	type object struct {
		Properties           map[string]any
		Required             []string
		AdditionalProperties any
	}
	var schema struct {
		object
		Defs map[string]object `json:"$defs"`
	}
	if err := json.Unmarshal(certificate.Schema(), &schema); err != nil {
		t.Fatal(err)
	}
	schema.Defs["statement"] = schema.object
	for name, v := range map[string]any{
		"statement": certificate.Statement{}, "subject": certificate.Subject{}, "predicate": certificate.Predicate{}, "harness": certificate.Harness{},
		"environment": certificate.Environment{}, "result": result.Result{}, "measurement": result.Measurement{},
		"limit": result.Limit{}, "spread": result.Spread{}, "object": result.Object{}, "curve": result.Curve{}, "node": certificate.Node{},
		"gpu": certificate.GPU{}, "port": certificate.Port{}, "topology": certificate.Topology{},
	} {
		var all, required []string
		for _, f := range reflect.VisibleFields(reflect.TypeOf(v)) {
			if f.Anonymous || !f.IsExported() {
				continue
			}
			key, opt, _ := strings.Cut(f.Tag.Get("json"), ",")
			all = append(all, key)
			if opt == "" {
				required = append(required, key)
			}
		}
		slices.Sort(all)
		def := schema.Defs[name]
		if d := cmp.Diff(all, slices.Sorted(maps.Keys(def.Properties))); d != "" {
			t.Errorf("%s (-type +schema):\n%s", name, d)
		}
		if d := cmp.Diff(required, def.Required); d != "" {
			t.Errorf("%s: required (-type +schema):\n%s", name, d)
		}
		if def.AdditionalProperties != false {
			t.Errorf("%s: other fields are let through", name)
		}
	}
}
