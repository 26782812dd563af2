package main

import (
	"cmp"
	"context"
	"crypto"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/assay-hpc/assay/harness/registry"
	"github.com/assay-hpc/assay/harness/report"
	"github.com/assay-hpc/assay/internal/attest"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/outfile"
	"github.com/assay-hpc/assay/internal/words"
)

// columns returns the width of a terminal; 0: w is no terminal, or its width is unknown.
func columns(w io.Writer) int {
	f, ok := words.Raw(w).(*os.File)
	if !ok {
		return 0
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}

// textOptions returns the options of a text for people, as the terminal is.
func textOptions(w io.Writer) report.TextOptions {
	return report.TextOptions{Color: colored(w), Width: columns(w), Verbose: true}
}

type reportOptions struct {
	format, output, machine string
	nodes                   string
	objects                 bool
	maxAge                  time.Duration
	keys, history           cli.StringSlice
	as                      asOptions
	src                     sourceOptions
	stderr                  io.Writer
}

func reportCommand(out, errOut io.Writer) *cli.Command {
	o := reportOptions{stderr: errOut}
	return &cli.Command{
		Name: "report", Usage: "render certificates: text, JSON, JUnit, Prometheus, HTML", ArgsUsage: "DIR|REPO|CERTIFICATE...",
		Description: "CERTIFICATE is bare or signed: a file, - for stdin, REPO@sha256:… or REPO:TAG, or oci:DIR[:NAME|@sha256:…].\n" +
			"Up to four certificates are written in full. More, or those of several nodes in a directory and below it (*.json), in a REPO of a\n" +
			"registry or in oci:DIR, become one page of the fleet: nodes that stand out from their peers, versions that differ, checks that did not\n" +
			"pass, and who has no certificate. --machine NAME then shows one node, with its earlier certificates.\n" +
			"Showing judges nothing: the exit status does not depend on the verdict (harness verify does), unless --as says whose it is.",
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "format", Aliases: []string{"o"}, Destination: &o.format, Usage: "`FORMAT` of the output: text, json, junit, prometheus or html (default: text; of a directory all)"},
			&cli.StringFlag{Name: "out", Destination: &o.output, Usage: "write to `FILE`, or into the directory DIR/, instead of stdout"},
			&cli.StringFlag{Name: "machine", Destination: &o.machine, Usage: "render the certificate of the machine `NAME`: inside a cluster's certificate, or of a fleet"},
			&cli.StringFlag{Name: "nodes", Destination: &o.nodes, Usage: "say which nodes of a fleet have no certificate, of `LIST`: node[01-64], or a file: a hostfile, or Slurm's topology.conf"},
			&cli.DurationFlag{Name: "max-age", Value: defaultMaxAge, Destination: &o.maxAge, Usage: "call a certificate of a fleet old after `TIME`; 0: never"},
			&cli.BoolFlag{Name: "objects", Destination: &o.objects, Usage: "with --format prometheus: write every GPU, port and pair, and not only those that are not well"},
			&cli.StringSliceFlag{Name: "history", Destination: &o.history, Usage: "plot values over time in HTML, with the earlier certificate `FILE`; may be repeated"},
			&cli.StringSliceFlag{Name: "key", Destination: &o.keys, Usage: "verify signatures with the public `KEY`, a PEM file or a service's reference as for harness sign; may be repeated"},
		}, append(o.as.flags(), o.src.flags()...)...),
		Action: func(c *cli.Context) error { return o.as.end(o.run(c.Context, c.Args().Slice(), out)) },
	}
}

func (o *reportOptions) run(ctx context.Context, files []string, out io.Writer) error {
	if len(files) == 0 {
		return exit.Usagef("report wants one CERTIFICATE at least, bare or signed, or a directory of them")
	}
	if err := o.as.check(); err != nil {
		return err
	}
	if o.as.given() && (len(files) > 1 || registry.Several(files[0]) || o.format != "" || o.output != "") {
		return exit.Usagef("--as %s states the verdict of one certificate, on stdout: name one, and leave out --format and --out", o.as.name)
	}
	if len(files) > mostPages || slices.ContainsFunc(files, registry.Several) || len(files) > 1 && o.format == "html" {
		return o.fleet(ctx, files, out)
	}
	if o.nodes != "" {
		return exit.Usagef("--nodes belongs to a fleet: name a directory or a repository of certificates")
	}
	forms := report.Forms
	toDir := isDir(o.output)
	if o.format != "" || !toDir {
		r, err := report.LookupForm(cmp.Or(o.format, "text"))
		if err != nil {
			return err
		}
		forms = []report.Form{r}
	}
	if len(o.history.Value()) > 0 && !slices.ContainsFunc(forms, func(f report.Form) bool { return f.Format == "html" }) {
		return exit.Usagef("--history is shown in a page: say --format html")
	}
	keys, err := loadKeys(ctx, o.keys.Value())
	if err != nil {
		return err
	}
	var docs []report.Document
	for _, f := range files {
		d, err := o.src.document(ctx, f, keys)
		if err != nil {
			return err
		}
		if o.machine != "" {
			if d.Statement, err = d.Inside(o.machine); err != nil {
				return exit.Usagef("%s: %w", f, err)
			}
		}
		docs = append(docs, d)
	}
	for _, f := range o.history.Value() {
		d, err := o.src.document(ctx, f, keys)
		if err != nil {
			return fmt.Errorf("--history: %w", err)
		}
		docs[0].History = append(docs[0].History, d.Statement)
	}
	if len(docs) > 1 && len(forms) > 1 { // a page shows one certificate
		forms = slices.DeleteFunc(slices.Clone(forms), func(f report.Form) bool { return f.Format == "html" })
	}
	if o.as.given() {
		return o.as.write(out, docs[0].Statement)
	}
	return o.pages(docs, forms, out)
}

// mostPages is the number of certificates that are written in full beside one another.
const mostPages = 4

// pages writes certificates in full.
func (o *reportOptions) pages(docs []report.Document, forms []report.Form, out io.Writer) error {
	if o.output == "" {
		if forms[0].Format != "text" { // other formats are written byte for byte
			out = words.Raw(out)
		}
		opt := textOptions(out)
		opt.Objects = o.objects
		return forms[0].Write(painted(out), docs, opt)
	}
	made, err := report.Render(docs, report.TextOptions{Verbose: true, Objects: o.objects}, forms...)
	if err != nil {
		return err
	}
	return o.store(made)
}

// store writes files: the only one as --out, or all into the directory that it names.
func (o *reportOptions) store(made map[string][]byte) error {
	if !isDir(o.output) {
		for _, b := range made {
			return outfile.Write(o.output, b)
		}
	}
	dir, err := outfile.OpenDir(o.output)
	if err != nil {
		return outFailed(o.output, err)
	}
	defer dir.Close()
	return outFailed(o.output, dir.Write(made))
}

// outFailed explains why a directory was not written; nil: it was.
func outFailed(dir string, err error) error {
	if err == nil {
		return nil
	}
	return exit.With(exit.NotDone, fmt.Errorf("--out %s: %w; name a directory that is writable and has room", dir, err))
}

// isDir reports whether a name is an existing directory's, or ends with a separator.
func isDir(name string) bool {
	st, err := os.Stat(name)
	return err == nil && st.IsDir() || strings.HasSuffix(name, string(filepath.Separator))
}

// document reads a certificate or an envelope to show it. With keys, it accepts only what one of
// them signed.
func (o *sourceOptions) document(ctx context.Context, where string, keys []crypto.PublicKey) (report.Document, error) {
	b, err := o.read(ctx, where)
	if err != nil {
		return report.Document{}, err
	}
	st, a, err := certificate.Open(b, keys...)
	if err != nil {
		return report.Document{}, notRead(where, keys, err)
	}
	return report.Document{Statement: st, Signature: signatureOf(a)}, nil
}

// notRead gives the error of a certificate that cannot be read its exit status: with keys, it does
// not verify.
func notRead(where string, keys []crypto.PublicKey, err error) error {
	if len(keys) > 0 {
		return exit.With(exit.Fail, fmt.Errorf("%s: %w", where, err))
	}
	return exit.Usagef("%s: %w", where, err)
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
