package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	assay "github.com/assay-hpc/assay"
	"github.com/assay-hpc/assay/build/driver"
	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/internal/exit"
)

// common are the flags of every command that reads the matrix.
type common struct {
	matrix  string
	mirrors cli.StringSlice
	only    cli.StringSlice
	output  string
}

func (o *common) flags(more ...cli.Flag) []cli.Flag {
	return append([]cli.Flag{
		&cli.StringFlag{Name: "matrix", Usage: "matrix `FILE`; its lock is next to it (default: ./matrix.yaml, else the embedded one)", Destination: &o.matrix},
		&cli.StringSliceFlag{Name: "mirror", Usage: "`FROM=TO` redirects URLs and image references that start with FROM; for URLs TO may be a directory; may be repeated", Destination: &o.mirrors},
	}, more...)
}

func (o *common) onlyFlag() cli.Flag {
	return &cli.StringSliceFlag{Name: "only", Usage: "targets whose name matches `GLOB`; may be repeated", Destination: &o.only}
}

// complete prints completions for a shell: flags if the word begins with "-", otherwise
// the matrix's targets, or nothing if the matrix cannot be read.
func (o *common) complete(c *cli.Context) {
	if last := os.Args[max(len(os.Args)-2, 0)]; strings.HasPrefix(last, "-") {
		cli.DefaultCompleteWithFlags(c.Command)(c)
		return
	}
	if w, err := driver.Open(driver.Options{Matrix: o.matrix, Mirrors: o.mirrors.Value(), Version: assay.Version}); err == nil {
		for _, t := range w.Targets {
			fmt.Fprintln(c.App.Writer, t.Name)
		}
	}
}

// open opens the workspace. It logs to the error output.
func (o *common) open(c *cli.Context) (*driver.Workspace, error) {
	self, _ := os.Executable() // without it, a harness is compiled
	return driver.Open(driver.Options{
		Matrix: o.matrix, Mirrors: o.mirrors.Value(), Version: assay.Version, Self: self,
		Log: func(format string, args ...any) { fmt.Fprintf(c.App.ErrWriter, "assay: "+format+"\n", args...) },
	})
}

// names returns the arguments and the values of --only.
func (o *common) names(c *cli.Context) []string {
	return append(c.Args().Slice(), o.only.Value()...)
}

func platforms(list []string) ([]recipe.Platform, error) {
	var out []recipe.Platform
	for _, s := range list {
		p, err := recipe.ParsePlatform(s)
		if err != nil {
			return nil, exit.With(exit.Usage, err)
		}
		out = append(out, p)
	}
	return out, nil
}

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
