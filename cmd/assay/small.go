package main

import (
	"cmp"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/build/component"
	"github.com/assay-hpc/assay/build/dockerfile"
	"github.com/assay-hpc/assay/build/driver"
	"github.com/assay-hpc/assay/build/matrix"
	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/grammar"
	"github.com/assay-hpc/assay/internal/version"
)

func schemaCommand() *cli.Command {
	return &cli.Command{
		Name: "schema", Usage: "print the JSON Schema of matrix.yaml or of certificates",
		ArgsUsage:    "[matrix|certificate]",
		BashComplete: func(c *cli.Context) { fmt.Fprint(c.App.Writer, "matrix\ncertificate\n") },
		Action: func(c *cli.Context) error {
			if c.NArg() > 1 {
				return exit.Usagef("schema takes one argument: matrix or certificate")
			}
			var doc []byte
			switch c.Args().First() {
			case "", "matrix":
				doc = append(matrix.Schema(), '\n')
			case "certificate":
				doc = certificate.Schema()
			default:
				return exit.Usagef("there is no schema of %q: matrix or certificate", c.Args().First())
			}
			_, err := c.App.Writer.Write(doc)
			return err
		},
	}
}

func versionCommand() *cli.Command {
	var form string
	return &cli.Command{
		Name: "version", Usage: "print version, commit and build date",
		Flags:  []cli.Flag{grammar.Format(&form, "text", "json")},
		Before: grammar.NoArgs,
		Action: func(c *cli.Context) error {
			if form == "json" {
				return writeJSON(c.App.Writer, version.Get())
			}
			_, err := fmt.Fprintln(c.App.Writer, "assay "+version.Get().String())
			return err
		},
	}
}

func dockerfileCommand() *cli.Command {
	o := &common{}
	var platform string
	return &cli.Command{
		Name: "dockerfile", Usage: "print a locked target's recipe as a Dockerfile",
		ArgsUsage: "TARGET",
		Flags: o.flags(
			&cli.StringFlag{Name: "platform", Usage: "`PLATFORM` to write it for", Value: "linux/amd64", Destination: &platform},
		),
		BashComplete: o.complete,
		Action: func(c *cli.Context) error {
			p, err := recipe.ParsePlatform(platform)
			if err != nil {
				return exit.With(exit.Usage, err)
			}
			if c.NArg() != 1 {
				return exit.Usagef("dockerfile wants one TARGET; \"assay plan\" lists them")
			}
			w, err := o.open(c)
			if err != nil {
				return err
			}
			ts, err := w.Select(c.Args().Slice())
			if err != nil {
				return err
			}
			if len(ts) != 1 {
				return exit.Usagef("dockerfile writes one target, and %q are %d", c.Args().First(), len(ts))
			}
			res, err := w.Recipe(ts[0], p, p)
			if err != nil {
				return err
			}
			if len(res.Missing) > 0 { // the Dockerfile would install nothing and verify nothing
				return driver.NotLockedError(cmp.Or(w.LockPath, "matrix.lock (embedded)"), map[string][]component.Missing{ts[0].Name: res.Missing})
			}
			text, err := dockerfile.Write(res.Recipe, dockerfile.Env{Epoch: w.Epoch(), URL: w.Mirror.URL, Image: w.Mirror.Image, Sed: w.Mirror.Sed(),
				Locked: func(url string) bool { return w.Mirror.Authorization(url) != "" }, AptLocked: w.Mirror.AptAuth() != ""})
			if err != nil {
				return err
			}
			_, err = c.App.Writer.Write([]byte(text))
			return err
		},
	}
}

// fishCompletion queries the program itself, for targets, too.
func fishCompletion(*cli.App) (string, error) {
	return `# assay completion fish > ~/.config/fish/completions/assay.fish
complete -c assay -f -a '(eval (commandline -opc) --generate-bash-completion 2>/dev/null)'
`, nil
}
