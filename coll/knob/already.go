package knob

import (
	"errors"
	"regexp"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/coll/debug"
)

// A Problem is what is wrong with a setting, for NCCL: what only this engine does otherwise is none.
type Problem struct {
	Name    string // "" of a line that sets nothing
	From    string // "environment", file:line, or a file that cannot be read
	Line    int    // of Problems' file; 0 of a variable
	Text    string // what is wrong, and after ; what to do
	Refused bool   // NCCL ends
	Unknown bool   // NCCL has no variable of this name
	Near    string // of an unknown one: the name that was meant, if one is near
}

// A Configuration is what is set, and what NCCL will not do of it. What only our engine does not do of it
// is left out: NCCL is the reader.
type Configuration struct {
	Set      []Setting // from the environment, and what NCCL's files add to it
	Hidden   []Setting // of the files, for which a stronger place has another value
	Problems []Problem
}

// AlreadySet returns what is set.
func AlreadySet(environ []string, file func(name string) (string, error)) (c Configuration) {
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		if !slices.ContainsFunc(c.Set, func(s Setting) bool { return s.Name == name }) { // getenv returns the first
			c.Set = append(c.Set, Setting{Name: name, Value: value, From: "environment"})
		}
	}
	k, problems := read(environ, file)
	return Configuration{append(c.Set, k.FromFiles()...), k.hidden, problems}
}

// quiet matches values of NCCL_DEBUG that NCCL does not know, and that are to log nothing: so they do.
var quiet = regexp.MustCompile(`(?i)^(off|none|error|false|0)$`)

// read loads the variables, and returns what is wrong with them for NCCL.
func read(environ []string, file func(name string) (string, error)) (k *Knobs, problems []Problem) {
	k, warnings, err := Load(environ, func(name string) ([]byte, error) {
		text, err := file(name)
		return []byte(text), err
	})
	for _, w := range warnings {
		if w.Level != debug.Warn || w.Ours || w.Name == "NCCL_DEBUG" && quiet.MatchString(k.Getenv("NCCL_DEBUG")) {
			continue
		}
		p := Problem{Name: w.Name, From: w.From, Text: w.Message}
		p.Unknown = strings.Contains(p.Text, " is unknown and does nothing")
		_, near, _ := strings.Cut(p.Text, "; did you mean ")
		p.Near, _, _ = strings.Cut(near, "?")
		problems = append(problems, p)
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range joined.Unwrap() {
			if wrong := (*Error)(nil); errors.As(err, &wrong) {
				problems = append(problems, Problem{Name: wrong.Name, From: wrong.From, Text: wrong.Error(), Refused: isNCCLs(wrong.Name)})
			}
		}
	}
	return k, problems
}
