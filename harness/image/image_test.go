package image

import (
	stdcmp "cmp"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-hpc/assay/harness/suite"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/elf/elftest"
	"github.com/assay-hpc/assay/internal/result"
	"github.com/assay-hpc/assay/internal/rootfs"
)

// files is an image: paths and contents. A value that starts with "->" is a
// link, one that starts with "x:" is executable, one that is "/" a directory.
type files map[string]string

func write(t testing.TB, dir string, fs files) {
	t.Helper()
	for name, content := range fs {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		to, link := strings.CutPrefix(content, "->")
		text, exe := strings.CutPrefix(content, "x:")
		var err error
		switch {
		case content == "/":
			err = os.MkdirAll(p, 0o755)
		case link:
			err = os.Symlink(to, p)
		case exe:
			err = os.WriteFile(p, []byte(text), 0o755)
		default:
			err = os.WriteFile(p, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

const fixturePath = "PATH=/usr/bin:/opt/x/bin"

func fixture(t testing.TB, fs files, environ ...string) *suite.Env {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, fs)
	root, err := rootfs.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return &suite.Env{Root: root, Environ: append([]string{fixturePath}, environ...), Platform: "linux/amd64"}
}

// results runs the whole suite.
func results(t testing.TB, cfg Config, env *suite.Env) map[string]result.Result {
	t.Helper()
	cfg.Version = stdcmp.Or(cfg.Version, "test")
	checks, err := Suite(cfg).Checks(context.Background(), env)
	if err != nil {
		t.Fatal(err)
	}
	list, err := suite.Run(context.Background(), env, checks, suite.Options{Parallel: 4})
	if err != nil {
		t.Fatal(err)
	}
	m := map[string]result.Result{}
	for _, r := range list {
		m[r.ID] = r
	}
	return m
}

func exe(f elftest.File) string {
	f.Interp = "/lib64/ld-linux-x86-64.so.2"
	return "x:" + string(f.Bytes())
}

func lib(needed ...string) string { return string(elftest.File{Needed: needed}.Bytes()) }

var loaderFile = files{"lib64/ld-linux-x86-64.so.2": lib()}

func with(parts ...files) files {
	all := files{}
	for _, p := range parts {
		for k, v := range p {
			all[k] = v
		}
	}
	return all
}

const consistentStatus = "Package: a\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1.0-1\n\n" +
	"Package: gone\nStatus: deinstall ok config-files\nArchitecture: all\nVersion: 2\n"

var cuda = []certificate.Absent{{Library: "libcuda.so.1", Because: "the driver brings it"}}

// want is a result of one check: the verdict, and a part of reason or output.
type want struct {
	id      string
	verdict result.Verdict
	text    string
}

func TestSuite(t *testing.T) {
	spec := func(s certificate.ImageSpec) *certificate.ImageSpec {
		s.Version, s.Platform = 1, "linux/amd64"
		return &s
	}
	for _, tt := range []struct {
		name  string
		files files
		env   []string
		cfg   Config
		want  []want
	}{
		{name: "an empty image shows nothing", want: []want{
			{"declaration", "skip", "carries no"}, {"dpkg/consistent", "skip", "no dpkg database"}, {"dpkg/declared", "skip", "carries no"},
			{"libraries", "skip", "no ELF file"}, {"environment/library-path", "skip", "not set"}, {"environment/ld.so.conf", "skip", "no ld.so.conf"},
			{"environment/profile", "skip", "there is no"}, {"environment/variables", "skip", "sets none"}, {"harness/version", "skip", "carries no"}, {"mpi/ranks", "skip", "no mpirun"},
			{"ssh/config", "skip", "no sshd"}, {"ssh/host-keys", "skip", "no sshd"},
		}},
		{name: "a variable of NCCL's", env: []string{"NCCL_P2P_DISABLE=1"}, want: []want{{"environment/variables", "warn", "NCCL_P2P_DISABLE=1 (environment)"}}},
		{name: "declaration for another platform", cfg: Config{Spec: &certificate.ImageSpec{Platform: "linux/arm64"}},
			want: []want{{"declaration", "fail", "linux/arm64"}}},
		{name: "declaration that cannot be read", cfg: Config{SpecErr: os.ErrInvalid}, want: []want{{"declaration", "fail", "invalid"}}},
		{name: "good packages", files: files{"var/lib/dpkg/status": consistentStatus},
			cfg:  Config{Spec: spec(certificate.ImageSpec{Packages: []certificate.Package{{Name: "a", Version: "1.0-1", Arch: "amd64"}}})},
			want: []want{{"dpkg/consistent", "pass", "1 packages"}, {"dpkg/declared", "pass", ""}, {"declaration", "pass", ""}}},
		{name: "bad packages", files: files{"var/lib/dpkg/status": consistentStatus + "\nPackage: h\nStatus: install ok half-configured\nVersion: 3\nArchitecture: amd64\n"},
			cfg: Config{Spec: spec(certificate.ImageSpec{Packages: []certificate.Package{
				{Name: "a", Version: "1.0-2"}, {Name: "h", Version: "3"}, {Name: "none", Version: "4"}, {Name: "gone", Version: "2"}}})},
			want: []want{{"dpkg/consistent", "fail", `h 3 is "install ok half-configured"`}, {"dpkg/declared", "fail", "a 1.0-1 is installed; 1.0-2 is declared"},
				{"dpkg/declared", "fail", "none 4 is declared and not installed"}, {"dpkg/declared", "fail", "half-configured"}}},
		{name: "a package that was removed is not installed", files: files{"var/lib/dpkg/status": consistentStatus},
			cfg:  Config{Spec: spec(certificate.ImageSpec{Packages: []certificate.Package{{Name: "gone", Version: "2"}}})},
			want: []want{{"dpkg/declared", "fail", "deinstall"}}},
		{name: "declared packages without database", cfg: Config{Spec: spec(certificate.ImageSpec{Packages: []certificate.Package{{Name: "a"}}})},
			want: []want{{"dpkg/declared", "fail", "no dpkg database"}}},
		{name: "broken database", files: files{"var/lib/dpkg/status": "rubbish"}, want: []want{{"dpkg/consistent", "fail", "rubbish"}}},
		{name: "libraries resolve", files: with(loaderFile, files{"usr/bin/p": exe(elftest.File{Needed: []string{"liba.so"}}), "usr/lib/liba.so": lib(), "usr/lib/text": "text"}),
			want: []want{{"libraries", "pass", "3 files"}}},
		{name: "a library is missing", files: with(loaderFile, files{"opt/x/bin/p": exe(elftest.File{Needed: []string{"libnone.so.7"}})}),
			want: []want{{"libraries", "fail", "libnone.so.7 is missing, needed by /opt/x/bin/p"}}},
		{name: "of a library", files: with(loaderFile, files{"usr/bin/p": exe(elftest.File{Needed: []string{"liba.so"}}), "usr/lib/liba.so": lib("libnone.so.7")}),
			want: []want{{"libraries", "fail", "/usr/bin/p (through /usr/lib/liba.so)"}}},
		{name: "ldconfig was not run", files: files{"opt/x/lib/liba.so": lib(), "opt/x/bin/p": lib("liba.so"), "etc/ld.so.conf": "/opt/x/lib\n"},
			want: []want{{"libraries", "fail", "run ldconfig"}, {"environment/ld.so.conf", "pass", "1 directories"}}},
		{name: "in a place where nobody looks", files: files{"opt/x/lib/liba.so": lib(), "opt/x/bin/p": lib("liba.so")},
			want: []want{{"libraries", "fail", "it lies in /opt/x/lib, where the loader does not look"}}},
		{name: "a plugin that its program's RPATH helps", files: with(loaderFile, files{
			"opt/x/bin/p":         exe(elftest.File{Needed: []string{"liba.so"}, RPath: "/opt/x/lib"}),
			"opt/x/lib/liba.so":   lib("libb.so"),
			"opt/x/lib/libb.so":   lib(),
			"opt/x/lib/plugin.so": lib(),
		}), want: []want{{"libraries", "pass", "5 files"}}},
		{name: "the loader itself is missing", files: files{"usr/bin/p": exe(elftest.File{})}, want: []want{{"libraries", "fail", "its loader /lib64/ld-linux-x86-64.so.2 does not exist"}}},
		{name: "a damaged file", files: files{"usr/lib/libx.so": lib("libc.so.6")[:150]}, want: []want{{"libraries", "fail", "libx.so: ELF program headers"}}},
		{name: "static and foreign files", files: files{
			"usr/bin/s": "x:" + string(elftest.File{Static: true}.Bytes()), "usr/lib/other.so": string(elftest.File{Machine: 183, Needed: []string{"libnone"}}.Bytes()),
		}, want: []want{{"libraries", "pass", "1 files for other machines"}}},
		{name: "only foreign files", files: files{"usr/lib/other.so": string(elftest.File{Machine: 183}.Bytes())}, want: []want{{"libraries", "skip", "other than EM_X86_64"}}},
		{name: "debugging information is not loaded", files: files{"usr/lib/debug/x.so": lib("libnone.so")}, want: []want{{"libraries", "skip", ""}}},
		{name: "absent by declaration", files: files{"opt/x/lib/p.so": lib("libcuda.so.1"), "usr/lib/other.so": lib()},
			cfg: Config{Spec: spec(certificate.ImageSpec{Absent: cuda, Components: []certificate.Component{{Name: "X", Checks: []certificate.Check{
				{Name: "loads", Kind: "load", Path: "/opt/x/lib/p.so"}}}}})},
			want: []want{{"libraries", "pass", "declared absent"}, {"libraries/absent/libcuda.so.1", "skip", "the driver brings it; 1 files"},
				{"component/x/loads", "skip", "libcuda.so.1, which is declared absent: the driver"}}},
		{name: "absent, and something else is missing", files: files{"opt/x/lib/p.so": lib("libcuda.so.1", "libnone.so")},
			cfg: Config{Spec: spec(certificate.ImageSpec{Absent: cuda, Components: []certificate.Component{{Name: "x", Checks: []certificate.Check{
				{Name: "loads", Kind: "load", Path: "/opt/x/lib/p.so"}}}}})},
			want: []want{{"libraries", "fail", "libnone.so"}, {"component/x/loads", "fail", "lacks libcuda.so.1, libnone.so"}}},
		{name: "declared absent but there", files: files{"usr/lib/p.so": lib("libcuda.so.1"), "usr/lib/libcuda.so.1": lib()},
			cfg: Config{Spec: spec(certificate.ImageSpec{Absent: cuda})}, want: []want{{"libraries/absent/libcuda.so.1", "pass", "it is here"}}},
		{name: "declared absent, needed by nobody", files: files{"usr/lib/p.so": lib()},
			cfg: Config{Spec: spec(certificate.ImageSpec{Absent: cuda})}, want: []want{{"libraries/absent/libcuda.so.1", "skip", "nothing in the image needs it"}}},
		{name: "LD_LIBRARY_PATH", files: files{"opt/x/lib": "/"}, env: []string{"LD_LIBRARY_PATH=/opt/x/lib:/usr/local/nvidia/lib"},
			want: []want{{"environment/library-path", "pass", "/usr/local/nvidia/lib does not exist: NVIDIA"}}},
		{name: "bad LD_LIBRARY_PATH", env: []string{"LD_LIBRARY_PATH=/opt/x/lib:"},
			want: []want{{"environment/library-path", "fail", "/opt/x/lib does not exist"}, {"environment/library-path", "fail", `""`}}},
		{name: "ld.so.conf names nothing", files: files{"etc/ld.so.conf": "include /etc/ld.so.conf.d/*.conf", "etc/ld.so.conf.d/x.conf": "/none",
			"etc/ld.so.conf.d/libc.conf": "/usr/local/lib", "var/lib/dpkg/info/libc6.list": "/etc\n/etc/ld.so.conf.d/libc.conf\n"},
			want: []want{{"environment/ld.so.conf", "fail", "x.conf names /none"}, {"environment/ld.so.conf", "fail", "belongs to a Debian package"}}},
		{name: "profile agrees", env: []string{"A=b c", "PATH=/opt/x/bin:/opt/y/bin:/usr/bin"},
			files: files{"etc/profile.d/assay.sh": "# x\nexport A='b c'\nexport PATH=\"/opt/x/bin:/opt/y/bin${PATH:+:$PATH}\"\n"},
			want:  []want{{"environment/profile", "pass", "2 variables"}}},
		{name: "profile disagrees", env: []string{"A=b", "PATH=/opt/y/bin:/opt/x/bin:/usr/bin"},
			files: files{"etc/profile.d/assay.sh": "export A=\"c\"\nexport PATH=/opt/x/bin:/opt/y/bin:$PATH\n"},
			want:  []want{{"environment/profile", "fail", `A is "c" for login shells and "b" in the image`}, {"environment/profile", "fail", "PATH is"}}},
		{name: "profile is a program", files: files{"etc/profile.d/assay.sh": "\nif true; then"}, want: []want{{"environment/profile", "fail", "assay.sh:2: "}}},
		{name: "harness version", cfg: Config{Version: "v1", Spec: spec(certificate.ImageSpec{Components: []certificate.Component{{Name: "harness", Version: "v1"}}})},
			want: []want{{"harness/version", "pass", "v1"}}},
		{name: "other harness version", cfg: Config{Version: "v2", Spec: spec(certificate.ImageSpec{Components: []certificate.Component{{Name: "harness", Version: "v1"}}})},
			want: []want{{"harness/version", "fail", "v1 is declared"}}},
		{name: "host keys", files: files{"usr/sbin/sshd": "x:", "etc/ssh/ssh_host_rsa_key": "k"},
			want: []want{{"ssh/host-keys", "fail", "/etc/ssh/ssh_host_rsa_key"}, {"ssh/config", "skip", "only inside"}}},
		{name: "no host keys", files: files{"usr/sbin/sshd": "x:", "etc/ssh/ssh_host_rsa_key.pub": "k"}, want: []want{{"ssh/host-keys", "pass", ""}}},
		{name: "mpirun elsewhere", files: files{"opt/x/bin/mpirun": "x:"}, want: []want{{"mpi/ranks", "skip", "only inside"}}},
		{name: "no libnccl", files: loaderFile, want: []want{{"libnccl/assay", "skip", "the image has no /opt/assay/lib/libnccl.so.2"}, {"libnccl/found", "skip", "the loader finds no libnccl.so.2"}}},
		{name: "libraries that do not say whose they are", files: files{"opt/assay/lib/libnccl.so.2": lib(), "usr/lib/libnccl.so.2": lib()},
			want: []want{{"libnccl/assay", "fail", "/opt/assay/lib/libnccl.so.2 is a library that does not say which project built it"}, {"libnccl/found", "skip", "/usr/lib/libnccl.so.2 does not say which project built it"}}},
		{name: "a damaged libnccl", files: files{"opt/assay/lib/libnccl.so.2": "text"}, want: []want{{"libnccl/assay", "fail", "libnccl.so.2: EOF"}}},
		{name: "component checks", files: files{"opt/f": "12", "opt/x/bin/p": "x:"},
			cfg: Config{Spec: spec(certificate.ImageSpec{Components: []certificate.Component{{Name: "My Comp", Checks: []certificate.Check{
				{Name: "there", Kind: "file", Path: "/opt/f"}, {Name: "runs", Kind: "file", Path: "/opt/f", Mode: 0o111}, {Name: "gone", Kind: "file", Path: "/opt/none"},
				{Name: "there", Kind: "file", Path: "/opt/x/bin/p", Mode: 0o111}, {Name: "odd", Kind: "dance"}, {Name: "empty", Kind: "command"},
				{Name: "match", Kind: "command", Command: []string{"p"}, Match: "("}, {Name: "cmd", Kind: "command", Command: []string{"p"}},
				{Name: "rel", Kind: "load", Path: "x.so"}, {Name: "nolib", Kind: "load", Path: "/opt/none.so"},
			}}, {Name: "bare"}}})},
			want: []want{{"component/my-comp/there", "pass", "2 bytes"}, {"component/my-comp/runs", "fail", "0111 must be set"}, {"component/my-comp/gone", "fail", "no such file"},
				{"component/my-comp/there#2", "pass", ""}, {"component/my-comp/odd", "error", "dance"}, {"component/my-comp/empty", "error", "no command"},
				{"component/my-comp/match", "error", "match"}, {"component/my-comp/cmd", "skip", "only inside"}, {"component/my-comp/rel", "error", "absolute"},
				{"component/my-comp/nolib", "fail", "/opt/none.so"}, {"component/bare", "skip", "no check"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := results(t, tt.cfg, fixture(t, tt.files, tt.env...))
			for _, w := range tt.want {
				r, ok := got[w.id]
				if !ok || r.Verdict != w.verdict || !strings.Contains(r.Reason+"\n"+r.Output, w.text) {
					t.Errorf("%s = %s (%s)\n%s; want %s, …%s…", w.id, r.Verdict, r.Reason, r.Output, w.verdict, w.text)
				}
			}
		})
	}
}

func TestReadSpec(t *testing.T) {
	good := `{"version":1,"target":"t","platform":"linux/amd64","recipe":"ab","components":[]}`
	env := fixture(t, files{"opt/assay/image.json": good})
	if s, err := ReadSpec(env.Root, ""); err != nil || s == nil || s.Target != "t" {
		t.Errorf("ReadSpec = %+v, %v", s, err)
	}
	if s, err := ReadSpec(fixture(t, nil).Root, ""); s != nil || err != nil {
		t.Errorf("ReadSpec of nothing = %v, %v; want nil, nil", s, err)
	}
	if _, err := ReadSpec(env.Root, "/none/at/all"); err == nil {
		t.Error("a declaration that was asked for and is not there is no error")
	}
}

func TestInventory(t *testing.T) {
	got, err := Inventory(fixture(t, files{
		"var/lib/dpkg/status":              consistentStatus + "\nPackage: b\nStatus: hold ok installed\nVersion: 2\nArchitecture: all\nSource: bb (2.0)\n",
		"usr/share/doc/a":                  "->/usr/share/doc/a-common",
		"usr/share/doc/a-common/copyright": "Format: x\n\nFiles: *\nLicense: GPL-2+\n",
		"usr/share/doc/b/copyright":        "prose",
	}).Root)
	want := &certificate.Inventory{Version: 1, Packages: []certificate.InstalledPackage{
		{Name: "a", Version: "1.0-1", Arch: "amd64", Licenses: []string{"GPL-2.0-or-later"}},
		{Name: "b", Version: "2", Arch: "all", Source: "bb (2.0)", Licenses: []string{"NOASSERTION"}},
	}}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("Inventory: %v\n%s", err, d)
	}
	if got, err := Inventory(fixture(t, nil).Root); err != nil || len(got.Packages) != 0 {
		t.Errorf("Inventory of nothing = %v, %v", got, err)
	}
}

func TestDescribe(t *testing.T) {
	env := fixture(t, files{"etc/os-release": "ID=debian\nVERSION_ID=\"12\"\nPRETTY_NAME=\"Debian 12\"\n"})
	got := Describe(env.Root, &certificate.ImageSpec{Target: "t", Recipe: "ab"})
	if got.OS != "Debian 12" || got.OSID != "debian 12" || got.Target != "t" || got.Recipe != "ab" || got.Kernel == "" {
		t.Errorf("Describe = %+v", got)
	}
	arm := "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n"
	if got := cpuModel([]byte(arm)); got != "Arm implementer 0x41 part 0xd0c" {
		t.Errorf("cpuModel = %q", got)
	}
}
