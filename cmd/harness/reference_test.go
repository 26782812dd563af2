package main

import (
	"io"
	"path/filepath"
	"testing"

	"github.com/assay-hpc/assay/internal/golden"
	"github.com/assay-hpc/assay/internal/grammar"
)

const referenceHead = `# harness's commands

<!-- Written by "go test ./cmd/harness -run TestReference -args -update" from the program itself. -->

Results go to stdout, remarks and progress to stderr. Flags may stand before or after arguments, but for coll, ib and exec; what
follows ` + "`--`" + ` is an argument. Exit status: 0 passed, 1 a check failed, 2 wrong usage or bad input, 3 it could not run.
`

// TestReference holds docs/harness.md against the program's own commands and flags.
func TestReference(t *testing.T) {
	golden.File(t, filepath.Join("..", "..", "docs", "harness.md"), grammar.Reference(newApp(io.Discard, io.Discard), referenceHead, ownHelp))
}
