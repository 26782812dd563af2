package publish

import (
	"bytes"
	"crypto"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-hpc/assay/harness/certificate"
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

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		if err := os.WriteFile(path+".got", []byte(got), 0o644); err != nil {
			t.Error(err)
		}
		t.Errorf("%s differs (-want +got), see %s.got:\n%s", path, path, diff)
	}
}

func render(t *testing.T, r *Report) (text, json string) {
	t.Helper()
	for i := range r.Images {
		r.Images[i].Bytes = 6_500_000
	}
	var a, b bytes.Buffer
	if err := errors.Join(r.Text(&a), r.JSON(&b)); err != nil {
		t.Fatal(err)
	}
	return anonymous(a.String()), anonymous(b.String())
}

func TestInspect(t *testing.T) {
	l := newTarget(t, "fabric", signingKey)
	report, err := Inspect(t.Context(), "oci:"+l.Dir()+":fabric", []crypto.PublicKey{otherKey.Public(), signingKey.Public()}, quick)
	if err != nil {
		t.Fatal(err)
	}
	report.Reference = "oci:out:fabric"
	text, json := render(t, report)
	golden(t, "verified.txt", text)
	golden(t, "verified.json", json)
}

func TestInspectRegistryAsLayout(t *testing.T) {
	eachReferrers(t, func(t *testing.T, r *testRegistry) {
		l := newTarget(t, "fabric", signingKey)
		if _, err := Push(t.Context(), l.Dir(), "fabric", r.repo(), []string{"x"}, quick); err != nil {
			t.Fatal(err)
		}
		keys := []crypto.PublicKey{signingKey.Public()}
		want, err := Inspect(t.Context(), "oci:"+l.Dir(), keys, quick)
		if err != nil {
			t.Fatal(err)
		}
		for _, ref := range []string{r.repo() + ":x", r.repo() + "@" + want.Digest} {
			got, err := Inspect(t.Context(), ref, keys, quick)
			if err != nil {
				t.Fatal(err)
			}
			got.Reference = want.Reference
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("Inspect(%s) differs from that of the layout (-want +got):\n%s", ref, diff)
			}
		}
		if _, err := Inspect(t.Context(), r.repo()+":nosuch", keys, quick); err == nil {
			t.Error("a tag that is not there was inspected")
		}
	})
}

// problemsOf inspects a layout that must not verify.
func problemsOf(t *testing.T, l *Layout, keys ...crypto.PublicKey) (*Report, string) {
	t.Helper()
	report, err := Inspect(t.Context(), "oci:"+l.Dir()+":fabric", keys, quick)
	var ve *VerifyError
	if !errors.As(err, &ve) || report == nil {
		t.Fatalf("Inspect = %v; want a report and a VerifyError", err)
	}
	return report, strings.Join(ve.Problems, "\n")
}

func TestInspectFindsProblems(t *testing.T) {
	find := func(l *Layout, platform string) PlatformImage {
		d, err := l.Find("fabric/" + platform)
		if err != nil {
			t.Fatal(err)
		}
		return PlatformImage{amd64, d.Digest.String()}
	}
	fail := certificate.Result{ID: "nccl/load", Title: "libnccl loads", Verdict: certificate.Fail, Reason: "undefined symbol: foo"}
	for name, c := range map[string]struct {
		key   crypto.Signer
		keys  []crypto.PublicKey
		spoil func(l *Layout)
		want  []string
	}{
		"failed certificate": {
			spoil: func(l *Layout) {
				img := find(l, "linux/amd64")
				attach(t, l, img.Digest, certificateOf(t, img, "fabric", fail), nil)
			},
			want: []string{"linux/amd64: the certificate", "its verdict is fail: nccl/load: undefined symbol: foo"},
		},
		"certificate of another image": {
			spoil: func(l *Layout) {
				attach(t, l, find(l, "linux/amd64").Digest, certificateOf(t, find(l, "linux/arm64"), "fabric"), nil)
			},
			want: []string{"linux/amd64: the certificate", "is about another image"},
		},
		"SBOM of another image": {
			spoil: func(l *Layout) {
				attach(t, l, find(l, "linux/amd64").Digest, sbomOf(t, find(l, "linux/arm64"), "fabric"), nil)
			},
			want: []string{"linux/amd64: the SBOM", "is about another image"},
		},
		"certificate that contradicts itself": {
			spoil: func(l *Layout) {
				img := find(l, "linux/amd64")
				doc := certificateOf(t, img, "fabric", fail)
				attach(t, l, img.Digest, bytes.Replace(doc, []byte(`"verdict":"fail"`), []byte(`"verdict":"pass"`), 1), nil)
			},
			want: []string{`verdict is "pass", but the results make it "fail"`},
		},
		"failed certificate of the index": {
			spoil: func(l *Layout) {
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
			key: signingKey, keys: []crypto.PublicKey{signingKey.Public()},
			spoil: func(l *Layout) {
				img := find(l, "linux/amd64")
				attach(t, l, img.Digest, certificateOf(t, img, "fabric"), nil)
			},
			want: []string{"linux/amd64: certificate", ": unsigned"},
		},
		"certificate taken away": {
			key: signingKey, keys: []crypto.PublicKey{signingKey.Public()},
			spoil: func(l *Layout) {
				bare := writeImage(t, l, amd64, 77)
				if _, err := l.Assemble("fabric", []PlatformImage{{amd64, bare}}, nil); err != nil {
					t.Fatal(err)
				}
			},
			want: []string{"linux/amd64: the image has no certificate"},
		},
		"another key": {
			key: otherKey, keys: []crypto.PublicKey{signingKey.Public()}, spoil: func(*Layout) {},
			want: []string{"linux/amd64: certificate", "linux/arm64: provenance", "signed by another key"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newTarget(t, "fabric", c.key)
			c.spoil(l)
			_, problems := problemsOf(t, l, c.keys...)
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
	img := PlatformImage{amd64, d.Digest.String()}
	attach(t, l, img.Digest, certificateOf(t, img, "fabric", certificate.Result{
		ID: "sshd/config", Title: "sshd's configuration parses", Verdict: certificate.Fail, Reason: "exit status 255"}), signingKey)
	report, _ := problemsOf(t, l)
	report.Reference = "oci:out:fabric"
	text, _ := render(t, report)
	golden(t, "failed.txt", text)
}

func TestInspectRecomputesDigests(t *testing.T) {
	l := newTarget(t, "fabric", nil)
	d, err := l.Find("fabric/linux/amd64")
	if err != nil {
		t.Fatal(err)
	}
	refs, err := l.Referrers(d.Digest)
	if err != nil {
		t.Fatal(err)
	}
	m, err := l.manifest(refs[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	path := l.blobPath(m.Layers[0].Digest)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, bytes.Replace(b, []byte("fabric"), []byte("fabrik"), 1), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Inspect(t.Context(), "oci:"+l.Dir()+":fabric", nil, quick); !blames(err, m.Layers[0].Digest) {
		t.Errorf("Inspect = %v; want a BlobError of %s", err, m.Layers[0].Digest)
	}
}

func TestInspectBareImage(t *testing.T) {
	l, err := Create(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	digest := writeImage(t, l, arm64, 1)
	report, err := Inspect(t.Context(), "oci:"+l.Dir()+"@"+digest, nil, quick)
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Images) != 1 || report.Images[0].Platform != "linux/arm64" || report.Images[0].Certificate != nil {
		t.Errorf("report is %+v", report)
	}
	report.Reference = "oci:out@" + digest
	text, _ := render(t, report)
	golden(t, "bare.txt", text)
}

func TestSplitLayout(t *testing.T) {
	colon := filepath.Join(t.TempDir(), "a:b")
	if err := os.Mkdir(colon, 0o755); err != nil {
		t.Fatal(err)
	}
	for in, want := range map[string][2]string{
		"out":              {"out", ""},
		"out:fabric":       {"out", "fabric"},
		"out@sha256:12":    {"out", "sha256:12"},
		colon:              {colon, ""},
		colon + ":fabric":  {colon, "fabric"},
		"out/x:a/linux/b6": {"out/x", "a/linux/b6"},
	} {
		if dir, target := splitLayout(in); dir != want[0] || target != want[1] {
			t.Errorf("splitLayout(%q) = %q, %q; want %q", in, dir, target, want)
		}
	}
}
