package matrix

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/build/recipe"
)

// problems returns what the component needs of a target and the target has not.
func (d *Definition) problems(t Target) (out []Problem) {
	version := t.Version(d.Name)
	no := func(msg, remedy string) {
		out = append(out, Problem{Target: t.Name, Key: d.Name, Value: version, Msg: d.Name + " " + msg, Remedy: remedy})
	}
	switch v := d.doc.Versions; {
	case v.Words != nil && !slices.Contains(v.Words, version):
		no(fmt.Sprintf("has no version %q here: nothing reads it", version), `write "`+strings.Join(v.Words, `" or "`)+`"`)
	case v.Form != nil && !v.Form.MatchString(version):
		no(fmt.Sprintf("has no release %q", version), fmt.Sprintf("write the version of a release as in %q", v.Example))
	}
	f := t.facts(recipe.Platform{}, version)
	for _, c := range d.doc.Needs {
		if !applies([]condition{c}, f) {
			no("needs "+c.what()+", which this image has not", c.need(f))
		}
	}
	for _, c := range d.doc.Conflicts {
		if t.Version(c.Name) != "" {
			no("cannot be beside "+c.Name+": "+strings.TrimSuffix(c.Value.Text, "."), "leave one of them out")
		}
	}
	for _, q := range d.doc.Requires {
		for _, c := range q.Require {
			if applies(q.When, f) && !applies([]condition{c}, f) {
				out = append(out, Problem{
					Target: t.Name, Key: d.Name, Value: version, Remedy: c.need(f),
					Msg: fmt.Sprintf("%s: %s (%s:%d wants %s %q)", d.Name, strings.TrimSuffix(q.Because.Text, "."), d.file, c.At.Line, c.Key, c.Text),
				})
			}
		}
	}
	return out
}

// what names the thing that a condition asks for.
func (c condition) what() string {
	if c.Text == present {
		return c.name()
	}
	return c.name() + " " + c.Text
}

func (c condition) name() string {
	switch c.Key {
	case "cuda":
		return "CUDA"
	case "ubuntu", "debian":
		return "a base of " + strings.ToUpper(c.Key[:1]) + c.Key[1:]
	}
	return c.Key
}

// need is the remedy where a condition does not hold.
func (c condition) need(f facts) string {
	switch {
	case c.Key == "cuda" && len(f["cuda"]) == 0 && f["base"][0] == "image":
		return `add "cuda:" and, under base, "has: {cuda: /usr/local/cuda}", or leave it out`
	case c.Key == "cuda" && len(f["cuda"]) == 0:
		return `add "cuda:" and the component cuda-toolkit, or leave it out`
	case c.Key == "base" && c.Text == "image":
		return "leave it out, or make the image a row of axes or include, on nvidia/cuda"
	case c.Key == "version" && len(c.words) == 1:
		return fmt.Sprintf("write %q, or leave it out", c.Text)
	case c.Key == "version" || c.Key == "cuda":
		return "choose another version, or leave it out"
	case slices.Contains([]string{"ubuntu", "debian", "platform", "base", "variant"}, c.Key):
		return "leave it out there"
	case c.Text != plain && len(f[c.Key]) > 0:
		return fmt.Sprintf("the image has %s %s; choose another version, or leave this out", c.Key, f[c.Key][0])
	}
	if f["base"][0] == "image" {
		return `add it, or leave this out; if the base has it, say so under "has"`
	}
	return "add it, or leave this out"
}

// refused returns what components need of the file's targets and these have not.
func (f *File) refused(targets []Target) (out []Problem) {
	for _, t := range targets {
		for _, c := range t.Components {
			out = append(out, f.Definition(c.Name).problems(t)...)
		}
		if len(out) == 0 {
			for _, p := range t.Platforms {
				out = append(out, f.unmade(t, p)...)
			}
		}
	}
	return out
}

// unmade returns what keeps the parts of a target on a platform from being made: variables without a
// value, a toolkit that there is not, and files that two of them write.
func (f *File) unmade(t Target, p recipe.Platform) (out []Problem) {
	writer := map[string]string{}
	for _, c := range t.Components {
		no := func(msg, remedy string) {
			out = append(out, Problem{Target: t.Name, Key: c.Name, Value: c.Version, Msg: msg, Remedy: remedy})
		}
		part, err := f.Definition(c.Name).Part(t, p, func(string) string { return "" })
		if lack, ok := errors.AsType[noValueError](err); ok {
			no(fmt.Sprintf("{%s} of %s has no value on %s", lack.variable, lack.file, p), fmt.Sprintf(`put what names it under a condition, as in "when: {%s: present}"`, strings.TrimPrefix(strings.Split(lack.variable, ".")[0], versionOf)))
		}
		if t.CUDA == "" && part.Build != nil && slices.Contains(part.Build.Mounts, "cuda") {
			no(c.Name+" mounts the CUDA toolkit, which this image has not", condition{Key: "cuda"}.need(t.facts(p, c.Version)))
		}
		for _, file := range part.Files {
			if other := writer[file.Path]; other != "" {
				no(fmt.Sprintf("%s and %s both write %s", other, c.Name, file.Path), "choose another path in one of them")
			}
			writer[file.Path] = c.Name
		}
	}
	return out
}
