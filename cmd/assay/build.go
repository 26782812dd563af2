package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/build/driver"
	"github.com/assay-hpc/assay/build/fetch"
	"github.com/assay-hpc/assay/build/state"
	"github.com/assay-hpc/assay/harness/report"
	"github.com/assay-hpc/assay/harness/sign"
	"github.com/assay-hpc/assay/internal/attest"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/grammar"
)

// builderFlags are the flags of commands that need BuildKit.
type builderFlags struct {
	builders  cli.StringSlice
	buildkitd string
	progress  string
	limits    fetch.Limits
}

func (o *builderFlags) flags() []cli.Flag {
	return []cli.Flag{
		&cli.StringSliceFlag{Name: "builder", Usage: "`ADDR` of a buildkitd; may be repeated, each for its architectures (default: our own, started for the run)", EnvVars: []string{"BUILDKIT_HOST"}, Destination: &o.builders},
		&cli.StringFlag{Name: "buildkitd", Usage: "`FILE` to start as our own builder (default: the one next to assay)", EnvVars: []string{"ASSAY_BUILDKITD"}, Destination: &o.buildkitd},
		&cli.StringFlag{Name: "progress", Usage: "`MODE` of the display: auto, tty, plain, quiet", Value: "auto", Destination: &o.progress},
		&cli.DurationFlag{Name: "stall-timeout", Usage: "try a download again when its server has sent nothing for `DURATION`", Value: fetch.DefaultStall, EnvVars: []string{"ASSAY_STALL_TIMEOUT"}, Destination: &o.limits.Stall, Action: positive("stall-timeout")},
		&cli.DurationFlag{Name: "download-timeout", Usage: "give up a download after `DURATION`; without it, assay's own have no limit and those of builders 2h", EnvVars: []string{"ASSAY_DOWNLOAD_TIMEOUT"}, Destination: &o.limits.Total, Action: positive("download-timeout")},
	}
}

// positive refuses a limit that is not positive.
func positive(flag string) func(*cli.Context, time.Duration) error {
	return func(_ *cli.Context, d time.Duration) error {
		if d <= 0 {
			return exit.Usagef("--%s %v is not a positive duration, such as 90s", flag, d)
		}
		return nil
	}
}

// addrs returns the builders' addresses. It drops empty ones, since BUILDKIT_HOST may be
// set to an empty string.
func (o *builderFlags) addrs() []string {
	return slices.DeleteFunc(slices.Clone(o.builders.Value()), func(a string) bool { return a == "" })
}

// again says whether commands may run this program again: only the program itself, not a test.
var again bool

// asRoot carries out a command of a user other than root by running this program again as root of
// a user namespace: our builder and debootstrap need that. Without such namespaces the command goes
// on, since it may need neither; otherwise they report the reason. So does one whose builder is
// reached by ssh, because ssh looks for its keys in the home of the user that it runs as.
func (o *builderFlags) asRoot(c *cli.Context, run func(*cli.Context) error) error {
	overSSH := func(addr string) bool { return strings.HasPrefix(addr, "ssh://") }
	self, err := os.Executable()
	if !again || os.Geteuid() == 0 || err != nil || slices.ContainsFunc(o.addrs(), overSSH) {
		return run(c)
	}
	status, err := state.AsRoot(c.Context, append([]string{self}, os.Args[1:]...)...)
	if errors.Is(err, state.ErrNoUserNamespace) {
		return run(c)
	}
	if err != nil {
		return err
	}
	return reported(status)
}

// reported is the exit status of this program when it ran again, which has reported everything.
type reported int

func (reported) Error() string { return "" }

type buildFlags struct {
	common
	builderFlags
	platform, cacheFrom, cacheTo cli.StringSlice
	trustBuilders                cli.StringSlice
	dest, push, signKey          string
	builderKey                   string
	form                         string
	jobs                         int
	zstd, unlocked, force, dry   bool
}

func buildCommand() *cli.Command {
	o := &buildFlags{}
	return &cli.Command{
		Name: "build", Usage: "build targets, certify each image, and publish them",
		ArgsUsage: "[TARGET...]",
		Description: "Without a target it builds the matrix's first one; --only '*' builds all. An image gets its tag only after\n" +
			"every check of the suite image has passed. Users other than root build in a user namespace;\n" +
			"\"assay doctor\" says what this machine lacks for that.\n\n" +
			"--dry-run shows what the same call without it would do, and does none of it: stages and steps with their whole scripts,\n" +
			"each once however many images share it, downloads, packages, and how long the steps took in earlier builds on this\n" +
			"machine. It takes no builder and no network. With --unlocked it also shows targets that are not locked.",
		Flags: append(o.common.flags(o.onlyFlag(),
			&cli.StringSliceFlag{Name: "platform", Usage: "`PLATFORM` to build, such as linux/arm64; may be repeated (default: the target's own)", Destination: &o.platform},
			&cli.StringFlag{Name: "out", Usage: "`oci:DIR`, an OCI layout that all targets share", Value: "oci:out", Destination: &o.dest},
			&cli.StringFlag{Name: "push", Usage: "publish to `REPO`, such as ghcr.io/owner/assay", Destination: &o.push},
			&cli.StringSliceFlag{Name: "cache-from", Usage: "BuildKit cache to read, `type=registry,ref=…`", Destination: &o.cacheFrom},
			&cli.StringSliceFlag{Name: "cache-to", Usage: "BuildKit cache to write, `type=registry,ref=…,mode=max`", Destination: &o.cacheTo},
			&cli.IntFlag{Name: "jobs", Usage: "`N` images at a time", Value: 4, Destination: &o.jobs},
			&cli.BoolFlag{Name: "zstd", Usage: "compress layers with zstd instead of gzip", Destination: &o.zstd},
			&cli.BoolFlag{Name: "unlocked", Usage: "resolve what matrix.lock lacks, for this build alone", Destination: &o.unlocked},
			&cli.BoolFlag{Name: "force", Usage: "build and certify again even if up to date", Destination: &o.force},
			&cli.BoolFlag{Name: "dry-run", Usage: "show what would be done, and do nothing", Destination: &o.dry},
			&cli.StringFlag{Name: "sign-key", Usage: "sign certificate, SBOM and provenance (DSSE) with `KEY`: a PEM file, or a service's reference: hashivault://NAME, or what a program sigstore-kms-SCHEME on PATH serves", Destination: &o.signKey},
			&cli.StringFlag{Name: "builder-key", Usage: "sign the records of what was built and certified with the private `KEY`, a PEM file (default: one that the state directory keeps)", Destination: &o.builderKey},
			&cli.StringSliceFlag{Name: "trust-builder", Usage: "also believe records in --out that the builder with the public `KEY` signed, a PEM file; others are built again; may be repeated", Destination: &o.trustBuilders},
			grammar.Format(&o.form, "text", "json"),
		), o.builderFlags.flags()...),
		BashComplete: o.complete,
		Action: func(c *cli.Context) error {
			if o.dry {
				return o.run(c)
			}
			return o.asRoot(c, o.run)
		},
	}
}

func (o *buildFlags) run(c *cli.Context) error {
	opts, err := o.options(c)
	if err != nil {
		return err
	}
	w, err := o.open(c)
	if err != nil {
		return err
	}
	if o.dry {
		return o.dryRun(c, w, opts)
	}
	res, err := w.Build(c.Context, opts)
	if res != nil && o.form == "json" {
		if jerr := writeJSON(c.App.Writer, res); jerr != nil {
			return jerr
		}
	} else if res != nil {
		buildText(c.App.Writer, res)
	}
	if err != nil {
		return err
	}
	if status := res.Status(); status != exit.Pass {
		return exit.With(status, nil)
	}
	return nil
}

func (o *buildFlags) options(c *cli.Context) (driver.BuildOptions, error) {
	dir, ok := strings.CutPrefix(o.dest, "oci:")
	if !ok || dir == "" {
		return driver.BuildOptions{}, exit.Usagef("--out %q is not oci:DIR", o.dest)
	}
	ps, err := platforms(o.platform.Value())
	if err != nil {
		return driver.BuildOptions{}, err
	}
	opts := driver.BuildOptions{
		Names: o.names(c), Platforms: ps, OutDir: dir, Push: o.push, Builders: o.addrs(), Buildkitd: o.buildkitd, Jobs: o.jobs,
		Zstd: o.zstd, Unlocked: o.unlocked, Force: o.force, CacheFrom: o.cacheFrom.Value(), CacheTo: o.cacheTo.Value(), Progress: o.progress,
		Limits: o.limits,
	}
	if o.signKey != "" && !o.dry {
		if opts.SignKey, err = sign.Open(c.Context, o.signKey); err == nil {
			err = sign.Check(opts.SignKey)
		}
		if err != nil {
			return opts, exit.With(exit.Usage, err)
		}
	}
	if o.builderKey != "" {
		if opts.BuilderKey, err = attest.LoadPrivateKey(o.builderKey); err != nil {
			return opts, exit.Usagef("--builder-key: %w", err)
		}
	}
	for _, file := range o.trustBuilders.Value() {
		key, err := attest.LoadPublicKey(file)
		if err != nil {
			return opts, exit.Usagef("--trust-builder: %w", err)
		}
		opts.TrustBuilders = append(opts.TrustBuilders, key)
	}
	return opts, nil
}

// buildText prints the summary as text.
func buildText(out io.Writer, res *driver.BuildResult) {
	for _, t := range res.Targets {
		for _, img := range t.Images {
			if !img.UpToDate {
				certificateText(out, img)
			}
		}
	}
	for _, t := range res.Targets {
		mark := "ok    "
		if t.Failed {
			mark = "FAILED"
		}
		fmt.Fprintf(out, "%s  %s", mark, t.Target)
		for _, img := range t.Images {
			note := ""
			if img.UpToDate {
				note = ", up to date"
			}
			if img.Error == "" {
				fmt.Fprintf(out, "\n        %-12s %s (certificate: %s%s)", img.Platform, img.Digest, img.Verdict, note)
			}
		}
		fmt.Fprintln(out)
		if t.Digest != "" {
			fmt.Fprintf(out, "        index        %s\n", t.Digest)
		}
		for _, tag := range t.Tags {
			fmt.Fprintf(out, "        tag          %s\n", tag)
		}
		if p := t.Pushed; p != nil {
			fmt.Fprintf(out, "        pushed       %d blobs (%.1f MB), %d manifests, %d tags; %d already there\n", p.Blobs, float64(p.Bytes)/1e6, p.Manifests, p.Tags, p.Present)
		}
		if t.Error != "" {
			fmt.Fprintf(out, "        %s\n", strings.ReplaceAll(t.Error, "\n", "\n        "))
		}
	}
	fmt.Fprintf(out, "%d targets, %d steps executed, %d from cache, %.1f s\n", len(res.Targets), res.Executed, res.Cached, res.Seconds)
}

// certificateText prints an image's certificate, if there is one.
func certificateText(out io.Writer, img driver.ImageResult) {
	st, err := certificate.Parse(img.Certificate)
	if err != nil {
		return // the image's own error says why there is none
	}
	_ = report.Text(out, st, report.TextOptions{})
	fmt.Fprintln(out)
}

func (o *buildFlags) dryRun(c *cli.Context, w *driver.Workspace, opts driver.BuildOptions) error {
	run, err := w.DryRun(opts)
	if err != nil {
		return err
	}
	if o.form == "json" {
		return writeJSON(c.App.Writer, run)
	}
	run.Text(c.App.Writer)
	return nil
}
