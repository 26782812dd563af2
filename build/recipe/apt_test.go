package recipe

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/internal/golden"
	"github.com/google/go-cmp/cmp"
)

// TestAptScripts holds the three scripts against their goldens, and each
// against the shell's own parser.
func TestAptScripts(t *testing.T) {
	a := apt()
	plain := Apt{Packages: []string{"numactl"}, Debs: []Deb{{Name: "numactl", Version: "2.0.16-1", Arch: "amd64"}}}
	for name, script := range map[string]string{
		"install.golden":       a.Script(),
		"online.golden":        a.Online("", "").Script,
		"online-sed.golden":    plain.Online("s|https://a.example.org|http://b.example.org|g;", "").Script,
		"resolve.golden":       a.ResolveScript("s|https://a.example.org|http://b.example.org|g;"),
		"install-plain.golden": plain.Script(), // nothing is a dependency: no marks
		"resolve-plain.golden": plain.ResolveScript(""),
	} {
		golden.Check(t, name, script)
		cmd := exec.Command("/bin/sh", "-n")
		cmd.Stdin = strings.NewReader(script)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: sh -n: %v\n%s", name, err, out)
		}
	}
}

func TestParseURIs(t *testing.T) {
	a, b := sum("ab"), sum("cd")
	line := func(s string) string { return strings.ReplaceAll(strings.ReplaceAll(s, "$A", a), "$B", b) }
	hwloc := Deb{Name: "hwloc-nox", Version: "2.9.0-1", Arch: "amd64", URL: "http://deb.example.org/pool/hwloc-nox_2.9.0-1_amd64.deb", SHA256: a, Size: 10}
	for _, tt := range []struct {
		name, in string
		want     []Deb
		err      string
	}{
		{name: "nothing"},
		{name: "apt's remarks", in: "Reading package lists...\n\nE: not an entry\n"},
		{name: "one", in: "'http://deb.example.org/pool/hwloc-nox_2.9.0-1_amd64.deb' hwloc-nox_2.9.0-1_amd64.deb 10 SHA256:$A\n", want: []Deb{hwloc}},
		{name: "no newline, and spaces", in: "  'http://deb.example.org/pool/hwloc-nox_2.9.0-1_amd64.deb'   hwloc-nox_2.9.0-1_amd64.deb 10 SHA256:$A", want: []Deb{hwloc}},
		{
			name: "an escaped epoch; a file name that is not the URL's",
			in:   "'https://deb.example.org/pool/ssh_9.2p1-2+deb12u3_amd64.deb' ssh_1%3a9.2p1-2+deb12u3_amd64.deb 5 SHA256:$A",
			want: []Deb{{Name: "ssh", Version: "1:9.2p1-2+deb12u3", Arch: "amd64", URL: "https://deb.example.org/pool/ssh_9.2p1-2+deb12u3_amd64.deb", SHA256: a, Size: 5}},
		},
		{
			name: "a flat repository, as NVIDIA's are",
			in:   "'https://nv.example.org/ubuntu2204/x86_64/./libx_1_amd64.deb' libx_1_amd64.deb 5 SHA256:$A",
			want: []Deb{{Name: "libx", Version: "1", Arch: "amd64", URL: "https://nv.example.org/ubuntu2204/x86_64/./libx_1_amd64.deb", SHA256: a, Size: 5}},
		},
		{name: "a way out", in: "'https://nv.example.org/x/../libx_1_amd64.deb' libx_1_amd64.deb 5 SHA256:$A", err: "leads elsewhere"},
		{
			name: "sorted, once each, two architectures of one name",
			in: "'http://h.example.org/b' libb_1_all.deb 1 SHA256:$A\n'http://h.example.org/a2' liba_1_i386.deb 2 SHA256:$B\n" +
				"'http://h.example.org/a' liba_1_amd64.deb 3 SHA256:$A\n'http://h.example.org/b' libb_1_all.deb 1 SHA256:$A\n",
			want: []Deb{
				{Name: "liba", Version: "1", Arch: "amd64", URL: "http://h.example.org/a", SHA256: a, Size: 3},
				{Name: "liba", Version: "1", Arch: "i386", URL: "http://h.example.org/a2", SHA256: b, Size: 2},
				{Name: "libb", Version: "1", Arch: "all", URL: "http://h.example.org/b", SHA256: a, Size: 1},
			},
		},
		{name: "three fields", in: "'http://h.example.org/a' a_1_all.deb 3", err: `apt --print-uris: not four fields in "'http://h.example.org/a' a_1_all.deb 3"`},
		{name: "a weak hash", in: "'http://h.example.org/a' a_1_all.deb 3 MD5Sum:00", err: `no SHA-256 (is the repository signed with a newer hash?) in`},
		{name: "a short hash", in: "'http://h.example.org/a' a_1_all.deb 3 SHA256:abcd", err: `sha256: "abcd" is not a SHA-256 of 64 hex digits in`},
		{name: "no hash", in: "'http://h.example.org/a' a_1_all.deb 3 SHA256:", err: `sha256: "" is not a SHA-256`},
		{name: "two parts", in: "'http://h.example.org/a' a_1.deb 3 SHA256:$A", err: `file name is not name_version_arch.deb in`},
		{name: "a bad escape", in: "'http://h.example.org/a' a_1%zz_all.deb 3 SHA256:$A", err: `bad file name in`},
		{name: "a path for a name", in: "'http://h.example.org/a' ..%2fa_1_all.deb 3 SHA256:$A", err: `name: "../a" is not a package name in`},
		{name: "a command for a version", in: "'http://h.example.org/a' a_1$(id)_all.deb 3 SHA256:$A", err: `version: "1$(id)" is not a package version in`},
		{name: "no version", in: "'http://h.example.org/a' a__all.deb 3 SHA256:$A", err: `version: "" is not a package version in`},
		{name: "a word for a size", in: "'http://h.example.org/a' a_1_all.deb many SHA256:$A", err: `bad size in`},
		{name: "a negative size", in: "'http://h.example.org/a' a_1_all.deb -3 SHA256:$A", err: `size: "-3" is negative in`},
		{name: "no URL", in: "'' a_1_all.deb 3 SHA256:$A", err: `url: "" is not a URL`},
		{name: "an open quote", in: "'http://h.example.org/a a_1_all.deb 3 SHA256:$A", err: `bad URL in`},
	} {
		got, err := ParseURIs(line(tt.in))
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s: ParseURIs = %v, %v; want an error with %q", tt.name, got, err, tt.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: ParseURIs: %v", tt.name, err)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" && len(tt.want)+len(got) > 0 {
			t.Errorf("%s: ParseURIs (-want +got):\n%s", tt.name, diff)
		}
	}
}

var (
	nameRef    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9+.-]*$`)
	versionRef = regexp.MustCompile(`^[A-Za-z0-9.+:~-]+$`)
	sumRef     = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

func TestParseInstalled(t *testing.T) {
	text := "jq installed 1.6-2.1\ncurl config-files 7.88.1-10\nhwloc installed 2.8.0-1\nnumactl  \n"
	got := ParseInstalled(text, []Deb{{Name: "hwloc", Version: "2.9.0-1"}})
	if diff := cmp.Diff(map[string]string{"jq": "1.6-2.1"}, got); diff != "" {
		t.Errorf("ParseInstalled (-want +got):\n%s", diff)
	}
}

// FuzzParseURIs: what is accepted is fit for a file name, a shell script and
// the lock, and says the same when it is written and read again.
func FuzzParseURIs(f *testing.F) {
	f.Add("'http://deb.example.org/pool/ssh_9.2p1_amd64.deb' ssh_1%3a9.2p1-2+deb12u3_amd64.deb 5 SHA256:" + sum("ab") + "\nremark\n")
	f.Add("'http://h.example.org/a' a_1_all.deb -3 SHA256:" + sum("ab"))
	f.Add("'' a_1_all.deb 0 SHA256:")
	f.Add("'http://h.example.org/a' ..%2f_1%0a_all.deb 3 SHA256:" + sum("AB"))
	f.Fuzz(func(t *testing.T, in string) {
		debs, err := ParseURIs(in)
		if err != nil {
			return
		}
		var again strings.Builder
		for i, d := range debs {
			u, err := url.Parse(d.URL)
			if !nameRef.MatchString(d.Name) || !versionRef.MatchString(d.Version) || !nameRef.MatchString(d.Arch) || !sumRef.MatchString(d.SHA256) || d.Size < 0 || err != nil || u.Scheme == "" {
				t.Fatalf("ParseURIs(%q) accepts %+v (%v)", in, d, err)
			}
			if file := d.File(); path.Base(file) != file || strings.ContainsAny(file, " \n'\"$:") {
				t.Fatalf("%+v.File() = %q", d, file)
			}
			if i > 0 && debs[i-1].Name+":"+debs[i-1].Arch == d.Name+":"+d.Arch {
				t.Fatalf("ParseURIs(%q) has %s twice", in, d.Name)
			}
			fmt.Fprintf(&again, "'%s' %s_%s_%s.deb %d SHA256:%s\n", d.URL, d.Name, strings.ReplaceAll(d.Version, ":", "%3a"), d.Arch, d.Size, d.SHA256)
		}
		got, err := ParseURIs(again.String())
		if err != nil || len(debs) > 0 && !cmp.Equal(got, debs) {
			t.Fatalf("ParseURIs(%q) = %v, %v; want %v", again.String(), got, err, debs)
		}
	})
}

// TestDebFile: what differs in name, architecture or version has another file
// name, where one set can hold both.
func TestDebFile(t *testing.T) {
	seen := map[string]Deb{}
	for _, name := range []string{"a", "a-1", "a.1", "a+", "libstdc++6"} {
		for _, arch := range []string{"amd64", "arm64", "all", "i386"} {
			for _, version := range []string{"1", "1:1", "1-1", "1.2+b1", "1:9.2p1-2+deb12u3"} {
				d := Deb{Name: name, Version: version, Arch: arch}
				file := d.File()
				if have, ok := seen[file]; ok {
					t.Errorf("%+v and %+v are both %s", have, d, file)
				}
				seen[file] = d
				if !regexp.MustCompile(`^[a-zA-Z0-9._+-]+\.deb$`).MatchString(file) {
					t.Errorf("%+v.File() = %q", d, file)
				}
			}
		}
	}
	if got, want := (Deb{Name: "ssh", Version: "1:9~rc1-2", Arch: "all"}).File(), "ssh_1_9-rc1-2_all.deb"; got != want {
		t.Errorf("File() = %q; want %q", got, want)
	}
}

// TestUpdateRetries: package lists that do not fit their checksums are asked for again, a few times;
// any other failure is one at once.
func TestUpdateRetries(t *testing.T) {
	const torn = "E: Failed to fetch x  File has unexpected size (1 != 2). Mirror sync in progress? [IP: ::1 80]"
	for _, tt := range []struct {
		name, message string
		failures      int
		sleeps        string
		status        int
	}{
		{"good", torn, 0, "", 0},
		{"torn twice", torn, 2, "20 60 ", 0},
		{"torn for long", torn, 9, "20 60 180 ", 100},
		{"no server", "E: Failed to fetch x  Could not connect", 1, "", 100},
	} {
		dir := t.TempDir()
		script := strings.ReplaceAll(`sleep() { printf '%s ' "$1" >> DIR/sleeps; }
apt() {
  echo x >> DIR/calls
  if [ $(wc -l < DIR/calls) -le FAILURES ]; then echo "MESSAGE" >&2; return 100; fi
}
: > DIR/sleeps
apt=apt
`, "DIR", dir)
		script = strings.NewReplacer("FAILURES", fmt.Sprint(tt.failures), "MESSAGE", tt.message).Replace(script) + strings.ReplaceAll(update, "/tmp/", dir+"/")
		cmd := exec.Command("sh", "-euc", script)
		out, _ := cmd.CombinedOutput()
		sleeps, err := os.ReadFile(filepath.Join(dir, "sleeps"))
		if err != nil || string(sleeps) != tt.sleeps || cmd.ProcessState.ExitCode() != tt.status || tt.failures > 0 && !strings.Contains(string(out), tt.message) {
			t.Errorf("%s: slept %q (%v), status %d; want %q, %d\n%s", tt.name, sleeps, err, cmd.ProcessState.ExitCode(), tt.sleeps, tt.status, out)
		}
	}
}
