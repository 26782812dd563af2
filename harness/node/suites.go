package node

import (
	"bytes"
	"embed"

	"github.com/assay-hpc/assay/harness/suite"
)

//go:embed suites/*.yaml
var suites embed.FS

// Names are the suites that come with the harness: of one machine, the shortest
// first, and of several.
func Names() []string { return []string{"quick", "node", "full", "fabric"} }

// Load returns the suite of that name that comes with the harness.
func Load(name string) (*suite.File, error) {
	b, err := suites.ReadFile("suites/" + name + ".yaml")
	if err != nil {
		return nil, err
	}
	return suite.ParseFile(name+".yaml", bytes.NewReader(b))
}

// Text is the file of a suite that comes with the harness, for people who want
// one of their own.
func Text(name string) ([]byte, error) { return suites.ReadFile("suites/" + name + ".yaml") }
