package standin

import (
	"bytes"
	"compress/gzip"
	"context"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

// makeArchives makes the source archives of the components that are compiled.
func (m *maker) makeArchives(context.Context) error {
	for _, a := range archives {
		for _, v := range a.versions {
			fault := m.Faults[a.component]
			dir, err := m.store.make(a.component+"-"+v, []any{a.top, fault, contentHash(a.component, "standin.mk")}, func(dir string) error {
				entries, err := a.entries(v, fault)
				if err != nil {
					return err
				}
				return writeTarGz(filepath.Join(dir, "archive"), entries)
			})
			if err != nil {
				return err
			}
			if err := m.publish(strings.ReplaceAll(a.url, "{v}", v), filepath.Join(dir, "archive")); err != nil {
				return err
			}
		}
	}
	return nil
}

// entries returns the files of one archive, named after version v; with WrongVersion the content
// has a different version.
func (a archive) entries(v string, fault Fault) ([]archiveEntry, error) {
	top := strings.ReplaceAll(a.top, "{v}", v)
	if fault == WrongVersion {
		v = wrong(v)
	}
	return sources(a.component, top, v, fault)
}

// sources returns a directory of testdata as the files of a source archive: the directory's own
// files, standin.mk, and a README that explains what this is.
func sources(dir, top, version string, fault Fault) ([]archiveEntry, error) {
	var entries []archiveEntry
	err := walkSources(dir, func(name string, content []byte) error {
		entries = append(entries, archiveEntry{name: path.Join(top, strings.TrimPrefix(name, dir+"/")), mode: sourceMode(content), content: content})
		return nil
	})
	if err != nil {
		return nil, err
	}
	mk, err := readSource("standin.mk")
	if err != nil {
		return nil, err
	}
	entries = append(entries, archiveEntry{name: top + "/standin.mk", mode: 0o644, content: mk},
		archiveEntry{name: top + "/README", mode: 0o644, content: []byte("This is a stand-in for @NAME@ @VERSION@, written from scratch for assay's tests.\nIt contains nothing of the original and does nothing on a GPU.\n")})
	number, revision, _ := strings.Cut(version, "-")
	parts := append(strings.Split(number, "."), "0", "0")
	substitute(entries, map[string]string{
		"NAME": dir, "VERSION": version, "FAULT": plain(fault),
		"MAJOR": parts[0], "MINOR": parts[1], "PATCH": parts[2], "REVISION": revision,
	})
	return entries, nil
}

// plain returns the fault as sources see it: they do not know about a wrong version.
func plain(f Fault) string {
	if f == Unresolved {
		return string(f)
	}
	return ""
}

func writeTarGz(file string, entries []archiveEntry) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	zw := gzip.NewWriter(f)
	if err := writeTar(zw, entries); err != nil {
		return err
	}
	if err := zw.Close(); err != nil {
		return err
	}
	return f.Close()
}

// writeTarBz2 uses the bzip2 program: Go's library only reads the format.
func writeTarBz2(ctx context.Context, file string, entries []archiveEntry) error {
	var plain bytes.Buffer
	if err := writeTar(&plain, entries); err != nil {
		return err
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	cmd := exec.CommandContext(ctx, "bzip2", "-c")
	cmd.Stdin, cmd.Stdout = &plain, f
	if err := cmd.Run(); err != nil {
		return err
	}
	return f.Close()
}
