package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/assay-hpc/assay/harness/certificate"
	"github.com/assay-hpc/assay/harness/report"
	"github.com/assay-hpc/assay/internal/attest"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/nearest"
	"github.com/assay-hpc/assay/internal/plain"
)

// A document is a certificate, as it was read from a file.
type document struct {
	statement *certificate.Statement
	signature *report.Signature // nil: it is not reported
	history   []*certificate.Statement
}

// A rendering is an output format of certificates.
type rendering struct {
	format, file string // its name, and the name of its file in a directory
	write        func(w io.Writer, docs []document) error
}

var renderings = []rendering{
	{"text", "report.txt", func(w io.Writer, docs []document) error {
		for i, d := range docs {
			if i > 0 {
				fmt.Fprintln(w)
			}
			if err := report.Text(painted(w), d.statement, report.TextOptions{Color: colored(w), Width: columns(w), Verbose: true}); err != nil {
				return err
			}
		}
		return nil
	}},
	{"json", "certificate.json", func(w io.Writer, docs []document) error {
		for _, d := range docs {
			b, err := d.statement.Marshal()
			if err != nil {
				return err
			}
			if _, err := w.Write(b); err != nil {
				return err
			}
		}
		return nil
	}},
	{"junit", "junit.xml", func(w io.Writer, docs []document) error { return report.JUnit(w, statements(docs)...) }},
	{"prometheus", "metrics.prom", func(w io.Writer, docs []document) error { return report.Prometheus(w, statements(docs)...) }},
	{"html", "report.html", func(w io.Writer, docs []document) error {
		if len(docs) != 1 {
			return exit.Usagef("a page shows one certificate, not %d: give one FILE, or another --format", len(docs))
		}
		return report.HTML(w, docs[0].statement, report.Page{Signature: docs[0].signature, History: docs[0].history})
	}},
}

func statements(docs []document) (out []*certificate.Statement) {
	for _, d := range docs {
		out = append(out, d.statement)
	}
	return out
}

// lookupRendering finds a rendering by its format.
func lookupRendering(format string) (rendering, error) {
	var names []string
	for _, r := range renderings {
		if r.format == format {
			return r, nil
		}
		names = append(names, r.format)
	}
	return rendering{}, exit.Usagef("--format is one of %s, not %q", strings.Join(names, ", "), format)
}

// columns returns the width of a terminal; 0: w is no terminal, or its width is unknown.
func columns(w io.Writer) int {
	f, ok := plain.Raw(w).(*os.File)
	if !ok {
		return 0
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}

// rendered returns the files of certificates, by their names in a directory.
func rendered(docs []document, all ...rendering) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, r := range all {
		var b bytes.Buffer
		if err := r.write(&b, docs); err != nil {
			return nil, err
		}
		files[r.file] = b.Bytes()
	}
	return files, nil
}

type reportOptions struct {
	format, output, machine string
	keys, history           cli.StringSlice
}

func reportCommand(out io.Writer) *cli.Command {
	var o reportOptions
	return &cli.Command{
		Name: "report", Usage: "render certificates: text, JSON, JUnit, Prometheus, HTML", ArgsUsage: "FILE...",
		Description: "FILE is a certificate, or the DSSE envelope of a signed one. Showing judges nothing: the exit status does not\n" +
			"depend on the verdict (harness verify does).",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "format", Aliases: []string{"o"}, Destination: &o.format, Usage: "`FORMAT` of the output: text, json, junit, prometheus or html (default: text; of a directory all)"},
			&cli.StringFlag{Name: "out", Destination: &o.output, Usage: "write to `FILE`, or into the directory DIR/, instead of stdout"},
			&cli.StringFlag{Name: "machine", Destination: &o.machine, Usage: "render the certificate of the machine `NAME` inside a cluster's certificate"},
			&cli.StringSliceFlag{Name: "history", Destination: &o.history, Usage: "plot values over time in HTML, with the earlier certificate `FILE`; may be repeated"},
			&cli.StringSliceFlag{Name: "key", Destination: &o.keys, Usage: "verify signatures with the public `KEY`, a PEM file or a service's reference as for harness sign; may be repeated"},
		},
		Action: func(c *cli.Context) error { return o.run(c.Context, c.Args().Slice(), out) },
	}
}

func (o *reportOptions) run(ctx context.Context, files []string, out io.Writer) error {
	if len(files) == 0 {
		return exit.Usagef("report wants one FILE at least: a certificate, or a signed one's envelope")
	}
	forms := renderings
	toDir := isDir(o.output)
	if o.format != "" || !toDir {
		r, err := lookupRendering(cmp.Or(o.format, "text"))
		if err != nil {
			return err
		}
		forms = []rendering{r}
	}
	if len(o.history.Value()) > 0 && !slices.ContainsFunc(forms, func(r rendering) bool { return r.format == "html" }) {
		return exit.Usagef("--history is shown in a page: say --format html")
	}
	keys, err := loadKeys(ctx, o.keys.Value())
	if err != nil {
		return err
	}
	var docs []document
	for _, f := range files {
		d, err := readDocument(f, keys)
		if err != nil {
			return err
		}
		if o.machine != "" {
			if d.statement, err = d.inside(o.machine); err != nil {
				return exit.Usagef("%s: %w", f, err)
			}
		}
		docs = append(docs, d)
	}
	for _, f := range o.history.Value() {
		d, err := readDocument(f, keys)
		if err != nil {
			return fmt.Errorf("--history: %w", err)
		}
		docs[0].history = append(docs[0].history, d.statement)
	}
	if o.output == "" {
		if forms[0].format != "text" { // other formats are written byte for byte
			out = plain.Raw(out)
		}
		return forms[0].write(out, docs)
	}
	made, err := rendered(docs, forms...)
	if err != nil {
		return err
	}
	if !toDir {
		return writeFile(o.output, made[forms[0].file])
	}
	dir, err := openOutput(o.output)
	if err != nil {
		return err
	}
	defer dir.close()
	return dir.write(made)
}

// inside returns the certificate of a machine from a cluster's certificate.
func (d *document) inside(machine string) (*certificate.Statement, error) {
	var names []string
	for _, m := range d.statement.Predicate.Machines {
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
	return nil, fmt.Errorf("--machine: there is no %q; did you mean %q?", machine, nearest.To(machine, names))
}

// isDir reports whether a name is an existing directory's, or ends with a separator.
func isDir(name string) bool {
	st, err := os.Stat(name)
	return err == nil && st.IsDir() || strings.HasSuffix(name, string(filepath.Separator))
}

// readDocument reads a certificate or an envelope. With keys, it accepts only what one
// of them signed.
func readDocument(file string, keys []crypto.PublicKey) (document, error) {
	b, err := readCertificateFile(file)
	if err != nil {
		return document{}, err
	}
	st, a, err := certificate.Open(b, keys...)
	switch {
	case err != nil && len(keys) > 0:
		return document{}, exit.With(exit.Fail, fmt.Errorf("%s: %w", file, err))
	case err != nil:
		return document{}, exit.Usagef("%s: %w", file, err)
	}
	return document{statement: st, signature: signatureOf(a)}, nil
}

// signatureOf returns what a report says about a document's signature.
func signatureOf(a attest.Attachment) *report.Signature {
	return &report.Signature{Verified: a.Signature == attest.Verified, Keys: a.KeyIDs}
}

// readCertificateFile reads a file that may contain a certificate.
func readCertificateFile(name string) ([]byte, error) {
	b, err := certificate.ReadFile(name)
	if err != nil {
		return nil, exit.Usagef("%w", err)
	}
	return b, nil
}
