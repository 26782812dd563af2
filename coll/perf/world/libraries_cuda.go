//go:build cuda && cgo

package world

import (
	"fmt"

	"github.com/assay-hpc/assay/coll/nccl"
	"github.com/assay-hpc/assay/coll/perf"
	"github.com/assay-hpc/assay/internal/host/libnccl"
)

// A library is a library with NCCL's functions, for measuring its collectives.
type library struct {
	*nccl.Library
	libnccl.Identity
	name string // in tables
}

// openLibraries opens the libraries that the flags ask for.
func openLibraries(cfg perf.Config) ([]*library, error) {
	var libs []*library
	for _, file := range cfg.Libraries {
		l, err := nccl.OpenFile(file)
		if err != nil {
			return nil, fmt.Errorf("--library: %w", err)
		}
		libs = append(libs, &library{Library: l})
	}
	if len(libs) == 0 && (cfg.Engine == "nccl" || cfg.Versus == "nccl" || cfg.Versus == perf.Best) {
		l, err := nccl.Open()
		if err != nil {
			return nil, err
		}
		libs = append(libs, &library{Library: l})
	}
	for _, l := range libs {
		l.Identity, _ = libnccl.ReadFile(l.Path()) // on failure its maker is unknown
	}
	nameLibraries(libs)
	return libs, nil
}

// nameLibraries gives libraries the shortest names that distinguish them.
func nameLibraries(libs []*library) {
	names := []func(*library) string{
		(*library).kind,
		func(l *library) string { return l.kind() + " " + l.Library.Version().String() },
		(*library).Path,
	}
	for _, name := range names {
		seen := map[string]bool{}
		for _, l := range libs {
			l.name = name(l)
			seen[l.name] = true
		}
		if len(seen) == len(libs) {
			return
		}
	}
}

// kind returns a name that distinguishes assay's library from others.
func (l *library) kind() string {
	if l.Maker == libnccl.Assay {
		return "libnccl-assay"
	}
	return "nccl"
}

// note is the line of the header that identifies a library.
func (l *library) note() string {
	return fmt.Sprintf("Library %s: %s, %v", l.name, l.Path(), l.Identity)
}
