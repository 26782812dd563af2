package inspect

import (
	"bytes"
	"crypto"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/internal/attest"
	"github.com/assay-hpc/assay/internal/golden"
	"github.com/assay-hpc/assay/internal/oci"
	"github.com/assay-hpc/assay/internal/result"
)

var digests = regexp.MustCompile(`(sha256:)?[0-9a-f]{64}`)

// anonymous numbers the digests in a text by their first appearance: they
// depend on how this version of Go compresses.
func anonymous(text string) string {
	seen := map[string]string{}
	return digests.ReplaceAllStringFunc(text, func(d string) string {
		if seen[d] == "" {
			seen[d] = fmt.Sprintf("sha256#%d", len(seen)+1)
		}
		return seen[d]
	})
}

func render(t *testing.T, r *Report) (text, json string) {
	t.Helper()
	for i := range r.Images {
		r.Images[i].Bytes = 6_500_000
	}
	r.Layers.Bytes = 13_000_000
	var a, b bytes.Buffer
	if err := errors.Join(r.Text(&a), r.JSON(&b)); err != nil {
		t.Fatal(err)
	}
	return anonymous(a.String()), anonymous(b.String())
}

// inspectLayout inspects a name of a layout.
func inspectLayout(t *testing.T, l *oci.Layout, name string, p attest.Policy) (*Report, error) {
	t.Helper()
	return Inspect(t.Context(), l.Source(name), p)
}

func keys(signers ...crypto.Signer) (list []crypto.PublicKey) {
	for _, s := range signers {
		list = append(list, s.Public())
	}
	return list
}

func TestInspect(t *testing.T) {
	l := newTarget(t, "fabric", signingKey)
	report, err := inspectLayout(t, l, "fabric", attest.Policy{Target: "fabric", Keys: keys(otherKey, signingKey), Required: All})
	if err != nil {
		t.Fatal(err)
	}
	report.Reference = "oci:out:fabric"
	text, json := render(t, report)
	golden.Check(t, "verified.txt", text)
	golden.Check(t, "verified.json", json)
}

// problemsOf inspects a layout that must not verify.
func problemsOf(t *testing.T, l *oci.Layout, p attest.Policy) (*Report, string) {
	t.Helper()
	report, err := inspectLayout(t, l, "fabric", p)
	if !Failed(err) || report == nil {
		t.Fatalf("Inspect = %v; want a report, and an error that it does not verify", err)
	}
	return report, strings.Join(report.Problems, "\n")
}

func TestInspectFindsProblems(t *testing.T) {
	find := func(l *oci.Layout, platform string) oci.PlatformImage {
		d, err := l.Find("fabric/" + platform)
		if err != nil {
			t.Fatal(err)
		}
		return oci.PlatformImage{Platform: amd64, Digest: d.Digest.String()}
	}
	fail := result.Result{ID: "nccl/load", Title: "libnccl loads", Verdict: result.Fail, Reason: "undefined symbol: foo"}
	for name, c := range map[string]struct {
		key    crypto.Signer
		policy attest.Policy
		spoil  func(l *oci.Layout)
		want   []string
	}{
		"failed certificate": {
			spoil: func(l *oci.Layout) {
				img := find(l, "linux/amd64")
				attach(t, l, img.Digest, certificateOf(t, img, "fabric", fail), nil)
			},
			want: []string{"linux/amd64: the certificate", "its verdict is fail: nccl/load: undefined symbol: foo"},
		},
		"certificate of another image": {
			spoil: func(l *oci.Layout) {
				attach(t, l, find(l, "linux/amd64").Digest, certificateOf(t, find(l, "linux/arm64"), "fabric"), nil)
			},
			want: []string{"linux/amd64: the certificate", "not about this digest: its subject is fabric@sha256:"},
		},
		"SBOM of another image": {
			spoil: func(l *oci.Layout) {
				attach(t, l, find(l, "linux/amd64").Digest, sbomOf(t, find(l, "linux/arm64"), "fabric"), nil)
			},
			want: []string{"linux/amd64: the sbom", "not about this digest: its subject is fabric@sha256:"},
		},
		"certificate that contradicts itself": {
			spoil: func(l *oci.Layout) {
				img := find(l, "linux/amd64")
				doc := certificateOf(t, img, "fabric", fail)
				attach(t, l, img.Digest, bytes.Replace(doc, []byte(`"verdict":"fail"`), []byte(`"verdict":"pass"`), 1), nil)
			},
			want: []string{`verdict is "pass", but the results make it "fail"`},
		},
		"failed certificate of the index": {
			spoil: func(l *oci.Layout) {
				img := find(l, "linux/amd64")
				d, err := l.Find("fabric")
				if err != nil {
					t.Fatal(err)
				}
				img.Digest = d.Digest.String()
				attach(t, l, img.Digest, certificateOf(t, img, "fabric", fail), nil)
			},
			want: []string{"the index: the certificate", "its verdict is fail"},
		},
		"signature taken away": {
			key: signingKey, policy: attest.Policy{Keys: keys(signingKey), Required: All},
			spoil: func(l *oci.Layout) {
				img := find(l, "linux/amd64")
				attach(t, l, img.Digest, certificateOf(t, img, "fabric"), nil)
			},
			want: []string{"linux/amd64: the image has no certificate that counts", "is unsigned"},
		},
		"certificate taken away": {
			key: signingKey, policy: attest.Policy{Keys: keys(signingKey), Required: All},
			spoil: func(l *oci.Layout) {
				bare := writeImage(t, l, amd64, 77)
				if _, err := l.Assemble("fabric", []oci.PlatformImage{{Platform: amd64, Digest: bare}}, nil); err != nil {
					t.Fatal(err)
				}
			},
			want: []string{"linux/amd64: the image has no certificate"},
		},
		"another key": {
			key: otherKey, policy: attest.Policy{Keys: keys(signingKey), Required: All}, spoil: func(*oci.Layout) {},
			want: []string{"linux/amd64: the image has no certificate", "linux/arm64: the image has no provenance", "signed by another key"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newTarget(t, "fabric", c.key)
			c.spoil(l)
			_, problems := problemsOf(t, l, c.policy)
			for _, want := range c.want {
				if !strings.Contains(problems, want) {
					t.Errorf("problems are %q; want %q among them", problems, want)
				}
			}
		})
	}
}

func TestInspectShowsProblems(t *testing.T) {
	l := newTarget(t, "fabric", nil)
	d, err := l.Find("fabric/linux/amd64")
	if err != nil {
		t.Fatal(err)
	}
	img := oci.PlatformImage{Platform: amd64, Digest: d.Digest.String()}
	attach(t, l, img.Digest, certificateOf(t, img, "fabric", result.Result{
		ID: "sshd/config", Title: "sshd's configuration parses", Verdict: result.Fail, Reason: "exit status 255"}), signingKey)
	report, _ := problemsOf(t, l, attest.Policy{})
	report.Reference = "oci:out:fabric"
	text, _ := render(t, report)
	golden.Check(t, "failed.txt", text)
}

func TestInspectBareImage(t *testing.T) {
	l, err := oci.Create(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	digest := writeImage(t, l, arm64, 1)
	report, err := inspectLayout(t, l, digest, attest.Policy{})
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Images) != 1 || report.Images[0].Platform != "linux/arm64" || report.Images[0].Certificate != nil {
		t.Errorf("report is %+v", report)
	}
	report.Reference = "oci:out@" + digest
	text, _ := render(t, report)
	golden.Check(t, "bare.txt", text)
}
