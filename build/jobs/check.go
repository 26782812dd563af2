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
	LevelSkipped = "skipped" // not checked; the message says why
)

// A Finding is a problem in a file, or a part of the file that could not be checked.
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

// A File is a manifest, a script or a hostfile to check.
type File struct {
	Name string
	Text []byte
}

// maxSize is far above the size of any job file.
const maxSize = 4 << 20

// A Variable judges a value of one of NCCL's variables. It returns what is wrong with it in the
// form of a finding with a level, a message and a remedy, or nil.
type Variable func(name, value string) *Finding

// Check checks files and returns all findings, in the order of the files. It never
// stops at the first problem. variable may be nil.
func Check(files []File, variable Variable) []Finding {
	c := &checker{seen: map[Finding]bool{}, variable: variable}
	for _, f := range files {
		c.file, c.base, c.lines = f.Name, 0, bytes.Count(f.Text, []byte("\n"))+1
		from := len(c.found)
		switch {
		case len(f.Text) > maxSize:
			c.bad(0, "", fmt.Sprintf("the file is larger than %d bytes", maxSize), "is this a job?")
		case len(bytes.TrimSpace(f.Text)) == 0:
			c.bad(0, "", "there is nothing in it", "assay jobs render writes a job")
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
	base  int // lines before the current document
	found []Finding
	seen  map[Finding]bool
	lines int // of the file

	variable Variable
}

func (c *checker) add(level string, line, column int, field, message, remedy string) {
	f := Finding{File: c.file, Line: min(line, c.lines), Column: column, Level: level, Field: field, Message: message, Remedy: remedy}
	if !c.seen[f] { // a script may start several commands
		c.found, c.seen[f] = append(c.found, f), true
	}
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
