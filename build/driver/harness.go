package driver

import (
	"context"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/assay-hpc/assay/build/recipe"
)

// gateHarness returns a static program for a builder's platform that runs gates: assay itself, or a
// harness compiled here from the source that assay embeds.
func (w *Workspace) gateHarness(ctx context.Context, p recipe.Platform) (string, error) {
	if p.OS == runtime.GOOS && p.Arch == runtime.GOARCH && static(w.Self) {
		return w.Self, nil
	}
	return w.compileHarness(ctx, p)
}

// static reports whether a program needs no libraries, and no loader.
func static(program string) bool {
	if program == "" {
		return false
	}
	f, err := elf.Open(program)
	if err != nil {
		return false
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			return false
		}
	}
	return true
}

func (w *Workspace) compileHarness(ctx context.Context, p recipe.Platform) (string, error) {
	file := filepath.Join(w.StateDir, "harness", strings.TrimPrefix(w.source.Digest, "sha256:")[:16]+"-"+p.Arch, "harness")
	if _, err := os.Stat(file); err == nil {
		return file, nil
	}
	if _, err := exec.LookPath("go"); err != nil {
		return "", fmt.Errorf("compiling the harness that certifies images on %s needs Go on this machine: %w; install it, or use an assay built for %s with CGO_ENABLED=0", p, err, p)
	}
	src, err := os.MkdirTemp("", "assay-source-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(src)
	if err := untar(w.sourceTar, src); err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return "", err
	}
	w.Log("compiling the harness for %s", p)
	tmp := fmt.Sprintf("%s.%d", file, os.Getpid())
	cmd := exec.CommandContext(ctx, "go", "build", "-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -X github.com/assay-hpc/assay/internal/version.Version="+w.source.Version, "-o", tmp, "./cmd/harness")
	cmd.Dir = src
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+p.OS, "GOARCH="+p.Arch, "GOFLAGS=", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("compiling the harness for %s: %w\n%s", p, err, out)
	}
	return file, os.Rename(tmp, file)
}
