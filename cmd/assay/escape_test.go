package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/build/inspect"
	"github.com/assay-hpc/assay/build/sbom"
	"github.com/assay-hpc/assay/internal/attest"
	"github.com/assay-hpc/assay/internal/result"
	"github.com/assay-hpc/assay/internal/words"
)

const steering = "\x1b]0;owned\a\x1b[2J\u009b31m\u202e\r\x00"

func steers(s string) bool { return strings.ContainsAny(s, "\x1b\a\u009b\u202e\r\x00") }

// TestNothingSteers: what others wrote (names, references, an image's components,
// a registry's text) does not reach a terminal as it is.
func TestNothingSteers(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, args := range [][]string{
		{"inspect", steering}, {"inspect", "oci:" + steering}, {"publish", steering, "localhost:1/" + steering}, {"certify", steering},
		{"build", steering}, {"plan", "--matrix", steering}, {"plan", "--only", steering}, {steering}, {"plan", "--" + steering},
		{"inspect", "oci:x", "--key", steering}, {"inspect", "oci:x", "--require", steering}, {"build", "--platform", steering},
	} {
		var out, errOut bytes.Buffer
		code := run(t.Context(), append([]string{"assay"}, args...), &out, &errOut)
		if code == 0 || steers(out.String()+errOut.String()) {
			t.Errorf("%q: status %d, %q %q", args, code, out.String(), errOut.String())
		}
	}
	r := inspect.Report{
		Reference: steering, Digest: steering, Target: steering, Problems: []string{steering},
		Images: []inspect.Image{{
			Platform: steering, Digest: steering, Components: []sbom.Component{{Name: steering, Version: steering, License: steering}},
			Certificate: &inspect.Certified{Suite: steering, Harness: steering, Results: []result.Result{{ID: steering, Verdict: result.Fail, Reason: steering}}},
			Attached:    []inspect.AttachedEntry{{Digest: steering, Type: steering, Predicate: steering, Signature: attest.Unverified, KeyIDs: []string{steering}}},
		}},
	}
	for name, write := range map[string]func(*words.Writer) error{
		"text": func(w *words.Writer) error { return r.Text(w) },
		"JSON": func(w *words.Writer) error { return r.JSON(w) },
	} {
		var out bytes.Buffer
		w := words.NewWriter(&out)
		if err := write(w); err != nil {
			t.Fatal(err)
		}
		w.Flush()
		if steers(out.String()) || !strings.Contains(out.String(), "owned") {
			t.Errorf("%s: %q", name, out.String())
		}
	}
}
