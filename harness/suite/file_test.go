package suite

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-hpc/assay/internal/result"
)

const example = `# a suite
version: 1
title: it is fit
limit: 2m
checks:
  - run: look
  - run: measure
    id: gpu/copy
    needs: [look]
    timeout: 30s
    limits:
      h2d: {fraction: 0.8, of: peak}
      d2h: {value: 40}
    with: {size: 4, names: [a, b]}
`

type measureParams struct {
	Size  int      `yaml:"size"`
	Names []string `yaml:"names"`
}

// kinds are two: look has two checks, measure one for each name.
func kinds() []Kind {
	run := func(context.Context, *Env) result.Result { return result.Passed("") }
	return []Kind{
		{Name: "look", Make: func(e *Entry) ([]Check, error) {
			return []Check{{ID: e.ID + "/left", Run: run}, {ID: e.ID + "/right", Run: run}}, e.Decode(&struct{}{})
		}},
		{Name: "measure", Make: func(e *Entry) ([]Check, error) {
			p := measureParams{Size: 7, Names: []string{"x"}}
			if err := e.Decode(&p); err != nil {
				return nil, err
			}
			var out []Check
			for _, n := range p.Names {
				out = append(out, Check{ID: e.ID + "/" + n, Title: fmt.Sprint(p.Size), Timeout: time.Minute, Run: run})
			}
			return out, nil
		}},
	}
}

func parse(text string) (*File, error) { return ParseFile("own.yaml", strings.NewReader(text)) }

func TestFile(t *testing.T) {
	f, err := parse(example)
	if err != nil {
		t.Fatal(err)
	}
	if f.Title != "it is fit" || f.Limit != 2*time.Minute {
		t.Errorf("%q, %v", f.Title, f.Limit)
	}
	place := f.Entries[1].Place()
	want := map[string]result.Rule{"h2d": {Fraction: 0.8, Of: "peak", Source: place}, "d2h": {Value: 40, Source: place}}
	if d := cmp.Diff(want, f.Entries[1].Limits); d != "" {
		t.Error(d)
	}
	if got := f.Entries[1].Place(); got != "own.yaml:7" {
		t.Errorf("place = %s", got)
	}
	checks, err := f.Suite("own", kinds()).Checks(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range checks {
		got = append(got, fmt.Sprintf("%s %q %v %v", c.ID, c.Title, c.Needs, c.Timeout))
	}
	if d := cmp.Diff([]string{
		`look/left "" [] 0s`, `look/right "" [] 0s`,
		`gpu/copy/a "4" [look/left look/right] 30s`, `gpu/copy/b "4" [look/left look/right] 30s`,
	}, got); d != "" {
		t.Error(d)
	}
}

// TestFileRefuses changes one thing; the error names the line, and what is right.
func TestFileRefuses(t *testing.T) {
	for name, tt := range map[string]struct{ old, new, want string }{
		"version":          {"version: 1", "version: 2", "own.yaml:2: version: 2; this harness reads version 1"},
		"no title":         {"title: it is fit", "", "title: it is missing"},
		"unknown key":      {"limit: 2m", "limits: 2m", `own.yaml:4: there is no key "limits" here; did you mean "limit"?`},
		"unknown in check": {"timeout: 30s", "timeuot: 30s", `own.yaml:10: there is no key "timeuot" here; did you mean "timeout"?`},
		"limit":            {"limit: 2m", "limit: 2 minutes", `limit: "2 minutes" is not a time such as 30s`},
		"timeout":          {"timeout: 30s", "timeout: -1s", "own.yaml:7: timeout:"},
		"no checks":        {example[strings.Index(example, "checks:"):], "checks: []", "checks: want a list of at least one"},
		"check no mapping": {"- run: look", "- look", "own.yaml:6: want keys and values"},
		"no kind":          {"- run: look", "- id: look", "own.yaml:6: run: it is missing"},
		"unknown kind":     {"- run: look", "- run: lok", `own.yaml:6: run: there is no kind of check "lok"; did you mean "look"? (all: look, measure)`},
		"id twice":         {"id: gpu/copy", "id: look", `own.yaml:7: id: two entries are called "look"`},
		"id of nothing":    {"id: gpu/copy", "id: /copy", "own.yaml:7: id:"},
		"id as pattern":    {"id: gpu/copy", "id: gpu/*", "own.yaml:7: id:"},
		"id up the tree":   {"id: gpu/copy", "id: ../x", `own.yaml:7: id: "../x"; want`},
		"id with a dot":    {"id: gpu/copy", "id: gpu/./x", "own.yaml:7: id:"},
		"id of two slashs": {"id: gpu/copy", "id: gpu//x", "own.yaml:7: id:"},
		"id of two lines":  {"id: gpu/copy", `id: "a\nb"`, `own.yaml:7: id: "a\nb"; want`},
		"id too long":      {"id: gpu/copy", "id: " + strings.Repeat("x", 101), "own.yaml:7: id:"},
		"id as a flag":     {"id: gpu/copy", "id: -x", "own.yaml:7: id:"},
		"unknown need":     {"needs: [look]", "needs: [lock]", `own.yaml:7: needs: there is no check or entry "lock"; the nearest is "look"`},
		"needs itself":     {"needs: [look]", "needs: [gpu/copy/b]", "needs itself"},
		"unknown with":     {"{size: 4,", "{sise: 4,", `own.yaml:14: there is no key "sise" here; did you mean "size"?`},
		"with of a type":   {"{size: 4,", "{size: four,", "line 14"},
		"with no mapping":  {"with: {size: 4, names: [a, b]}", "with: 4", "own.yaml:14: want keys and values"},
		"both limits":      {"{value: 40}", "{value: 40, fraction: 0.5}", "own.yaml:13: want either value or fraction"},
		"no limit":         {"{value: 40}", "{}", "own.yaml:13: want either value or fraction"},
		"of nothing":       {"of: peak}", "}", "own.yaml:12: of:"},
		"of a value":       {"{value: 40}", "{value: 40, of: peak}", "own.yaml:13: of: a value"},
		"no YAML":          {"version: 1", "version: [", "own.yaml:"},
		"empty":            {example, "# nothing\n", "own.yaml: it is empty"},
		"two documents":    {example, example + "---\n" + example, "own.yaml: there is more behind its first YAML document"},
		"no end":           {example, example + "...\n{", "own.yaml: there is more behind its first YAML document"},
	} {
		text := strings.Replace(example, tt.old, tt.new, 1)
		if text == example {
			t.Errorf("%s: the edit changes nothing", name)
		}
		f, err := parse(text)
		if err == nil {
			_, err = f.Checks(kinds())
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "own.yaml") {
			t.Errorf("%s: %v; want %s", name, err, tt.want)
		}
	}
	if _, err := ParseFile("f", strings.NewReader(strings.Repeat("#", maxFile+1))); err == nil {
		t.Error("a file without end was read")
	}
}

func TestEntrySelect(t *testing.T) {
	ids := []string{"gpu/ecc", "gpu/mig", "node/shm"}
	for name, tt := range map[string]struct {
		only, skip []string
		want       string
	}{
		"all":                 {want: "gpu/ecc gpu/mig node/shm"},
		"only a group":        {only: []string{"gpu"}, want: "gpu/ecc gpu/mig"},
		"both":                {only: []string{"gpu"}, skip: []string{"*/ecc"}, want: "gpu/mig"},
		"skips what is not":   {skip: []string{"nope/x"}, want: `own.yaml:6: with: skip: no check of look matches "nope/x"; the nearest is "node/shm"`},
		"only what is not":    {only: []string{"gpu", "gpu/eccc"}, want: `own.yaml:6: with: only: no check of look matches "gpu/eccc"; the nearest is "gpu/ecc"`},
		"not a pattern":       {skip: []string{"gpu/["}, want: "own.yaml:6: with: skip: no check"},
		"leaves nothing":      {only: []string{"node"}, skip: []string{"node/shm"}, want: "own.yaml:6: with: only and skip leave no check of look (there are gpu/ecc, gpu/mig, node/shm)"},
		"nothing by a nobody": {skip: []string{""}, want: "own.yaml:6: with: skip: no check"},
	} {
		f, err := parse(example)
		if err != nil {
			t.Fatal(err)
		}
		wanted, err := f.Entries[0].Select(tt.only, tt.skip, ids)
		got := ""
		for _, id := range ids {
			if err == nil && wanted(id) {
				got += " " + id
			}
		}
		if got = strings.TrimSpace(got); err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, tt.want) || err == nil && got != tt.want {
			t.Errorf("%s: Select(%q, %q) = %s; want %s", name, tt.only, tt.skip, got, tt.want)
		}
	}
}

func TestCovers(t *testing.T) {
	for _, tt := range []struct {
		pattern, id string
		want        bool
	}{
		{"mpi/ranks", "mpi/ranks", true}, {"mpi", "mpi/ranks", true}, {"mpi*", "mpi/ranks", true}, {"component/*", "component/nccl/load", true},
		{"component/*/load", "component/nccl/load", true}, {"*/load", "component/nccl/load", false}, {"ranks", "mpi/ranks", false},
		{"component/nc", "component/nccl", false}, {"*", "a/b/c", true},
	} {
		if got := Covers(tt.pattern, tt.id); got != tt.want {
			t.Errorf("Covers(%q, %q) = %v; want %v", tt.pattern, tt.id, got, tt.want)
		}
	}
}

func FuzzParseFile(f *testing.F) {
	f.Add(example)
	f.Add("version: 1\ntitle: t\nchecks:\n- run: look\n  with: &a {b: *a}\n")
	f.Fuzz(func(t *testing.T, text string) {
		file, err := parse(text)
		if err != nil {
			return
		}
		checks, err := file.Checks(kinds())
		if err == nil && Validate(checks) != nil {
			t.Error("checks that are no list were made")
		}
	})
}

func TestTell(t *testing.T) {
	var got []string
	_, err := Run(t.Context(), &Env{}, []Check{{ID: "a", Run: func(ctx context.Context, _ *Env) result.Result {
		Tell(ctx, "half way")
		return result.Passed("")
	}}}, Options{Observe: func(e Event) {
		switch {
		case e.Result != nil:
			got = append(got, "end")
		case e.Text != "":
			got = append(got, e.Text)
		default:
			got = append(got, "start")
		}
	}})
	// What is told last may be lost with the end.
	if err != nil || got[0] != "start" || got[len(got)-1] != "end" {
		t.Errorf("%v, %v", got, err)
	}
	Tell(t.Context(), "to nobody")
}

// TestEarlier has results of another run taken over, and what needs them run.
func TestEarlier(t *testing.T) {
	ran := false
	got := mustRun(t, t.Context(), []Check{
		{ID: "done", Run: always(result.Failed("again"))},
		{ID: "next", Needs: []string{"done"}, Run: func(context.Context, *Env) result.Result { ran = true; return result.Passed("") }},
	}, Options{Earlier: []result.Result{{ID: "done", Title: "as it was", Verdict: result.Pass}, {ID: "gone", Verdict: result.Pass}}})
	if got["done"].Title != "as it was" || got["done"].Verdict != result.Pass || !ran {
		t.Errorf("%+v, ran %v", got["done"], ran)
	}
}
