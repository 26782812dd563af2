package main

import (
	"cmp"
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
	"github.com/assay-hpc/assay/build/inspect"
	"github.com/assay-hpc/assay/harness/sign"
	"github.com/assay-hpc/assay/internal/attest"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/grammar"
	"github.com/assay-hpc/assay/internal/oci"
)

func publishCommand() *cli.Command {
	var from, form string
	var tags, keyFiles, platform cli.StringSlice
	var insecure bool
	return &cli.Command{
		Name: "publish", Usage: "verify a built target and push it to a registry",
		ArgsUsage: "TARGET REPO",
		Description: "Certificate, SBOM and provenance of every image of TARGET are verified in the layout before anything is pushed, and in the\n" +
			"registry before a tag is set. With tags, all platforms that the matrix lists for TARGET must be there, or those that\n" +
			"--platform names.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "from", Usage: "`oci:DIR` that holds the target", Value: "oci:out", Destination: &from},
			&cli.StringSliceFlag{Name: "tag", Usage: "`TAG` to set once everything is there and verified; may be repeated", Destination: &tags},
			&cli.StringSliceFlag{Name: "key", Usage: "public `KEY` that must have signed what is attached, as for assay inspect; may be repeated", Destination: &keyFiles},
			&cli.StringSliceFlag{Name: "platform", Usage: "the target is for `PLATFORM`, and for no other that is not named; may be repeated", Destination: &platform},
			&cli.BoolFlag{Name: "insecure", Usage: "plain HTTP", Destination: &insecure},
			grammar.Format(&form, "text", "json"),
		},
		Action: func(c *cli.Context) error {
			if c.NArg() != 2 {
				return exit.Usagef("publish wants TARGET and REPO")
			}
			dir, err := layoutDir(from)
			if err != nil {
				return err
			}
			name, where := c.Args().Get(0), c.Args().Get(1)
			policy := attest.Policy{Target: strings.TrimSuffix(name, "-certify"), Required: inspect.All}
			if policy.Keys, err = loadKeys(c.Context, keyFiles.Value()); err != nil {
				return err
			}
			if policy.Platforms = some(platform.Value()); policy.Platforms == nil && len(tags.Value()) > 0 {
				if policy.Platforms, err = platformsOf(policy.Target); err != nil {
					return err
				}
			}
			if err := agreeing(&policy, where, tags.Value()); err != nil {
				return err
			}
			l, err := oci.Open(dir)
			if err != nil {
				return noSuchImage(err)
			}
			repo, err := oci.OpenRepository(where, oci.Options{Insecure: insecure})
			if err != nil {
				return exit.With(exit.Usage, err)
			}
			res, err := driver.Publish(c.Context, l, name, repo, tags.Value(), policy)
			if err != nil {
				return verifyFailed(err)
			}
			if form == "json" {
				return writeJSON(c.App.Writer, res)
			}
			fmt.Fprintf(c.App.Writer, "%s@%s: %d blobs (%.1f MB), %d manifests, %d tags; %d already there\n",
				where, res.Digest, res.Blobs, float64(res.Bytes)/1e6, res.Manifests, res.Tags, res.Present)
			return nil
		},
	}
}

// agreeing adds to a policy what the tags to set say about the image, by the matrix at hand.
func agreeing(policy *attest.Policy, repo string, tags []string) error {
	_, targets, err := driver.ReadMatrix("")
	if err != nil {
		targets = nil
	}
	for _, tag := range tags {
		says := driver.ReadTag(targets, repo+":"+tag)
		switch {
		case says.Target != "" && says.Target != policy.Target:
			return exit.Usagef("--tag %s: it is a tag of %s, not of %s", tag, says.Target, policy.Target)
		case says.Recipe != "" && policy.Recipe != "" && says.Recipe != policy.Recipe:
			return exit.Usagef("--tag %s: another tag ends in %s: an image has one recipe", tag, policy.Recipe)
		}
		policy.Recipe = cmp.Or(policy.Recipe, says.Recipe)
	}
	return nil
}

// platformsOf returns the platforms that the matrix at hand lists for a target, nil if
// the matrix does not contain the target.
func platformsOf(target string) (list []string, err error) {
	_, targets, err := driver.ReadMatrix("")
	if err != nil {
		return nil, err
	}
	for _, t := range targets {
		if t.Name == target {
			for _, p := range t.Platforms {
				list = append(list, p.String())
			}
		}
	}
	return list, nil
}

func inspectCommand() *cli.Command {
	var form, target, recipe string
	var keyFiles, require, platform cli.StringSlice
	var insecure, sizes, deep bool
	return &cli.Command{
		Name: "inspect", Usage: "show and verify an image and what is attached to it",
		ArgsUsage: "REF | oci:DIR[:TARGET|@DIGEST]",
		Description: "With --key, every image must have a certificate, an SBOM and provenance that one of the keys signed; --require says so\n" +
			"without a key. They must be about the target that a layout's name or a tag of the matrix at hand stands for, or that\n" +
			"--target names, and of the recipe in whose hash's first digits a full tag ends. What other programs attached is listed and left alone.",
		Flags: []cli.Flag{
			&cli.StringSliceFlag{Name: "key", Usage: "public `KEY` that signatures must verify with, a PEM file or a service's reference as for --sign-key; may be repeated", Destination: &keyFiles},
			&cli.StringSliceFlag{Name: "require", Usage: "documents that every image must have, of `LIST` certificate,sbom,provenance (default: with --key all of them)", Destination: &require},
			&cli.StringFlag{Name: "target", Usage: "the image must be of `TARGET`", Destination: &target},
			&cli.StringFlag{Name: "recipe", Usage: "the image must be of the recipe whose hash begins with `HEX` (default: as a full tag ends)", Destination: &recipe},
			&cli.BoolFlag{Name: "deep", Usage: "read all bytes of all layers, and compare them with their digests; without it, that each layer is there in its size", Destination: &deep},
			&cli.StringSliceFlag{Name: "platform", Usage: "the image must be for `PLATFORM`, such as linux/arm64, and for no other that is not named; may be repeated", Destination: &platform},
			&cli.BoolFlag{Name: "sizes", Usage: "show what the bytes are of: layers, components, Debian's source packages; reads all layers, which of an image in a registry are fetched", Destination: &sizes},
			&cli.BoolFlag{Name: "insecure", Usage: "plain HTTP", Destination: &insecure},
			grammar.Format(&form, "text", "json"),
		},
		Action: func(c *cli.Context) error {
			if c.NArg() != 1 {
				return exit.Usagef("inspect wants one image: a reference, or oci:DIR")
			}
			ref := c.Args().First()
			says := implied(ref)
			policy := attest.Policy{Target: cmp.Or(target, says.Target), Recipe: cmp.Or(recipe, says.Recipe), Platforms: some(platform.Value())}
			if deep {
				policy.Layers = attest.LayersRead
			}
			var err error
			if policy.Keys, err = loadKeys(c.Context, keyFiles.Value()); err != nil {
				return err
			}
			if policy.Required, err = inspect.Require(require.Value()); err != nil {
				return exit.Usagef("--require: %w", err)
			}
			if len(policy.Keys) > 0 && len(require.Value()) == 0 {
				policy.Required = inspect.All
			}
			src, err := oci.OpenSource(ref, oci.Options{Insecure: insecure})
			if err != nil {
				return noSuchImage(err)
			}
			rep, err := inspect.Inspect(c.Context, src, policy)
			if text := note(says, policy); rep != nil && text != "" {
				rep.Notes = append(rep.Notes, text)
				fmt.Fprintln(c.App.ErrWriter, "assay: "+text)
			}
			if rep != nil && sizes {
				merr := rep.Measure(c.Context, src, func(layer, of int, bytes int64) {
					fmt.Fprintf(c.App.ErrWriter, "reading layer %d of %d (%.1f MB)\n", layer, of, float64(bytes)/1e6)
				})
				if merr != nil {
					return merr
				}
			}
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

// some returns nil for an empty list: in a policy nil means any.
func some(list []string) []string {
	if len(list) == 0 {
		return nil
	}
	return list
}

// implied returns what a reference says about its image: the name of an image in a layout is a
// target's, and the matrix at hand may map a tag to one.
func implied(ref string) driver.Tagged {
	if rest, ok := strings.CutPrefix(ref, "oci:"); ok {
		dir, name := oci.SplitLayout(rest)
		if l, err := oci.Open(dir); err == nil {
			if d, err := l.Find(name); err == nil && !strings.HasPrefix(name, "sha256:") {
				name = d.Annotations[oci.AnnotationRefName]
			}
		}
		name, _, _ = strings.Cut(name, "/")
		if strings.HasPrefix(name, "sha256:") {
			return driver.Tagged{}
		}
		return driver.Tagged{Target: strings.TrimSuffix(name, "-certify")}
	}
	_, targets, err := driver.ReadMatrix("")
	if err != nil {
		targets = nil
	}
	return driver.ReadTag(targets, ref)
}

// note says what could not be compared.
func note(says driver.Tagged, policy attest.Policy) string {
	if says.Tag == "" || policy.Target != "" {
		return ""
	}
	return fmt.Sprintf("the matrix at hand lists no target with the tag %s, so the image's target was not compared; --target names it", says.Tag)
}

func loadKeys(ctx context.Context, names []string) ([]crypto.PublicKey, error) {
	var keys []crypto.PublicKey
	for _, key := range names {
		k, err := sign.Public(ctx, key)
		if err != nil {
			return nil, exit.With(exit.Usage, err)
		}
		keys = append(keys, k)
	}
	return keys, nil
}

// verifyFailed distinguishes an image that does not verify (exit status 1) from one that
// could not be read (3).
func verifyFailed(err error) error {
	if inspect.Failed(err) {
		return exit.With(exit.Fail, err)
	}
	return noSuchImage(err)
}

// noSuchImage distinguishes a name that is invalid or not in the layout (exit status 2)
// from a layout or registry that could not be read (3).
func noSuchImage(err error) error {
	var nf *oci.NotFoundError
	var bad *name.ErrBadName
	var path *fs.PathError
	noLayout := errors.As(err, &path) && errors.Is(err, fs.ErrNotExist) && filepath.Base(path.Path) == "index.json"
	if errors.As(err, &nf) || errors.As(err, &bad) || noLayout {
		return exit.With(exit.Usage, err)
	}
	return err
}

func layoutDir(s string) (string, error) {
	dir, ok := strings.CutPrefix(s, "oci:")
	if !ok || dir == "" {
		return "", exit.Usagef("%q is not oci:DIR", s)
	}
	return dir, nil
}
