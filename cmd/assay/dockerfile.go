package main

import (
	"cmp"
	"fmt"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/build/component"
	"github.com/assay-hpc/assay/build/dockerfile"
	"github.com/assay-hpc/assay/build/driver"
	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/internal/exit"
)

func dockerfileCommand() *cli.Command {
	o := &common{}
	var platform, out string
	return &cli.Command{
		Name: "dockerfile", Usage: "print a locked target's recipe as a Dockerfile",
		ArgsUsage: "TARGET",
		Flags: o.flags(
			&cli.StringFlag{Name: "platform", Usage: "`PLATFORM` to write it for", Value: "linux/amd64", Destination: &platform},
			&cli.StringFlag{Name: "out", Usage: "write a short Dockerfile, with the scripts, packages and files that it uses, to `DIR`, also of a target that is not locked; DIR is new, empty, or as this command left it", Destination: &out},
			&cli.StringFlag{Name: "o", Usage: "`DIR`: as --out", Hidden: true, Destination: &out},
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
			env := dockerfile.Env{Epoch: w.Epoch(), URL: w.Mirror.URL, Image: w.Mirror.Image, Sed: w.Mirror.Sed(),
				Locked: func(url string) bool { return w.Mirror.Authorization(url) != "" }, AptLocked: w.Mirror.AptAuth() != ""}
			if out != "" {
				return writeDockerfile(c, out, res, env)
			}
			if len(res.Missing) > 0 { // the Dockerfile would install nothing and verify nothing
				return driver.NotLockedError(cmp.Or(w.LockPath, "matrix.lock (embedded)"), map[string][]component.Missing{ts[0].Name: res.Missing})
			}
			text, err := dockerfile.Write(res.Recipe, env)
			if err != nil {
				return err
			}
			_, err = c.App.Writer.Write([]byte(text))
			return err
		},
	}
}

func writeDockerfile(c *cli.Context, dir string, res component.Result, env dockerfile.Env) error {
	files, err := dockerfile.Directory(res.Recipe, env)
	if err != nil {
		return err
	}
	if err := driver.WriteDockerfile(dir, files); err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	if len(res.Missing) > 0 {
		fmt.Fprintf(c.App.ErrWriter, "assay: the lock does not pin all that %s needs: the first lines of %s name what is to be given before it can be built\n", res.Recipe.Target, filepath.Join(dir, "Dockerfile"))
	}
	return nil
}
