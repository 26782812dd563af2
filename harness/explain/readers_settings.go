package explain

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/coll/knob"
)

// maxSettings is how many different settings of a text are looked at.
const maxSettings = 500

// readSettings reads NCCL's variables by the table of package knob: names and values that NCCL does not take, and settings that
// cost speed. A text of settings alone is said to be one, and NCCL's configuration file is read as NCCL does.
func readSettings(in *input, hits []hit) {
	for i, f := range in.files {
		if isConf(f.Name) && slices.ContainsFunc(hits, func(h hit) bool { return h.at.file == i }) {
			in.confProblems(i)
		}
	}
	seen := map[string]bool{}
	for _, s := range in.settings() {
		if text := s.name + "=" + s.value; !seen[text] && len(seen) < maxSettings {
			seen[text] = true
			in.setting(s)
		}
	}
	if len(seen) > 0 && in.settingsAlone() {
		in.add("knob.alone", plural(len(seen), "setting", "settings"), nil, hits[0].at)
	}
}

// isConf says whether a file is NCCL's configuration by its name.
func isConf(name string) bool {
	name = path.Base(strings.ReplaceAll(name, `\`, "/"))
	return strings.Contains(name, "nccl") && strings.HasSuffix(name, ".conf")
}

// A setting is a variable of NCCL's that a text sets.
type setting struct {
	name, value string
	at          place
}

// settings returns those that facts name, in the order of the text.
func (in *input) settings() (out []setting) {
	for name, facts := range in.facts {
		if name, ok := strings.CutPrefix(name, "env."); ok && strings.HasPrefix(name, "NCCL_") {
			for _, f := range facts {
				out = append(out, setting{name, f.value, f.at})
			}
		}
	}
	slices.SortFunc(out, func(a, b setting) int { return cmp.Or(order(a.at, b.at), strings.Compare(a.name, b.name)) })
	return out
}

// setting adds what is to be said of one.
func (in *input) setting(s setting) {
	for i := range knob.Slowers {
		if k := &knob.Slowers[i]; k.Name == s.name && k.Does(s.value) {
			in.add("knob.slow", s.name+"="+s.value+": "+k.Effect+" ("+k.Advice+")", nil, s.at)
		}
	}
	if isConf(in.files[s.at.file].Name) || strings.ContainsAny(s.value, "$`{<") { // said already, or not the value itself
		return
	}
	for _, p := range knob.Problems(s.name+"="+s.value, "") {
		in.problem(p, s.at)
	}
}

func (in *input) problem(p knob.Problem, at place) {
	kind, text := "knob.wrong", p.Text
	switch {
	case p.Unknown && p.Near == "":
		kind, text = "knob.unknown", p.Name
	case p.Unknown:
		text = p.Name + " is no variable of NCCL and does nothing; did you mean " + p.Near + "?"
	}
	in.add(kind, fmt.Sprintf("line %d: %s", in.shown(at).Number, text), nil, at)
}

// confProblems adds what NCCL does not take of a configuration file.
func (in *input) confProblems(file int) {
	text := in.files[file].Text
	all := knob.Problems("", string(text))
	slices.SortStableFunc(all, func(a, b knob.Problem) int { return a.Line - b.Line })
	for _, p := range all {
		at := place{file, 0}
		for n := 1; n < p.Line; n++ {
			at.offset = min(len(text), endOfLine(text, at.offset)+1)
		}
		in.problem(p, at)
	}
}

var (
	settingLine = regexp.MustCompile(`^\s*(?:export |declare -x |setenv |set )?\s*[A-Za-z_][A-Za-z0-9_]*\s*=`)
	besideThem  = regexp.MustCompile("^\\s*(?:$|#|//|```|(?:\\S+@\\S+[:~]?.{0,40})?[$#>] .*(?:env|conf|NCCL)|(?:cat|printenv|env)\\b)")
)

// settingsAlone says whether the files have settings, comments and commands that show settings, and nothing else.
func (in *input) settingsAlone() bool {
	for _, f := range in.files {
		if len(f.Text) > maxTrouble {
			return false
		}
		if f.Name == "--platform" {
			continue
		}
		for l := range strings.Lines(string(f.Text)) {
			if l = string(Clean([]byte(strings.TrimSuffix(l, "\n")))); !settingLine.MatchString(l) && !besideThem.MatchString(l) && !isConf(f.Name) {
				return false
			}
		}
	}
	return true
}
