package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/internal/exit"
)

// TestOlder: certificates that the version before the one with internal/result made and
// signed verify and render; docs/examples has older ones of the suites node and image.
func TestOlder(t *testing.T) {
	files, err := filepath.Glob("testdata/older/*.dsse.json")
	if err != nil || len(files) < 3 {
		t.Fatalf("%d certificates, %v", len(files), err)
	}
	for _, file := range files {
		suite := strings.TrimSuffix(filepath.Base(file), ".dsse.json")
		t.Run(suite, func(t *testing.T) {
			var out, errOut strings.Builder
			if status := run([]string{"harness", "verify", "--key", "testdata/older/key.pub", file}, &out, &errOut); status != exit.Pass {
				t.Errorf("verify: status %d, %s%s", status, out.String(), errOut.String())
			}
			for format, says := range map[string]string{
				"text": "PASS  suite " + suite, "json": `"suite":"` + suite + `"`, "junit": "<testsuite", "prometheus": `suite="` + suite + `"`, "html": "All ",
			} {
				out.Reset()
				errOut.Reset()
				args := []string{"harness", "report", "--key", "testdata/older/key.pub", "--format", format, file}
				if status := run(args, &out, &errOut); status != exit.Pass || !strings.Contains(out.String(), says) {
					t.Errorf("report --format %s: status %d, %s; want %q in\n%.2000s", format, status, errOut.String(), says, out.String())
				}
			}
			out.Reset()
			if status := run([]string{"harness", "history", "--key", "testdata/older/key.pub", file}, &out, &errOut); status != exit.Pass || !strings.Contains(out.String(), "1 certificate") {
				t.Errorf("history: status %d, %s%s", status, out.String(), errOut.String())
			}
		})
	}
}
