package image

import (
	"bufio"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/dpkg"
	"github.com/assay-hpc/assay/internal/ldso"
	"github.com/assay-hpc/assay/internal/rootfs"
)

// A base is the image that this image was built on, according to the base's own records, which the
// build copies into the image. NVIDIA's bases contain desktop programs that lack dozens of
// libraries there; that is not a fault of the image.
type base struct {
	packages  []dpkg.Package
	libraries map[string]bool // that the base's loader knew
	records   rootfs.FS
	info      string // the directory of records with the checksums of its packages' files
}

// readBase reads the records, in a directory of this machine or else in the image. It returns nil
// if there are none.
func readBase(root rootfs.FS, dir string) (b *base, err error) {
	b = &base{libraries: map[string]bool{}, records: root, info: "/var/lib/dpkg/info"}
	status, cache := certificate.BaseStatusPath, certificate.BaseCachePath
	if dir != "" {
		if b.records, err = rootfs.Open(dir); err != nil {
			return nil, err
		}
		b.info, status, cache = "/info", path.Base(status), path.Base(cache)
	}
	text, err := b.records.ReadFile(status, recordLimit)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if b.packages, err = dpkg.ParseStatus(text); err != nil {
		return nil, fmt.Errorf("%s:%w", status, err)
	}
	if text, err = b.records.ReadFile(cache, recordLimit); err != nil {
		return nil, err
	}
	entries, err := ldso.ParseCache(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", cache, err)
	}
	for _, e := range entries {
		b.libraries[e.Soname] = true
	}
	return b, nil
}

const recordLimit = 64 << 20

// An inherited is a library that a file of the base lacked already in the base.
type inherited struct {
	ldso.Missing
	owner string // the file's package and its version
}

// sort separates what the base lacked from what the image lacks. A file belongs to the base only if
// its package is installed in the image in the base's version and its content is the package's. The
// same must hold for the object that needs the library. A library that the base's loader knew must
// also be in the image.
func (b *base) sort(root rootfs.FS, missing []ldso.Missing) (aside []inherited, left []ldso.Missing, err error) {
	wanted := map[string]string{} // real path → package
	real := func(p string) string {
		if r, err := root.Resolve(p); err == nil {
			return r
		}
		return p
	}
	for _, m := range missing {
		if !b.libraries[m.Library] {
			wanted[real(m.File)], wanted[real(m.By)] = "", ""
		}
	}
	if len(wanted) == 0 {
		return nil, missing, nil
	}
	if err := b.checkOwn(root, wanted); err != nil {
		return nil, nil, err
	}
	for _, m := range missing {
		owner := wanted[real(m.File)]
		if owner != "" && wanted[real(m.By)] != "" && !b.libraries[m.Library] {
			aside = append(aside, inherited{m, owner})
		} else {
			left = append(left, m)
		}
	}
	return aside, left, nil
}

// checkOwn sets, for each of files, the base's package that it belongs to.
func (b *base) checkOwn(root rootfs.FS, files map[string]string) error {
	now, err := dpkg.Read(root)
	if err != nil {
		return err
	}
	names := map[string]bool{}
	for f := range files {
		names[path.Base(f)] = true
	}
	for _, p := range b.packages {
		if !slices.ContainsFunc(now, func(n dpkg.Package) bool {
			return n.Name == p.Name && n.Arch == p.Arch && n.Version == p.Version && n.Installed() && p.Installed()
		}) {
			continue
		}
		sums, err := b.checksums(p)
		if err != nil {
			return err
		}
		for name, sum := range sums {
			if !names[path.Base(name)] {
				continue
			}
			real, err := root.Resolve(name)
			if _, asked := files[real]; err != nil || !asked {
				continue
			}
			if have, err := md5Of(root, real); err == nil && have == sum {
				files[real] = p.Name + " " + p.Version
			}
		}
	}
	return nil
}

// checksums returns the files of an installed package with their MD5 sums, which dpkg stores.
func (b *base) checksums(p dpkg.Package) (map[string]string, error) {
	sums := map[string]string{}
	for _, name := range []string{p.Name, p.Name + ":" + p.Arch} {
		f, err := b.records.Open(b.info + "/" + name + ".md5sums")
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		sc := bufio.NewScanner(f)
		for sc.Scan() {
			if sum, name, ok := strings.Cut(sc.Text(), "  "); ok {
				sums["/"+name] = sum
			}
		}
		err = sc.Err()
		f.Close()
		if err != nil {
			return nil, err
		}
	}
	return sums, nil
}

func md5Of(root rootfs.FS, name string) (string, error) {
	f, err := root.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := md5.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// asideByLibrary returns one line for each missing library and package of the base.
func (s *scan) asideByLibrary() []string {
	type key struct{ library, owner string }
	by := map[key][]string{}
	for _, a := range s.aside {
		k := key{a.Library, a.owner}
		by[k] = append(by[k], a.File)
	}
	var lines []string
	for k, files := range by {
		lines = append(lines, fmt.Sprintf("set aside: %s is missing, as in the base, for the base's own %s: %s", k.library, k.owner, strings.Join(files, ", ")))
	}
	slices.Sort(lines)
	return lines
}

// asideFiles counts the files that are set aside.
func (s *scan) asideFiles() string {
	files := map[string]bool{}
	for _, a := range s.aside {
		files[a.File] = true
	}
	if len(files) == 1 {
		return "1 file"
	}
	return fmt.Sprintf("%d files", len(files))
}
