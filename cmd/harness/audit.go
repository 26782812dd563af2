package main

import (
	"cmp"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/harness/audit"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/grammar"
	"github.com/assay-hpc/assay/internal/rootfs"
	"github.com/assay-hpc/assay/internal/words"
)

const auditText = `Compares versions with faults of released versions that are known (NCCL, drivers,
fabric manager, DCGM, aws-ofi-nccl, libfabric, UCX, UCC, Open MPI, GDRCopy,
perftest, the container toolkit, RCCL, NVSHMEM), each from a release note, a
change or a thread that is named. Without arguments these are the versions that
are installed here: packages, NCCL's libraries (wheels, too), the driver.

  harness audit
  harness audit nccl=2.28.9 ofi=1.17.1 --gpu GB200 --arch arm64
  harness audit --root /mnt/image --format json

It needs no network. What a version alone does not decide, the finding says. Exit
status: 0, or 1 if a version has a known fault.`

func auditCommand(out io.Writer) *cli.Command {
	var format, root, arch string
	var gpus cli.StringSlice
	return &cli.Command{
		Name: "audit", Usage: "say which known faults the versions here have", ArgsUsage: "[COMPONENT=VERSION...]",
		Description: auditText,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "root", Value: "/", Destination: &root, Usage: "read the image below `DIR`"},
			&cli.StringFlag{Name: "arch", Destination: &arch, Usage: "for `ARCH`: amd64 or arm64 (default: that of the system, if it is read)"},
			&cli.StringSliceFlag{Name: "gpu", Destination: &gpus, Usage: "with the GPU `MODEL`; may be repeated (default: those of the driver, if it is read)"},
			grammar.Format(&format, "text", "json"),
		},
		Action: func(c *cli.Context) error {
			s, err := audited(c.Args().Slice(), root)
			if err != nil {
				return err
			}
			if arch != "" && arch != "amd64" && arch != "arm64" {
				return exit.Usagef("--arch is amd64 or arm64, not %q", arch)
			}
			s.Arch = cmp.Or(arch, s.Arch)
			if g := gpus.Value(); len(g) > 0 {
				s.GPUs = g
			}
			r, err := audit.Audit(s)
			if err != nil {
				return err
			}
			if format == "json" {
				err = writeJSON(out, r)
			} else {
				err = r.WriteText(out, cmp.Or(columns(out), 100))
			}
			if err == nil && slices.ContainsFunc(r.Findings, func(f audit.Finding) bool { return f.If == "" }) {
				err = exit.With(exit.Fail, nil)
			}
			return err
		},
	}
}

// audited returns the versions that are named, or else those below a root.
func audited(named []string, dir string) (audit.System, error) {
	if len(named) == 0 {
		root, err := rootfs.Open(dir)
		if err != nil {
			return audit.System{}, exit.Usagef("--root: %w", err)
		}
		return audit.Read(root)
	}
	var s audit.System
	for _, a := range named {
		name, version, ok := strings.Cut(a, "=")
		switch {
		case !ok || version == "" || version[0] < '0' || version[0] > '9':
			return s, exit.Usagef("%q is not COMPONENT=VERSION, such as nccl=2.28.9", a)
		case !slices.Contains(audit.Components, name):
			return s, exit.Usagef("there is no component %q; there are: %s", name, strings.Join(audit.Components, ", "))
		}
		s.Versions = append(s.Versions, audit.Version{Component: name, Version: words.Line(version)})
	}
	return s, nil
}
