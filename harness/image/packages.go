package image

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/assay-hpc/assay/harness/suite"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/dpkg"
	"github.com/assay-hpc/assay/internal/result"
	"github.com/assay-hpc/assay/internal/rootfs"
)

// consistent checks that dpkg finished all that it began. A removed package with remaining
// configuration files is not a fault.
func (s *state) consistent(_ context.Context, env *suite.Env) result.Result {
	pkgs, err := dpkg.Read(env.Root)
	if err != nil {
		return noDatabase(err)
	}
	var bad []string
	installed := 0
	for _, p := range pkgs {
		want, rest, _ := strings.Cut(p.Status, " ")
		flag, state, _ := strings.Cut(rest, " ")
		switch {
		case flag == "ok" && state == "installed" && (want == "install" || want == "hold"):
			installed++
		case flag == "ok" && (state == "config-files" || state == "not-installed") && want != "install":
		default:
			bad = append(bad, fmt.Sprintf("%s %s is %q", p.Name, p.Version, p.Status))
		}
	}
	if len(bad) > 0 {
		return result.Failed("%s", someOf(bad)).WithOutput(strings.Join(bad, "\n") + "\n")
	}
	return result.Passed("%d packages", installed)
}

func noDatabase(err error) result.Result {
	if errors.Is(err, dpkg.ErrNoDatabase) {
		return result.Skipped("%v", dpkg.ErrNoDatabase)
	}
	return result.Failed("the package database cannot be read: %v", err)
}

// declared checks that each locked package is installed in the locked version.
func (s *state) declared(_ context.Context, env *suite.Env) result.Result {
	if len(s.Spec.Packages) == 0 {
		if s.Spec == none {
			return s.noSpec()
		}
		return result.Skipped("the declaration names no Debian package")
	}
	pkgs, err := dpkg.Read(env.Root)
	if err != nil {
		return result.Failed("%d packages are declared: %v", len(s.Spec.Packages), err)
	}
	var bad []string
	for _, want := range s.Spec.Packages {
		if fault := compare(want, pkgs); fault != "" {
			bad = append(bad, fault)
		}
	}
	if len(bad) > 0 {
		return result.Failed("%s", someOf(bad)).WithOutput(strings.Join(bad, "\n") + "\n")
	}
	return result.Passed("%d packages", len(s.Spec.Packages))
}

// compare returns what is wrong with one declared package, or "".
func compare(want certificate.Package, pkgs []dpkg.Package) string {
	fault := fmt.Sprintf("%s %s is declared and not installed", want.Name, want.Version)
	for _, p := range pkgs {
		if p.Name != want.Name || (want.Arch != "" && p.Arch != want.Arch) {
			continue
		}
		switch {
		case !p.Installed():
			fault = fmt.Sprintf("%s %s is declared; its status is %q", want.Name, want.Version, p.Status)
		case p.Version != want.Version:
			fault = fmt.Sprintf("%s %s is installed; %s is declared", p.Name, p.Version, want.Version)
		default:
			return ""
		}
	}
	return fault
}

// Inventory lists the installed packages of the image with their licences. It is empty without a
// package database.
func Inventory(root rootfs.FS) (*certificate.Inventory, error) {
	inv := certificate.NewInventory()
	pkgs, err := dpkg.Read(root)
	if errors.Is(err, dpkg.ErrNoDatabase) {
		return inv, nil
	}
	if err != nil {
		return nil, err
	}
	for _, p := range pkgs {
		if !p.Installed() {
			continue
		}
		licenses, err := dpkg.Licenses(root, p.Name)
		if err != nil {
			licenses = []string{certificate.NoAssertion} // no file, or prose
		}
		inv.Packages = append(inv.Packages, certificate.InstalledPackage{
			Name: p.Name, Version: p.Version, Arch: p.Arch, Source: p.Source,
			Maintainer: p.Maintainer, Homepage: p.Homepage, Licenses: licenses,
		})
	}
	return inv, nil
}
