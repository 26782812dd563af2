package knob

import (
	"slices"
	"strings"

	"github.com/assay-hpc/assay/coll/debug"
)

// AlreadySet returns the settings from the environment and those that NCCL's files add, and what
// NCCL will not do of them. What only our engine does not do of them is left out: NCCL is the reader.
func AlreadySet(environ []string, file func(name string) (string, error)) (set []Setting, problems []string) {
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		if !slices.ContainsFunc(set, func(s Setting) bool { return s.Name == name }) { // getenv returns the first
			set = append(set, Setting{Name: name, Value: value, From: "environment"})
		}
	}
	k, warnings, err := Load(environ, func(name string) ([]byte, error) {
		text, err := file(name)
		return []byte(text), err
	})
	set = append(set, k.FromFiles()...)
	for _, w := range warnings {
		if w.Level == debug.Warn && !w.Ours {
			problems = append(problems, w.Message)
		}
	}
	if err != nil {
		problems = append(problems, strings.Split(err.Error(), "\n")...)
	}
	return set, problems
}
