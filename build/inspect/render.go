package inspect

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/assay-hpc/assay/build/provenance"
	"github.com/assay-hpc/assay/build/sbom"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/result"
)

// JSON writes the report as one document.
func (r *Report) JSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// Text writes the report for a person.
func (r *Report) Text(w io.Writer) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s\n  digest  %s\n", r.Reference, r.Digest)
	for _, img := range r.Images {
		img.text(&b)
	}
	for _, e := range r.Attached {
		fmt.Fprintf(&b, "\nattached to the index: %s, %s\n", e.title(), e.signature())
	}
	for _, note := range r.Notes {
		fmt.Fprintf(&b, "\nnot compared: %s\n", note)
	}
	if len(r.Problems) == 0 {
		fmt.Fprintf(&b, "\nVerified: %s\n", r.verified())
	} else {
		fmt.Fprintf(&b, "\nNOT VERIFIED:\n  - %s\n", strings.Join(r.Problems, "\n  - "))
	}
	_, err := w.Write(b.Bytes())
	return err
}

// verified says exactly what was verified. Without keys, that does not include the signer.
func (r *Report) verified() string {
	what := "digests of manifests and configurations; " + r.Layers.String()
	switch {
	case r.keys:
		what += "; statements and signatures"
	case !slices.ContainsFunc(r.all(), func(e AttachedEntry) bool { return e.Kind != "" }):
		what += "; no certificate, SBOM or provenance is attached to this image"
	default:
		what += "; every statement is about the image it is attached to; signatures were not verified"
	}
	if r.Target != "" {
		what += "; target " + r.Target
	}
	if r.recipe != "" {
		what += "; recipe " + r.recipe
	}
	return what + "."
}

// String says what is known of the layers.
func (l LayersReport) String() string {
	s := fmt.Sprintf("that %d layers are there in their size, not their bytes (--deep reads them)", l.Count)
	if l.Verified == "digest" {
		s = fmt.Sprintf("digests of all %d layers", l.Count)
	}
	if l.Elsewhere > 0 {
		s += fmt.Sprintf("; not %d more, which no registry may distribute", l.Elsewhere)
	}
	return s
}

// all returns the entries of the index and of all images.
func (r *Report) all() []AttachedEntry {
	list := slices.Clone(r.Attached)
	for _, img := range r.Images {
		list = append(list, img.Attached...)
	}
	return list
}

func (img Image) text(b *bytes.Buffer) {
	fmt.Fprintf(b, "\n%s  %s  %s in layers\n", img.Platform, img.Digest, size(img.Bytes))
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	img.line(w, certificate.Kind.Name, "certificate", img.Certificate.String())
	packages := fmt.Sprintf("%d Debian packages, %d components", img.Packages, len(img.Components))
	img.line(w, sbom.Kind.Name, "SBOM", packages)
	img.line(w, provenance.Kind.Name, "provenance", img.built())
	for _, e := range img.Attached {
		if e.Kind == "" || e.Aside != "" {
			fmt.Fprintf(w, "  attached\t%s\t%s\n", e.title(), e.signature())
		}
	}
	w.Flush()
	img.Certificate.remarks(b)
	if len(img.Components) > 0 {
		b.WriteByte('\n')
		fmt.Fprintln(w, "  COMPONENT\tVERSION\tLICENSE")
		for _, c := range img.Components {
			version := c.Version
			if c.Base != "" {
				version = strings.TrimSpace(version + " (base)")
			}
			fmt.Fprintf(w, "  %s\t%s\t%s\n", c.Name, version, c.License)
		}
		w.Flush()
	}
	if img.Sizes != nil {
		img.Sizes.text(b)
	}
}

// line writes what one kind of statement says, or that there is none.
func (img Image) line(w io.Writer, kind, name, text string) {
	var signatures []string
	for _, e := range img.Attached {
		if e.Kind == kind && e.Aside == "" {
			signatures = append(signatures, e.signature())
		}
	}
	if len(signatures) == 0 {
		fmt.Fprintf(w, "  %s\tnone\n", name)
		return
	}
	fmt.Fprintf(w, "  %s\t%s\t%s\n", name, text, strings.Join(signatures, "; "))
}

func (e AttachedEntry) signature() string {
	if len(e.KeyIDs) == 0 {
		return string(e.Signature)
	}
	return string(e.Signature) + " (" + strings.Join(e.KeyIDs, ", ") + ")"
}

// String returns one line such as "pass: 40 pass, 2 skip (suite image, …)".
func (c *Certified) String() string {
	if c == nil {
		return "unreadable"
	}
	var counts []string
	for _, v := range []result.Verdict{result.Pass, result.Fail, result.Error, result.Skip} {
		if n := c.Count[v]; n > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", n, v))
		}
	}
	return fmt.Sprintf("%s: %s (suite %s, harness %s, %s)", c.Verdict, strings.Join(counts, ", "), c.Suite, c.Harness, c.Finished)
}

// remarks lists every check that is not a pass, with its reason: a skip is
// shown, never only counted.
func (c *Certified) remarks(b *bytes.Buffer) {
	if c == nil {
		return
	}
	for _, r := range c.Results {
		if r.Verdict != result.Pass {
			fmt.Fprintf(b, "    %s  %s: %s\n", r.Verdict, r.ID, r.Reason)
		}
	}
}

func (img Image) built() string {
	p := img.Provenance
	if p == nil {
		return "unreadable"
	}
	return fmt.Sprintf("by %s from %d inputs, %s", p.Builder, p.Dependencies, p.FinishedOn)
}

// size writes bytes in powers of 1000, as registries bill them.
func size(n int64) string {
	units := []string{"B", "kB", "MB", "GB"}
	f, i := float64(n), 0
	for f >= 1000 && i < len(units)-1 {
		f, i = f/1000, i+1
	}
	if i == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", f, units[i])
}
