package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/assay-hpc/assay/harness/fleet"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/words"
)

// A Document is a certificate, as it was read from a file.
type Document struct {
	Statement *certificate.Statement
	Signature *Signature               // nil: it is not reported
	History   []*certificate.Statement // earlier certificates, for HTML
}

// A Form is an output format of certificates.
type Form struct {
	Format, File string // its name, and the name of its file in a directory
	Write        func(w io.Writer, docs []Document, opt TextOptions) error
}

// Forms are all formats. The options are those of the text.
var Forms = []Form{
	{"text", "report.txt", func(w io.Writer, docs []Document, opt TextOptions) error {
		for i, d := range docs {
			if i > 0 {
				fmt.Fprintln(w)
			}
			if err := Text(w, d.Statement, opt); err != nil {
				return err
			}
		}
		return nil
	}},
	{"json", "certificate.json", func(w io.Writer, docs []Document, _ TextOptions) error {
		for _, d := range docs {
			b, err := d.Statement.Marshal()
			if err != nil {
				return err
			}
			if _, err := w.Write(b); err != nil {
				return err
			}
		}
		return nil
	}},
	{"junit", "junit.xml", func(w io.Writer, docs []Document, _ TextOptions) error { return JUnit(w, statements(docs)...) }},
	{"prometheus", "metrics.prom", func(w io.Writer, docs []Document, opt TextOptions) error {
		return Prometheus(w, opt.Objects, statements(docs)...)
	}},
	{"html", "report.html", func(w io.Writer, docs []Document, _ TextOptions) error {
		return HTML(w, docs[0].Statement, Page{Signature: docs[0].Signature, History: docs[0].History})
	}},
}

// A FleetForm is an output format of a fleet.
type FleetForm struct {
	Format, File string
	Write        func(w io.Writer, f *fleet.Fleet, opt TextOptions) error
}

// FleetForms are all formats of a fleet.
var FleetForms = []FleetForm{
	{"text", "report.txt", FleetText},
	{"json", "fleet.json", func(w io.Writer, f *fleet.Fleet, _ TextOptions) error {
		b, err := json.Marshal(f)
		if err != nil {
			return err
		}
		_, err = w.Write(append(b, '\n'))
		return err
	}},
	{"html", "report.html", func(w io.Writer, f *fleet.Fleet, _ TextOptions) error { return FleetHTML(w, f) }},
}

func statements(docs []Document) (out []*certificate.Statement) {
	for _, d := range docs {
		out = append(out, d.Statement)
	}
	return out
}

// LookupForm finds a form by its format.
func LookupForm(format string) (Form, error) {
	var names []string
	for _, r := range Forms {
		if r.Format == format {
			return r, nil
		}
		names = append(names, r.Format)
	}
	return Form{}, exit.Usagef("--format is one of %s, not %q", strings.Join(names, ", "), format)
}

// Render returns the files of certificates, by their names in a directory.
func Render(docs []Document, opt TextOptions, all ...Form) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, r := range all {
		var b bytes.Buffer
		if err := r.Write(&b, docs, opt); err != nil {
			return nil, err
		}
		files[r.File] = b.Bytes()
	}
	return files, nil
}

// Inside returns the certificate of a machine from a cluster's certificate.
func (d *Document) Inside(machine string) (*certificate.Statement, error) {
	var names []string
	for _, m := range d.Statement.Predicate.Machines {
		switch {
		case m.Name != machine:
			names = append(names, m.Name)
		case m.Certificate == nil:
			return nil, fmt.Errorf("the certificate of %s is not inside: it is the file with the SHA-256 %s", machine, m.SHA256)
		default:
			return m.Certificate, nil
		}
	}
	if names == nil {
		return nil, errors.New("--machine: it is not a certificate of several machines")
	}
	return nil, fmt.Errorf("--machine: there is no %q; did you mean %q?", machine, words.Nearest(machine, names))
}
