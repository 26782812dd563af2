package explain

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/assay-hpc/assay/internal/golden"
)

func set(t testing.TB) *Set {
	t.Helper()
	s, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestRules: each rule applies to the texts under match, with a value for each name, and not to those under not.
func TestRules(t *testing.T) {
	t.Parallel()
	s := set(t)
	for _, r := range s.Rules {
		applies := func(text string) bool {
			in := &input{files: []File{{"x", []byte(text)}}, original: []File{{"x", []byte(text)}}, set: s, hits: make([][]hit, len(s.patterns)), facts: map[string][]fact{}}
			in.scan(0)
			in.findFacts()
			c, ok := in.apply(r)
			if !ok {
				return false
			}
			for _, text := range slices.Concat([]string{c.Cause, c.Verify}, c.Remedy, c.Ask) {
				if strings.Contains(text, missing) {
					t.Errorf("%s: a name of %q captured nothing", r.ID, text)
				}
			}
			return true
		}
		for i, text := range r.Match {
			if !applies(text) {
				t.Errorf("%s: %s does not apply to match %d: %q", r.file, r.ID, i, text)
			}
		}
		for i, text := range r.Not {
			if applies(text) {
				t.Errorf("%s: %s applies to not %d: %q", r.file, r.ID, i, text)
			}
		}
	}
}

// TestProblems holds docs/problems.md and its pages against the rules.
func TestProblems(t *testing.T) {
	const (
		note = "<!-- Written by \"go test ./harness/explain -run TestProblems -args -update\" from harness/explain/rules. -->\n"
		head = `# Problems, by the line that shows them

` + note + `
Search these pages for the text of your error, or let [harness explain](explain.md) do it: it also reads what stands around the
line. *Words* in italics stand for what your log says there.

| page | causes |
|---|---|
`
	)
	s := set(t)
	list, pages := s.Problems(note)
	docs := filepath.Join("..", "..", "docs")
	golden.File(t, filepath.Join(docs, "problems.md"), head+list)
	for name, text := range pages {
		golden.File(t, filepath.Join(docs, "problems", name+".md"), text)
	}
	for _, r := range s.Rules {
		if !slices.ContainsFunc(groups, func(g struct{ file, heading string }) bool { return "rules/"+g.file+".yaml" == r.file }) {
			t.Errorf("%s is in no group", r.file)
		}
	}
}

// TestRuleErrors: what is wrong with a rule is said, with its file and id.
func TestRuleErrors(t *testing.T) {
	t.Parallel()
	const good = "id: x\n    verdict: fault\n    cause: c\n    when: [{line: some line}]\n    remedy: [r]\n    source: [https://example.org]\n    match: [some line]"
	for name, tt := range map[string]struct{ old, new, want string }{
		"good":              {"", "", ""},
		"unknown key":       {"cause: c", "cause: c\n    cuase: d", "cuase"},
		"no remedy":         {"remedy: [r]", "", "a fault needs a remedy"},
		"no source":         {"source: [https://example.org]", "", "source"},
		"no address":        {"https://example.org", "somebody", "source"},
		"verdict":           {"verdict: fault", "verdict: broken", `verdict "broken"`},
		"no ask":            {"verdict: fault", "verdict: undecidable", "needs ask"},
		"no match":          {"match: [some line]", "", "match"},
		"bad pattern":       {"some line}]", "'some (line'}]", "missing closing )"},
		"nothing literal":   {"{line: some line}", "{line: '.*'}", "characters in a row"},
		"two in one":        {"{line: some line}", "{line: some line, fact: x}", "a condition has one of"},
		"explains nothing":  {"cause: c", "cause: c\n    explains: [y]", `no rule "y"`},
		"is without fact":   {"{line: some line}", "{line: some line, is: x}", "a condition has one of"},
		"unknown certainty": {"cause: c", "cause: c\n    sure: yes!", "sure"},
	} {
		text := "rules:\n  - " + strings.Replace(good, tt.old, tt.new, 1) + "\n"
		_, err := load(fileSystem("rules/a.yaml", text), "rules")
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "rules/a.yaml")) {
			t.Errorf("%s: %v; want %q, with the file", name, err, tt.want)
		}
	}
}

// TestOrder: a cause comes before what follows from it, which is shown as that; other faults stay apart.
func TestOrder(t *testing.T) {
	t.Parallel()
	const text = `n:1:1 [0] misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer n309-ib<51159>
[1.5] NVRM: Xid (PCI:0000:1b:00): 45, pid=71422, name=python, channel 0x00000008
[1.2] NVRM: Xid (PCI:0000:9d:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
bash: orted: command not found
`
	r := set(t).Explain([]File{{"a.log", []byte(text)}})
	var ids []string
	for _, c := range r.Causes {
		ids = append(ids, c.ID)
	}
	if want := []string{"xid-79", "launcher-daemon-path"}; !slices.Equal(ids, want) || len(r.Causes[0].Follows) != 2 {
		t.Errorf("causes %v; want %v, and two lines that follow from the first: %v", ids, want, r.Causes[0].Follows)
	}
	if l := r.Causes[0].Lines[0]; l.Number != 3 || l.File != "a.log" {
		t.Errorf("evidence %v; want line 3", l)
	}
	if r := set(t).Explain([]File{{"a.log", []byte("all is well\n")}}); r.Verdict != Undecidable || len(r.Ask) == 0 {
		t.Errorf("of nothing it says %s, and asks %v", r.Verdict, r.Ask)
	}
}

// TestShown: neither secrets nor what controls a terminal is repeated.
func TestShown(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3tv4lue99"
	for _, line := range []string{
		"API_TOKEN=" + secret + " NCCL WARN x", "password: " + secret, "Authorization: Bearer " + secret, "git clone https://me:" + secret + "@host/x",
		"HF_TOKEN='" + secret + "'", "hf_" + secret, `"secret_access_key": "` + secret + `"`, "-x WANDB_API_KEY=" + secret, "Cookie: " + secret, "NCCL_X=1 MY_SECRET=" + secret,
	} {
		if got := Shown(line); strings.Contains(got, secret) {
			t.Errorf("Shown(%q) = %q", line, got)
		}
	}
	text := "\x1b[31mn:1:1 [0] misc/ibvwrap.cc:1 NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory TOKEN=" + secret + "\x1b[0m\x07\u202e\r\n"
	var b bytes.Buffer
	r := set(t).Explain([]File{{"x", []byte(text)}})
	if err := r.WriteText(&b, 80); err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{b.String(), string(out)} {
		if strings.Contains(s, secret) || strings.ContainsAny(s, "\x1b\x07\r\u202e") || r.Causes[0].ID != "memlock" {
			t.Errorf("%q", s)
		}
	}
}

// TestScanner: it finds the patterns that trying each on each line finds.
func TestScanner(t *testing.T) {
	t.Parallel()
	s := set(t)
	for _, r := range s.Rules {
		for _, text := range r.Match {
			in := &input{files: []File{{"x", []byte(text)}}, original: []File{{"x", []byte(text)}}, set: s, hits: make([][]hit, len(s.patterns)), facts: map[string][]fact{}}
			in.scan(0)
			for i, p := range s.patterns {
				n := 0
				for l := range strings.Lines(text) {
					if p.re().MatchString(strings.TrimSuffix(l, "\n")) {
						n++
					}
				}
				if len(in.hits[i]) != n {
					t.Errorf("%s: %q is found in %d lines of %q; it matches %d", r.ID, p.re(), len(in.hits[i]), text, n)
				}
			}
		}
	}
}

// FuzzExplain: no text makes it panic, or print a control character.
func FuzzExplain(f *testing.F) {
	s := set(f)
	for _, r := range s.Rules {
		f.Add([]byte(r.Match[0]))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		r := s.Explain([]File{{"x", text}})
		var b bytes.Buffer
		if err := r.WriteText(&b, 80); err != nil {
			t.Fatal(err)
		}
		for _, c := range b.String() {
			if c < ' ' && c != '\n' || c == 0x7f {
				t.Fatalf("control character %q", c)
			}
		}
		if _, err := json.Marshal(r); err != nil {
			t.Fatal(err)
		}
	})
}

func fileSystem(name, text string) fstest.MapFS {
	return fstest.MapFS{name: {Data: []byte(text)}}
}

// TestLine: lines are found from each of their bytes; of a long one a window, and not a walk over all of it.
func TestLine(t *testing.T) {
	t.Parallel()
	text := []byte("first\nsecond one\n\nlast")
	for i := range text {
		want := 0
		for _, l := range bytes.SplitAfter(text, []byte("\n")) {
			if i < want+len(l) {
				if start, got := line(text, i); start != want || string(got) != strings.TrimSuffix(string(l), "\n") {
					t.Errorf("at %d: %d, %q; want %d, %q", i, start, got, want, l)
				}
				break
			}
			want += len(l)
		}
	}
	const warn = `NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory `
	long := []byte(strings.Repeat(`{"a": "b"} `, 100_000) + warn + strings.Repeat(`NCCL WARN x `, 100_000))
	r := set(t).Explain([]File{{"one line", long}})
	if r.Verdict != Fault || r.Causes[0].ID != "memlock" || len(r.Causes[0].Lines[0].Text) > maxLine {
		t.Errorf("of a line of %d bytes: %s", len(long), r.Summary)
	}
}

// TestUnwrap: a warning that a web page has broken is one line again, and all offsets stay the same.
func TestUnwrap(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"x\nNCCL WARN Call to ibv_modify_qp failed with 61\n   No data available, on dev m:1,\n  local GID ::\ny\n": "x\nNCCL WARN Call to ibv_modify_qp failed with 61 No data available, on dev m:1, local GID ::     \ny\n",
		"NCCL WARN NET/IB:\r\nGot completion with status=12":                                                        "NCCL WARN NET/IB: Got completion with status=12 ",
		"NCCL WARN a\nNCCL WARN b\nlocal GID c\n":                                                                   "NCCL WARN a\nNCCL WARN b local GID c\n",
		"NCCL WARN a\nother\n": "NCCL WARN a\nother\n",
		"NCCL WARN ":           "NCCL WARN ",
		"NCCL WARN \n":         "NCCL WARN \n",
	} {
		if got := string(unwrap([]byte(text))); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
