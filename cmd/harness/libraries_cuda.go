//go:build cuda && cgo

package main

import (
	"fmt"

	"github.com/assay-hpc/assay/coll/nccl"
	"github.com/assay-hpc/assay/coll/perf"
	"github.com/assay-hpc/assay/harness/libnccl"
)

// A library is one whose collectives are measured, by NCCL's functions.
type library struct {
	*nccl.Library
	libnccl.Identity
	name string // in tables
}

// openLibraries opens those that the flags ask for.
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
		l.Identity, _ = libnccl.ReadFile(l.Path()) // else it does not say whose it is
	}
	nameLibraries(libs)
	return libs, nil
}

// nameLibraries gives libraries the shortest names by which they can be told apart.
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

// kind is a name that tells assay's library from others.
func (l *library) kind() string {
	if l.Maker == libnccl.Assay {
		return "libnccl-assay"
	}
	return "nccl"
}

// note says in the header whose a library is.
func (l *library) note() string {
	return fmt.Sprintf("Library %s: %s, %v", l.name, l.Path(), l.Identity)
}
