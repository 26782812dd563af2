package base

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/assay-hpc/assay/build/recipe"
)

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
