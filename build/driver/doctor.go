package driver

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"golang.org/x/sys/unix"

	"github.com/assay-hpc/assay/build/base"
	"github.com/assay-hpc/assay/build/daemon"
	"github.com/assay-hpc/assay/build/state"
)

// A Finding is one thing that commands need on this machine.
type Finding struct {
	What   string `json:"what"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
	Remedy string `json:"remedy,omitempty"`
	For    string `json:"for"` // the commands that need it
}

// Doctor checks what the commands need. It starts and changes nothing.
func (w *Workspace) Doctor(ctx context.Context, o BuildOptions) []Finding {
	return []Finding{
		rights(), program("runc", "apt-get install runc (or make deps)", "build, certify, lock with our own builder"),
		w.buildkitd(o), w.builder(ctx, o),
		debootstrap(),
		program("go", "install Go, or set GOPROXY", "build (to find the module proxy) and certify of images without a harness"),
		w.disk(diskCUDA), w.credentials(),
	}
}

func rights() Finding {
	f := Finding{What: "root", OK: true, Detail: fmt.Sprintf("uid %d", os.Geteuid()), For: "build, certify, lock with our own builder; lock of bases made with debootstrap"}
	if os.Geteuid() == 0 {
		return f
	}
	if err := state.CanBeRoot(); err != nil {
		f.OK, f.Detail, f.Remedy = false, f.Detail+", "+err.Error(), "run with sudo, or give --builder ADDR"
		return f
	}
	f.Detail += ", root in a user namespace"
	return f
}

func program(prog, remedy, what string) Finding {
	path, err := exec.LookPath(prog)
	if err != nil {
		return Finding{What: prog, Detail: "not found on PATH", Remedy: remedy, For: what}
	}
	return Finding{What: prog, OK: true, Detail: path, For: what}
}

func (w *Workspace) buildkitd(o BuildOptions) Finding {
	f := Finding{What: "buildkitd", For: "build, certify, lock without --builder"}
	path, err := daemon.Find(o.Buildkitd)
	if err != nil {
		f.Detail, f.Remedy = "not next to assay", "make build"
		return f
	}
	f.OK, f.Detail = true, path
	return f
}

func (w *Workspace) builder(ctx context.Context, o BuildOptions) Finding {
	f := Finding{What: "builder", For: "build, certify, lock"}
	if len(o.Builders) == 0 {
		f.OK, f.Detail = true, "none given; our own is started for each run"
		return f
	}
	bs, err := daemon.Connect(ctx, daemon.Options{Addrs: o.Builders})
	if err != nil {
		f.Detail, f.Remedy = err.Error(), "start it, or correct --builder or BUILDKIT_HOST"
		return f
	}
	f.OK = true
	for _, b := range bs {
		f.Detail += fmt.Sprintf("%s runs %v ", b.Addr, b.Platforms)
		b.Close()
	}
	return f
}

func debootstrap() Finding {
	f := Finding{What: "debootstrap", For: "lock and build of bases made with debootstrap"}
	if err := base.Check(); err != nil {
		f.Detail, f.Remedy = err.Error(), "make deps"
		return f
	}
	f.OK, f.Detail = true, "ready"
	return f
}

// Disk that the state of one row needs, from nothing: an image without CUDA, and one whose NCCL and kernels are compiled.
const (
	diskFabric = 10e9
	diskCUDA   = 30e9
)

func (w *Workspace) disk(want uint64) Finding {
	f := Finding{What: "disk", For: "build of a CUDA image from nothing"}
	dir := w.StateDir
	for dir != "/" {
		if _, err := os.Stat(dir); err == nil {
			break
		}
		dir = filepath.Dir(dir)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		f.Detail, f.Remedy = err.Error(), "set ASSAY_STATE_DIR to a directory that exists"
		return f
	}
	free := st.Bavail * uint64(st.Bsize)
	f.OK, f.Detail = free >= want, fmt.Sprintf("%.0f GB free in %s", float64(free)/1e9, dir)
	if !f.OK {
		f.Remedy = fmt.Sprintf("free %.0f GB, or set ASSAY_STATE_DIR to a larger disk", float64(want)/1e9)
	}
	return f
}

func (w *Workspace) credentials() Finding {
	f := Finding{What: "registry credentials", For: "build --push and publish to " + w.File.Repository}
	repo, err := name.NewRepository(w.File.Repository)
	if err != nil {
		f.Detail = err.Error()
		return f
	}
	auth, err := authn.DefaultKeychain.Resolve(repo.Registry)
	if err != nil || auth == authn.Anonymous {
		f.Detail, f.Remedy = "none for "+repo.RegistryStr(), "docker login "+repo.RegistryStr()
		return f
	}
	f.OK, f.Detail = true, "present for "+repo.RegistryStr()
	return f
}
