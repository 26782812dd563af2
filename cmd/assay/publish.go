package main

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/build/driver"
	"github.com/assay-hpc/assay/build/publish"
	"github.com/assay-hpc/assay/harness/sign"
)

func publishCommand() *cli.Command {
	var from, form string
	var tags cli.StringSlice
	var insecure bool
	return &cli.Command{
		Name: "publish", Usage: "push a built target, with what is attached to it, to a registry",
		ArgsUsage: "TARGET REPO",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "from", Usage: "`oci:DIR` that holds the target", Value: "oci:out", Destination: &from},
			&cli.StringSliceFlag{Name: "tag", Usage: "`TAG` to set once everything is there; may be repeated", Destination: &tags},
			&cli.BoolFlag{Name: "insecure", Usage: "plain HTTP", Destination: &insecure},
			outputFlag(&form, "text", "json"),
		},
		Action: func(c *cli.Context) error {
			if c.NArg() != 2 {
				return usagef("publish wants TARGET and REPO")
			}
			dir, err := layoutDir(from)
			if err != nil {
				return err
			}
			res, err := publish.Push(c.Context, dir, c.Args().Get(0), c.Args().Get(1), tags.Value(), publish.Options{Insecure: insecure})
			if err != nil {
				return noSuchImage(err)
			}
			if form == "json" {
				return writeJSON(c.App.Writer, res)
			}
			fmt.Fprintf(c.App.Writer, "%s@%s: %d blobs (%.1f MB), %d manifests, %d tags; %d already there\n",
				c.Args().Get(1), res.Digest, res.Blobs, float64(res.Bytes)/1e6, res.Manifests, res.Tags, res.Present)
			return nil
		},
	}
}

func inspectCommand() *cli.Command {
	var form string
	var keyFiles cli.StringSlice
	var insecure bool
	return &cli.Command{
		Name: "inspect", Usage: "show and verify an image's components, certificate, SBOM, provenance and signatures",
		ArgsUsage: "REF | oci:DIR[:TARGET|@DIGEST]",
		Flags: []cli.Flag{
			&cli.StringSliceFlag{Name: "key", Usage: "public `KEY` that signatures must verify with, a PEM file or a service's reference as for --sign-key; may be repeated", Destination: &keyFiles},
			&cli.BoolFlag{Name: "insecure", Usage: "plain HTTP", Destination: &insecure},
			outputFlag(&form, "text", "json"),
		},
		Action: func(c *cli.Context) error {
			if c.NArg() != 1 {
				return usagef("inspect wants one image: a reference, or oci:DIR")
			}
			keys, err := loadKeys(c.Context, keyFiles.Value())
			if err != nil {
				return err
			}
			rep, err := publish.Inspect(c.Context, c.Args().First(), keys, publish.Options{Insecure: insecure})
			if rep != nil {
				write := rep.Text
				if form == "json" {
					write = rep.JSON
				}
				if werr := write(c.App.Writer); werr != nil {
					return werr
				}
			}
			return verifyFailed(err)
		},
	}
}

func loadKeys(ctx context.Context, names []string) ([]crypto.PublicKey, error) {
	var keys []crypto.PublicKey
	for _, key := range names {
		k, err := sign.Public(ctx, key)
		if err != nil {
			return nil, &driver.InputError{Err: err}
		}
		keys = append(keys, k)
	}
	return keys, nil
}

// verifyFailed tells an image that does not verify (1) from one that could not
// be read (3).
func verifyFailed(err error) error {
	var v *publish.VerifyError
	if errors.As(err, &v) {
		return &failedError{err.Error()}
	}
	return noSuchImage(err)
}

// noSuchImage tells a name that makes no sense, or means nothing in the layout,
// (2) from a layout or registry that could not be read (3).
func noSuchImage(err error) error {
	var nf *publish.NotFoundError
	var bad *name.ErrBadName
	var path *fs.PathError
	noLayout := errors.As(err, &path) && errors.Is(err, fs.ErrNotExist) && filepath.Base(path.Path) == "index.json"
	if errors.As(err, &nf) || errors.As(err, &bad) || noLayout {
		return &driver.InputError{Err: err}
	}
	return err
}

func layoutDir(s string) (string, error) {
	dir, ok := strings.CutPrefix(s, "oci:")
	if !ok || dir == "" {
		return "", usagef("%q is not oci:DIR", s)
	}
	return dir, nil
}
