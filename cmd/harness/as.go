package main

import (
	"io"
	"os"
	"strings"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/assay-hpc/assay/harness/site/as"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/result"
	"github.com/assay-hpc/assay/internal/words"
)

// asOptions say as which other tool a verdict is stated.
type asOptions struct {
	name   string
	form   as.Form
	stated *certificate.Statement // nil: nothing was stated yet
}

func (o *asOptions) flags() []cli.Flag {
	return []cli.Flag{&cli.StringFlag{
		Name: "as", Destination: &o.name,
		Usage: "state the verdict as the tool `NAME` does, on stdout and by the exit status: " + strings.Join(as.Names(), ", "),
	}}
}

// given reports whether the flag was.
func (o *asOptions) given() bool { return o.name != "" }

// check reports what is wrong with the flag.
func (o *asOptions) check() (err error) {
	if !o.given() {
		return nil
	}
	if o.form, err = as.Lookup(o.name); err != nil {
		return exit.Usagef("--as: %w", err)
	}
	return nil
}

// write states a certificate's verdict.
func (o *asOptions) write(w io.Writer, st *certificate.Statement) error {
	doc, err := o.form.Document(st, os.Getenv)
	if err != nil {
		return exit.Usagef("--as %s: %w", o.name, err)
	}
	if _, err := words.Raw(w).Write(doc); err != nil {
		return err
	}
	o.stated = st
	if reason := as.Reason(st); o.form.Details && reason != "" && inherited(details) {
		_, err = os.NewFile(details, "details").WriteString(reason + "\n")
	}
	return err
}

// details is the descriptor from which a form's details are read.
const details = 3

// inherited reports whether this process was started with a descriptor: those that it opens itself
// are closed when it starts others.
func inherited(fd uintptr) bool {
	flags, err := unix.FcntlInt(fd, unix.F_GETFD, 0)
	return err == nil && flags&unix.FD_CLOEXEC == 0
}

// end gives the error that ends the program the tool's status. That of wrong usage stays.
func (o *asOptions) end(err error) error {
	switch {
	case !o.given() || exit.Of(err) == exit.Usage || err == nil && o.stated == nil:
		return err
	case o.stated == nil || err != nil && o.stated.Predicate.Verdict == result.Pass: // such as a site that could not be told
		return exit.With(o.form.NoVerdict, err)
	}
	return exit.With(o.form.Status(o.stated, os.Getenv), err)
}
