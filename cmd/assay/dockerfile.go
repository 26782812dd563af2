package main

import (
	"cmp"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/build/component"
	"github.com/assay-hpc/assay/build/dockerfile"
	"github.com/assay-hpc/assay/build/driver"
	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/internal/exit"
)

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
