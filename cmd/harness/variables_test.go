package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/harness/variables"
	"github.com/assay-hpc/assay/internal/result"
)

// A publicCase is a block of testdata/env/public.txt.
type publicCase struct {
	name, node           string
	accused              []string // "warn NAME"
	lines, conf, environ []string
}

func readPublic(t *testing.T) (cases []publicCase) {
	t.Helper()
	text, err := os.ReadFile("testdata/env/public.txt")
	if err != nil {
		t.Fatal(err)
	}
	verdicts := map[string]result.Verdict{"stops": result.Fail, "harms": result.Warn}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if head, ok := strings.CutPrefix(line, "case "); ok {
			head, accused, _ := strings.Cut(head, " : ")
			at := strings.LastIndex(head, " at ")
			c := publicCase{name: head[:at], node: head[at+len(" at "):]}
			for item := range strings.SplitSeq(accused, ", ") {
				if grade, name, ok := strings.Cut(item, " "); ok {
					c.accused = append(c.accused, string(verdicts[grade])+" "+name)
				}
			}
			cases = append(cases, c)
			continue
		}
		if line == "" || line[0] == '#' {
			continue
		}
		c := &cases[len(cases)-1]
		if node, ok := strings.CutPrefix(line, "+ "); ok {
			c.lines = append(c.lines, node)
		} else if conf, ok := strings.CutPrefix(line, "conf "); ok {
			c.conf = append(c.conf, conf)
		} else {
			c.environ = append(c.environ, line)
		}
	}
	return cases
}

// layOut writes the case's node, and returns its root.
func (c *publicCase) layOut(t *testing.T) string {
	run := fixtureRun{}
	f := &fixture{t: t, lines: []string{"cpus GenuineIntel 2 56"}}
	if file, name, ok := strings.Cut(c.node, "."); ok {
		f = readFixture(t, "testdata/env/"+file+".node")
		at := slices.IndexFunc(f.runs, func(r fixtureRun) bool { return r.name == name })
		if at < 0 {
			t.Fatalf("%s has no run %s", file, name)
		}
		run = f.runs[at]
	}
	run.lines = append(slices.Clone(run.lines), c.lines...)
	root := f.layOut(run)
	(&tree{t: t, root: root}).write("/etc/nccl.conf", strings.Join(c.conf, "\n")+"\n")
	return root
}

// TestPublicEnvironments: of what sites, images and jobs set, only what is wrong on the node is accused.
func TestPublicEnvironments(t *testing.T) {
	cases := readPublic(t)
	if len(cases) < 50 {
		t.Fatalf("%d cases", len(cases))
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := variables.OnNode(c.layOut(t), c.environ)
			var got []string
			for _, o := range r.Objects {
				if o.Verdict != result.Pass {
					got = append(got, string(o.Verdict)+" "+o.Name)
				}
			}
			slices.Sort(got)
			want := slices.Sorted(slices.Values(c.accused))
			if !slices.Equal(got, want) {
				t.Errorf("accused %q, want %q\n%s", got, want, r.Output)
			}
			if os.Getenv("SHOW") != "" {
				t.Logf("%s: %s\nremedy: %s\n%s", r.Verdict, r.Reason, r.Remedy, r.Output)
			}
			r.ID, r.Title = "variables", variables.Title
			if err := r.Validate(); err != nil {
				t.Error(err)
			}
		})
	}
}
