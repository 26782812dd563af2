package e2e

import (
	"archive/tar"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	godigest "github.com/opencontainers/go-digest"

	"github.com/assay-hpc/assay/build/driver"
	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/build/solve"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/oci"
	"github.com/assay-hpc/assay/internal/result"
)

// A hostileImage tries to pass its gate, to outlive it, to exhaust the machine, or to leave
// something on it.
type hostileImage struct {
	name string
	// act is what testdata/hostile does when it is started as program.
	program, act string
	files        []tar.Header // more files; the content is the header's Uname
	env          []string
	wants        string // in a reason or output of the certificate
	seconds      int    // limit of the tool; 0: 5
}

// file returns a header whose Uname is its content.
func file(name string, mode int64, content string) tar.Header {
	return tar.Header{Name: name, Mode: mode, Typeflag: tar.TypeReg, Uname: content}
}

func link(name, to string) tar.Header {
	return tar.Header{Name: name, Mode: 0o777, Typeflag: tar.TypeSymlink, Linkname: to}
}

var mpirun, sshd = link("bin/mpirun", "tool"), link("usr/sbin/sshd", "/bin/tool")

// hostileImages are all those that must not pass. The one that does pass is in TestHostile.
func hostileImages() []hostileImage {
	const limit = "was stopped: it ran longer than"
	list := []hostileImage{
		{name: "an image that merely fails"},
		{name: "writes a certificate", program: "mpirun", act: "certificate", wants: "ermission denied"},
		{name: "mpirun writes an outcome", program: "mpirun", act: "outcome", wants: "ermission denied"},
		{name: "replaces its outcome", program: "tool", act: "outcome", wants: "ermission denied"},
		{name: "a child writes an outcome later", program: "tool", act: "late outcome", wants: "exit status 1"},
		{name: "replaces the request", program: "tool", act: "program", wants: "read-only file system"},
		{name: "replaces the supervisor", program: "tool", act: "harness"},
		{name: "changes its root", program: "tool", act: "root"},
		{name: "ends the supervisor", program: "tool", act: "kill 1", wants: "not permitted"},
		{name: "sshd ends the supervisor", program: "sshd", act: "kill 1", wants: "not permitted"},
		{name: "mpirun ends everybody", program: "mpirun", act: "kill all"},
		{name: "writes the supervisor's memory", program: "tool", act: "memory of 1", wants: "permission denied"},
		{name: "writes to the supervisor's files", program: "tool", act: "files of 1", wants: "permission denied"},
		{name: "traces the supervisor", program: "tool", act: "trace", wants: "not permitted"},
		{name: "reads the supervisor's environment", program: "tool", act: "environment of 1", wants: "permission denied"},
		{name: "mounts over what is the supervisor's", program: "tool", act: "mount", wants: "not permitted"},
		{name: "mounts in a namespace of its own", program: "tool", act: "namespace"},
		{name: "has a set-user-ID program", program: "tool", act: "setuid"},
		{name: "becomes root", program: "tool", act: "become root", wants: "not permitted"},
		{name: "sets the clock", program: "tool", act: "clock", wants: "not permitted"},
		{name: "sets the host's name", program: "tool", act: "hostname", wants: "not permitted"},
		{name: "connects to the network", program: "tool", act: "network", wants: "unreachable"},
		{name: "connects to other containers", program: "tool", act: "abstract socket", wants: "refused"},
		{name: "opens devices", program: "tool", act: "device"},
		{name: "changes the kernel's settings", program: "tool", act: "sysctl"},
		{name: "prints the messages of a harness", program: "mpirun", act: "message"},
		{name: "prints escape sequences", program: "tool", act: "escape sequences"},
		{name: "prints 1 GB", program: "tool", act: "1 GB"},
		{name: "forks without end", program: "tool", act: "fork bomb"},
		{name: "uses all memory", program: "tool", act: "memory bomb", wants: "was stopped: it used more than 4096 MiB of memory", seconds: 120},
		{name: "uses all memory by files without names", program: "tool", act: "memory file bomb", wants: "was stopped: it used more than 4096 MiB of memory", seconds: 120},
		{name: "fills the disk", program: "tool", act: "disk bomb", wants: "no space left"},
		{name: "makes files without end", program: "tool", act: "file bomb"},
		{name: "opens files without end", program: "tool", act: "descriptors"},
		{name: "does not end", program: "tool", act: "deaf", wants: limit},
		{name: "closes its output and does not end", program: "tool", act: "silent", wants: limit},
		{name: "keeps all processors busy", program: "tool", act: "busy", wants: limit},
		{name: "leaves programs behind", program: "tool", act: "left behind"},
		{name: "leaves programs with odd names behind", program: "mpirun", act: "hidden"},
		{name: "stops itself", program: "tool", act: "stopped", wants: limit},
		{name: "has a harness that lies", program: "harness", act: "harness lies"},
		{name: "has a harness that must not be started", program: "gate", act: "never", files: []tar.Header{link("harness", "bin/tool"), link("opt/assay/bin/harness", "/bin/tool"), link("run/assay/bin/harness", "/bin/tool")}},
		{name: "declares that all is well", files: []tar.Header{file("opt/assay/image.json", 0o644, `{"version":1,"target":"hostile","platform":"linux/amd64","recipe":"","components":[]}`)}},
		{name: "preloads a library by its environment", env: []string{"LD_PRELOAD=/evil.so", "LD_AUDIT=/evil.so", "GODEBUG=madvdontneed=1", "GOTRACEBACK=crash", "GOMAXPROCS=0"}, files: []tar.Header{file("evil.so", 0o755, "no library")}},
		{name: "preloads a library by ld.so.preload", files: []tar.Header{file("etc/ld.so.preload", 0o644, "/evil.so\n"), file("evil.so", 0o755, "no library")}},
		{name: "has a path of its own", env: []string{"PATH=/run/assay:/proc/1/root/bin:.:/evil:/bin:/usr/bin:/usr/sbin"}},
		{name: "has another clock", files: []tar.Header{link("etc/localtime", "/dev/zero")}, env: []string{"TZ=:/dev/zero", "SOURCE_DATE_EPOCH=0"}},
		{name: "links os-release out of the image", files: []tar.Header{link("etc/os-release", "/../../../../../proc/1/environ")}},
		{name: "links in circles", files: []tar.Header{link("etc/ld.so.conf.d", "/etc/ld.so.conf.d"), link("usr/lib", "/lib"), link("lib", "/usr/lib"), file("etc/ld.so.conf", 0o644, "include /etc/ld.so.conf\ninclude /etc/ld.so.conf.d/*.conf\n")}},
		{name: "has a damaged database of packages", files: []tar.Header{file("var/lib/dpkg/status", 0o644, "Package: \x00"+strings.Repeat("x", 1<<20)+"\n\n\nStatus")}},
		{name: "has a profile that runs programs", files: []tar.Header{file("etc/profile.d/assay.sh", 0o755, "export A=$(/bin/tool --never)\nrm -rf /\n")}},
		{name: "takes the supervisor's place", files: []tar.Header{{Name: "run", Typeflag: tar.TypeSymlink, Linkname: "/tmp"}}},
		{name: "has directories that anybody may change", files: []tar.Header{{Name: "run/assay/out", Typeflag: tar.TypeDir, Mode: 0o1777}, {Name: "run/assay", Typeflag: tar.TypeDir, Mode: 0o777}, {Name: "run", Typeflag: tar.TypeDir, Mode: 0o777}}, program: "tool", act: "outcome", wants: "ermission denied"},
	}
	for _, special := range []struct {
		kind byte
		name string
	}{{tar.TypeFifo, "a pipe"}, {tar.TypeChar, "a device"}} {
		for _, name := range []string{"etc/os-release", "var/lib/dpkg/status", "opt/assay/image.json", "etc/ld.so.conf", "etc/ld.so.cache", "bin/tool2"} {
			h := tar.Header{Name: name, Mode: 0o666, Typeflag: special.kind}
			if special.kind == tar.TypeChar { // /dev/zero
				h.Devmajor, h.Devminor = 1, 5
			}
			list = append(list, hostileImage{name: special.name + " as " + name, files: []tar.Header{h}})
		}
	}
	return list
}

// TestHostile gates images that try to forge, hang, exhaust, escape, replace or mislead. None
// passes, each gate ends, and the machine is as before.
func TestHostile(t *testing.T) {
	addr := buildkit(t)
	w, err := driver.Open(driver.Options{StateDir: stateDir(t), Version: "test", Self: assayBinary(t), Log: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	s, stop, err := w.NewSolver(t.Context(), driver.BuildOptions{Builders: []string{addr}, OutDir: dir, Progress: "quiet"})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	layout, err := oci.Create(dir)
	if err != nil {
		t.Fatal(err)
	}
	base := hostileBase(t)
	before := machineState(t)
	var mu sync.Mutex // guards layout
	gate := func(t *testing.T, img hostileImage, spec certificate.ImageSpec) *certificate.Statement {
		mu.Lock()
		d := putHostile(t, layout, base, img)
		mu.Unlock()
		raw, err := json.Marshal(spec)
		if err != nil {
			t.Fatal(err)
		}
		res, err := s.Gate(t.Context(), solve.Subject{
			Name: "hostile", Digest: godigest.Digest(d), Platform: recipe.Platform{OS: "linux", Arch: "amd64"}, Env: append([]string{"PATH=/bin:/usr/bin:/usr/sbin"}, img.env...), Spec: raw,
		})
		if err != nil {
			t.Fatalf("the gate: %v", err)
		}
		st, err := certificate.Parse(res.Certificate)
		if err != nil {
			t.Fatal(err)
		}
		if err := st.Verify(d); err != nil {
			t.Error(err)
		}
		return st
	}
	spec := func(checks ...certificate.Check) certificate.ImageSpec {
		return certificate.ImageSpec{Version: certificate.SpecVersion, Target: "hostile", Platform: "linux/amd64", Recipe: strings.Repeat("0", 64), Components: []certificate.Component{
			{Name: "tool", Version: "1.0", License: "Apache-2.0", Checks: checks},
		}}
	}
	tool := func(img hostileImage) certificate.Check {
		return certificate.Check{Name: "version", Kind: certificate.CheckCommand, Command: []string{"tool", "--version"}, Match: `^version 1\.0`, Seconds: cmp.Or(img.seconds, 5)}
	}
	missing := certificate.Check{Name: "a file that no image has", Kind: certificate.CheckFile, Path: "/must/exist"}
	t.Run("images", func(t *testing.T) {
		t.Run("one that passes", func(t *testing.T) {
			all := hostileImage{files: []tar.Header{mpirun, sshd}}
			if st := gate(t, all, spec(tool(all))); st.Predicate.Verdict != result.Pass {
				t.Errorf("verdict %s: %+v", st.Predicate.Verdict, st.Predicate.Results)
			}
		})
		for _, img := range hostileImages() {
			t.Run(img.name, func(t *testing.T) {
				t.Parallel()
				st := gate(t, img, spec(tool(img), missing))
				p := st.Predicate
				if p.Verdict == result.Pass {
					t.Errorf("it passes: %+v", p.Results)
				}
				var all strings.Builder
				for _, r := range p.Results {
					fmt.Fprintln(&all, r.ID, r.Verdict, r.Reason, r.Output)
					if r.ID == "component/tool/a-file-that-no-image-has" && r.Verdict != result.Fail {
						t.Errorf("%s is %s", r.ID, r.Verdict)
					}
					if r.ID == "component/tool/version" && img.program == "tool" && r.Verdict == result.Pass {
						t.Errorf("what it tried succeeded: %s %s", r.Verdict, r.Output)
					}
				}
				if p.Environment.Target != "hostile" || !strings.Contains(all.String(), img.wants) {
					t.Errorf("the certificate, about %q, does not say %q:\n%s", p.Environment.Target, img.wants, all.String())
				}
			})
		}
	})
	for what, n := range machineState(t) {
		if before[what] != n {
			t.Errorf("%s: %s before, %s after", what, before[what], n)
		}
	}
}

// hostileBase returns the layer that all hostile images have.
func hostileBase(t *testing.T) v1.Layer {
	t.Helper()
	program := filepath.Join(t.TempDir(), "hostile")
	cmd := exec.Command("go", "build", "-o", program, "./testdata/hostile")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH=amd64")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	files := []tar.Header{
		file("bin/tool", 0o755, string(b)), file("usr/bin/setuid", 0o4755, string(b)), link("bin/true", "tool"), link("bin/sh", "tool"),
		{Name: "tmp", Typeflag: tar.TypeDir, Mode: 0o1777}, {Name: "world", Typeflag: tar.TypeDir, Mode: 0o777}, {Name: "var/tmp", Typeflag: tar.TypeDir, Mode: 0o1777},
		{Name: "evil/mem", Typeflag: tar.TypeChar, Mode: 0o666, Devmajor: 1, Devminor: 1},
		file("etc/passwd", 0o644, "root:x:0:0::/:/bin/sh\n"),
	}
	return hostileLayer(t, files)
}

func hostileLayer(t *testing.T, files []tar.Header) v1.Layer {
	t.Helper()
	var text bytes.Buffer
	w := tar.NewWriter(&text)
	for _, h := range files {
		content := h.Uname
		h.Uname, h.Size = "", int64(len(content))
		err := w.WriteHeader(&h)
		if err == nil {
			_, err = io.WriteString(w, content)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text.Bytes())), nil }, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// putHostile adds an image to a layout and returns its digest.
func putHostile(t *testing.T, l *oci.Layout, base v1.Layer, img hostileImage) string {
	t.Helper()
	files := slices.Clone(img.files)
	switch img.program {
	case "mpirun":
		files = append(files, mpirun)
	case "sshd":
		files = append(files, sshd)
	}
	if img.act != "" {
		files = append(files, file("etc/hostile", 0o644, img.program+" "+img.act+"\n"))
	}
	files = append(files, file("etc/name", 0o644, img.name)) // no two images are one
	made, err := mutate.ConfigFile(mutate.MediaType(empty.Image, types.OCIManifestSchema1), &v1.ConfigFile{OS: "linux", Architecture: "amd64", RootFS: v1.RootFS{Type: "layers"}})
	if err == nil {
		made, err = mutate.AppendLayers(made, base, hostileLayer(t, files))
	}
	if err == nil {
		err = l.Put(fmt.Sprintf("h%x", sha256.Sum256([]byte(img.name)))[:12], made)
	}
	if err != nil {
		t.Fatal(err)
	}
	d, err := made.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return d.String()
}

// machineState describes what a gate must not change.
func machineState(t *testing.T) map[string]string {
	t.Helper()
	state := map[string]string{}
	for _, dir := range []string{"/", "/run", "/dev/shm", "/etc"} {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		state["files of "+dir] = strings.Join(names, " ")
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	state["name of the host"] = host
	for _, f := range []string{"/proc/sys/kernel/core_pattern", "/proc/self/mounts"} {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		state[f] = string(b)
	}
	var programs []string
	files, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if exe, err := os.Readlink(f); err == nil && strings.HasPrefix(filepath.Base(exe), "tool") {
			programs = append(programs, f)
		}
	}
	state["programs of images"] = fmt.Sprint(programs)
	return state
}
