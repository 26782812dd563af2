package base

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/assay-hpc/assay/build/recipe"
)

func hostArch() string { return runtime.GOARCH }

func sortDebs(debs []recipe.Deb) {
	slices.SortFunc(debs, func(a, b recipe.Deb) int { return cmp.Compare(a.Name, b.Name) })
}

// readPackages adds an archive index's packages to the map by name. URL is the
// path below the archive's root.
func readPackages(file string, into map[string]recipe.Deb) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	return stanzas(f, func(s map[string]string) error {
		size, err := strconv.ParseInt(s["Size"], 10, 64)
		if err != nil {
			return fmt.Errorf("%s: package %q: size %q", file, s["Package"], s["Size"])
		}
		into[s["Package"]] = recipe.Deb{Name: s["Package"], Version: s["Version"], Arch: s["Architecture"], URL: s["Filename"], SHA256: s["SHA256"], Size: size}
		return nil
	})
}

// stanzas reads Debian control text; continuation lines are dropped.
func stanzas(r io.Reader, each func(map[string]string) error) error {
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, 64<<10), 4<<20)
	cur := map[string]string{}
	emit := func() error {
		if len(cur) == 0 {
			return nil
		}
		err := each(cur)
		cur = map[string]string{}
		return err
	}
	for sc.Scan() {
		line := sc.Text()
		if line == "" {
			if err := emit(); err != nil {
				return err
			}
			continue
		}
		if k, v, ok := strings.Cut(line, ":"); ok && line[0] != ' ' && line[0] != '\t' {
			cur[k] = strings.TrimSpace(v)
		}
	}
	if err := sc.Err(); err != nil {
		return err
	}
	return emit()
}

// archive writes the packages to disk as a Debian archive. It is unsigned: every package was
// checked against the lock's checksum when it was fetched.
func (m *Maker) archive(ctx context.Context, repo, suite, arch string, debs []recipe.Deb) error {
	pool := filepath.Join(repo, "pool")
	index := filepath.Join(repo, "dists", suite, "main", "binary-"+arch)
	for _, dir := range []string{pool, index} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	entries := make([][]byte, len(debs))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for i, d := range debs {
		g.Go(func() error {
			file, err := m.Fetch(ctx, d)
			if err != nil {
				return err
			}
			if err := link(file, filepath.Join(pool, d.File())); err != nil {
				return err
			}
			entries[i], err = entry(ctx, file, d)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	// debootstrap's parser also needs an empty line after the last entry.
	packages := append(bytes.Join(entries, []byte("\n")), '\n')
	if err := os.WriteFile(filepath.Join(index, "Packages"), packages, 0o644); err != nil {
		return err
	}
	release := fmt.Sprintf("Origin: Debian\nLabel: Debian\nSuite: %s\nCodename: %s\nArchitectures: %s\nComponents: main\nDate: %s\nSHA256:\n %x %d main/binary-%s/Packages\n",
		suite, suite, arch, m.Epoch.UTC().Format("Mon, 02 Jan 2006 15:04:05 UTC"), sha256.Sum256(packages), len(packages), arch)
	return os.WriteFile(filepath.Join(repo, "dists", suite, "Release"), []byte(release), 0o644)
}

func link(from, to string) error {
	if err := os.Link(from, to); err == nil {
		return nil
	}
	return exec.Command("cp", from, to).Run() // another file system
}

var priority = regexp.MustCompile(`(?m)^Priority: .*$`)

// entry returns a package's index entry.
func entry(ctx context.Context, file string, d recipe.Deb) ([]byte, error) {
	control, err := exec.CommandContext(ctx, "dpkg-deb", "-f", file).Output()
	if err != nil {
		return nil, fmt.Errorf("dpkg-deb -f %s: %w", file, err)
	}
	// An archive overrides the priority that packages declare, and debootstrap unpacks by
	// priority. Here all packages belong to the base.
	control = priority.ReplaceAll(control, []byte("Priority: required"))
	return fmt.Appendf(bytes.TrimRight(control, "\n"), "\nFilename: pool/%s\nSize: %d\nSHA256: %s\n", d.File(), d.Size, d.SHA256), nil
}
