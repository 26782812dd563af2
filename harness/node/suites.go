package node

import (
	"bytes"
	"embed"

	"github.com/assay-hpc/assay/harness/suite"
)

//go:embed suites/*.yaml
var suites embed.FS

// Names are the suites that come with the harness: those for one machine, the shortest first,
// then those for several.
func Names() []string { return []string{"health", "quick", "node", "full", "fabric", "acceptance"} }

// Load returns one of the suites that come with the harness.
func Load(name string) (*suite.File, error) {
	b, err := suites.ReadFile("suites/" + name + ".yaml")
	if err != nil {
		return nil, err
	}
	return suite.ParseFile(name+".yaml", bytes.NewReader(b))
}

// Text returns the file of a suite that comes with the harness, as a template for one's own.
func Text(name string) ([]byte, error) { return suites.ReadFile("suites/" + name + ".yaml") }
