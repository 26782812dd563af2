package jobs

import (
	"bytes"
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// What a finding means for the file.
const (
	LevelError   = "error"
	LevelWarning = "warning"
	LevelSkipped = "skipped" // it could not be looked at, and why
)

// A Finding is one thing that a check found in a file, or could not look at.
type Finding struct {
	File    string `json:"file"`
	Line    int    `json:"line,omitempty"` // counts from 1; 0: the file as a whole
	Column  int    `json:"column,omitempty"`
	Level   string `json:"level"`
	Field   string `json:"field,omitempty"` // path of the value: "spec.slotsPerWorker"
	Message string `json:"message"`
	Remedy  string `json:"remedy,omitempty"`
}

func (f Finding) String() string {
	var b strings.Builder
	b.WriteString(f.File)
	if f.Line > 0 {
		fmt.Fprintf(&b, ":%d", f.Line)
		if f.Column > 0 {
			fmt.Fprintf(&b, ":%d", f.Column)
		}
	}
	b.WriteString(": ")
	if f.Level != LevelError {
		b.WriteString(f.Level + ": ")
	}
	if f.Field != "" {
		b.WriteString(f.Field + ": ")
	}
	b.WriteString(f.Message)
	if f.Remedy != "" {
		b.WriteString("; " + f.Remedy)
	}
	return b.String()
}

// A File is what is checked: a manifest, a script or a hostfile.
type File struct {
	Name string
	Text []byte
}

// maxSize is far above any job's.
const maxSize = 4 << 20

// Check looks at files and returns all that it found, in their order. It never
// stops at the first problem.
func Check(files []File) []Finding {
	c := &checker{names: map[string]string{}}
	for _, f := range files {
		c.file, c.base = f.Name, 0
		from := len(c.found)
		switch {
		case len(f.Text) > maxSize:
			c.bad(0, "", fmt.Sprintf("the file is larger than %d bytes", maxSize), "is this a job?")
		case len(bytes.TrimSpace(f.Text)) == 0:
			c.bad(0, "", "the file is empty", "assay jobs render writes one")
		case isScript(f):
			c.script(f.Text)
		case isManifest(f):
			c.manifest(f.Text)
		default:
			c.hosts(f.Text)
		}
		slices.SortStableFunc(c.found[from:], func(a, b Finding) int {
			return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
		})
	}
	return c.found
}

type checker struct {
	file  string
	base  int // lines before the document that is being looked at
	found []Finding
	names map[string]string // of objects, to the file that has them
}

func (c *checker) add(level string, line, column int, field, message, remedy string) {
	c.found = append(c.found, Finding{File: c.file, Line: line, Column: column, Level: level, Field: field, Message: message, Remedy: remedy})
}

// bad reports an error on a line.
func (c *checker) bad(line int, field, message, remedy string) {
	c.add(LevelError, line, 0, field, message, remedy)
}

func isScript(f File) bool {
	switch filepath.Ext(f.Name) {
	case ".sh", ".slurm", ".sbatch":
		return true
	case ".yaml", ".yml", ".json":
		return false
	}
	return bytes.HasPrefix(f.Text, []byte("#!")) || bytes.Contains(f.Text, []byte("\n#SBATCH"))
}

func isManifest(f File) bool {
	switch filepath.Ext(f.Name) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return bytes.HasPrefix(f.Text, []byte("apiVersion:")) || bytes.Contains(f.Text, []byte("\napiVersion:"))
}
