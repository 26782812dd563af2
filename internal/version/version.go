// Package version says which build of assay a binary is. The release build
// sets the variables with
//
//	-ldflags "-X github.com/assay-hpc/assay/internal/version.Version=v1.2.3 …"
//
// and a plain go build falls back to the information that the Go tool recorded.
package version

import (
	"cmp"
	"runtime"
	"runtime/debug"
)

// Set by the linker. If empty, the build information is used.
var (
	Version string
	Commit  string
	Date    string // RFC 3339
)

// Info describes one build.
type Info struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Date    string `json:"date,omitempty"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
}

// Get returns what is known about the running binary.
func Get() Info {
	i := Info{Version: Version, Commit: Commit, Date: Date, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	if b, ok := debug.ReadBuildInfo(); ok {
		i.fill(b)
	}
	i.Version = cmp.Or(i.Version, "devel")
	return i
}

// fill sets from b what the linker did not set.
func (i *Info) fill(b *debug.BuildInfo) {
	if i.Version == "" && b.Main.Version != "(devel)" {
		i.Version = b.Main.Version
	}
	if i.Commit != "" {
		return // commit and date belong together
	}
	for _, s := range b.Settings {
		switch s.Key {
		case "vcs.revision":
			i.Commit = s.Value
		case "vcs.time":
			i.Date = cmp.Or(i.Date, s.Value)
		}
	}
}

// String returns "v1.2.3 (abc1234, 2026-01-02T03:04:05Z)".
func (i Info) String() string {
	s := i.Version
	switch {
	case i.Commit != "" && i.Date != "":
		s += " (" + short(i.Commit) + ", " + i.Date + ")"
	case i.Commit != "":
		s += " (" + short(i.Commit) + ")"
	}
	return s
}

func short(commit string) string { return commit[:min(len(commit), 12)] }
