package mirror

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/build/archive"
)

func rules(t testing.TB, list ...string) []Rule {
	t.Helper()
	var rs []Rule
	for _, s := range list {
		r, err := ParseRule(s)
		if err != nil {
			t.Fatal(err)
		}
		rs = append(rs, r)
	}
	return rs
}

const (
	debianRoot = "http://archive.example.org/debian"
	ubuntuRoot = "http://archive.example.org/ubuntu"
	portsRoot  = "http://ports.example.org/ubuntu-ports"
	proxyRoot  = "https://modules.example.org"
)

// resolver knows the defaults of no real machine.
func resolver(t testing.TB, list ...string) *Resolver {
	t.Helper()
	r := New(rules(t, list...)...)
	for scheme, root := range map[string]string{"debian:": debianRoot, "ubuntu:": ubuntuRoot, "ubuntu-ports:": portsRoot, goProxy: proxyRoot} {
		r.Defaults[scheme] = func() (string, error) { return root, nil }
	}
	return r
}

func TestParseRule(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want Rule
		err  string
	}{
		{in: "docker.io=mirror.example.org:5000", want: Rule{From: "docker.io", To: "mirror.example.org:5000"}},
		{in: "https://a.example.org/=http://b.example.org/a/", want: Rule{From: "https://a.example.org", To: "http://b.example.org/a"}},
		{in: "debian:=http://b.example.org/debian", want: Rule{From: "debian:", To: "http://b.example.org/debian"}},
		{in: "https://a.example.org=http://b.example.org/?x=y", want: Rule{From: "https://a.example.org", To: "http://b.example.org/?x=y"}},
		{in: "https://a.example.org/=/srv/sources/", want: Rule{From: "https://a.example.org", To: "/srv/sources"}},
		{in: "https://a.example.org=file:///srv/sources", want: Rule{From: "https://a.example.org", To: "/srv/sources"}},
		{in: "docker.io=/srv/images", err: `redirects image references to a directory; a directory holds downloads, and images want a registry`},
		{in: "https://a.example.org=/srv/50%", err: `names a directory with ?, # or %`},
		{in: "docker.io", err: `--mirror "docker.io" is not FROM=TO, for example docker.io=mirror.example:5000`},
		{in: "=b", err: `--mirror "=b" is not FROM=TO`},
		{in: "a=", err: `--mirror "a=" is not FROM=TO`},
		{in: "", err: `--mirror "" is not FROM=TO`},
		{in: "https://a=http://b'; id", err: `is not FROM=TO`},
		{in: "https://a=http://b|c", err: `is not FROM=TO`},
		{in: "https://a=http://b\nc", err: `is not FROM=TO`},
		{in: "https://robot:hunter2@mirror.example.org", err: `--mirror "https://***@mirror.example.org" is not FROM=TO`},
		{in: "https://hunter2@a.example.org=https://b.example.org", err: `is not FROM=TO`},
		{in: "w,hunter2@mirror.example.org", err: `--mirror "***@mirror.example.org" is not FROM=TO`},
		{in: "docker.io=robot:hunter2@mirror.example.org:5000", err: `--mirror "docker.io=…" has a user or password for a registry; give them to: docker login`},
		{in: "goproxy:=https://robot:hunter2", err: `--mirror "goproxy:=…" redirects to no URL that can be used`},
		{in: "goproxy:=https://robot:hunter2%zz@b.example.org", err: `--mirror "goproxy:=…" redirects to no URL`},
		{in: "goproxy:=https://robot:hunter2%0a@b.example.org", err: `--mirror "goproxy:=…" redirects to no URL`},
		{in: "goproxy:=https://robot:hunter2%20x@b.example.org", err: `--mirror "goproxy:=…" redirects to no URL`},
		{in: "goproxy:=https://robot:hunter2 @b.example.org", err: `--mirror "goproxy:=…" is not FROM=TO`},
		{in: "goproxy:=https://", err: `redirects to no URL`},
	} {
		got, err := ParseRule(tt.in)
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("ParseRule(%q) = %v, %v; want %s", tt.in, got, err, tt.err)
			}
			continue
		}
		if err != nil || got != tt.want {
			t.Errorf("ParseRule(%q) = %v, %v; want %v", tt.in, got, err, tt.want)
		}
	}
}

// TestCredential: a user and password leave the URL when it is read, and only
// those forms have them that are asked for.
func TestCredential(t *testing.T) {
	for _, tt := range []struct{ in, url, header, netrc, apt string }{
		{"debian:=https://robot:hunter2@b.example.org:8443/go", "https://b.example.org:8443/go", "robot:hunter2", "machine b.example.org login robot password hunter2\n", "machine https://b.example.org:8443/go login robot password hunter2\n"},
		{"debian:=https://hunter2@b.example.org", "https://b.example.org", "hunter2:", "machine b.example.org login hunter2 password \n", "machine https://b.example.org login hunter2 password \n"},
		{"debian:=https://robot:hunter2%2F%40%3A%3D@b.example.org/?a=b@c", "https://b.example.org/?a=b@c", "robot:hunter2/@:=", "machine b.example.org login robot password hunter2/@:=\n", "machine https://b.example.org/?a=b@c login robot password hunter2/@:=\n"},
		{"debian:=https://robot:a=hunter2@b.example.org", "https://b.example.org", "robot:a=hunter2", "machine b.example.org login robot password a=hunter2\n", "machine https://b.example.org login robot password a=hunter2\n"},
	} {
		rule := rules(t, tt.in)[0]
		r := resolver(t, tt.in)
		header := "Basic " + base64.StdEncoding.EncodeToString([]byte(tt.header))
		if rule.To != tt.url || rule.auth.Header() != header || r.Netrc(tt.url) != tt.netrc || r.AptAuth() != tt.apt {
			t.Errorf("%q: to %q, %q, %q, %q", tt.in, rule.To, rule.auth.Header(), r.Netrc(tt.url), r.AptAuth())
		}
		marshalled, err := json.Marshal([]any{rule, rule.auth, r.Rules(), r.Locations()})
		if err != nil {
			t.Fatal(err)
		}
		texts := []string{string(marshalled), r.Sed()}
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			texts = append(texts, fmt.Sprintf(verb, rule), fmt.Sprintf(verb, &rule), fmt.Sprintf(verb, rule.auth), fmt.Sprintf(verb, r.Locations()), fmt.Sprintf(verb, r), fmt.Sprintf(verb, []any{rule.auth}))
		}
		for _, text := range texts {
			if strings.Contains(text, "hunter2") || strings.Contains(text, hex.EncodeToString([]byte("hunter2"))) {
				t.Errorf("%q: the password is in %q", tt.in, text)
			}
		}
	}
}

// TestLocation: a credential goes to its mirror, and nowhere else.
func TestLocation(t *testing.T) {
	r := resolver(t, "goproxy:=https://robot:one@m.example.org/go", "https://a.example.org=https://robot:two@m.example.org/go/a", "debian:=http://free.example.org/debian")
	r.Defaults["debian:"] = func() (string, error) { return "http://robot:three@archive.example.org/debian", nil }
	for url, want := range map[string]string{
		"https://m.example.org/go/x.zip":                             "robot:one",
		"https://m.example.org/go/a/x":                               "robot:two",
		"https://m.example.org/go/ab":                                "robot:one",
		"https://m.example.org/gone":                                 "",
		"https://m.example.org:8443/go/x":                            "",
		"http://m.example.org/go/x":                                  "",
		"https://m.example.org.evil.example/go/x":                    "",
		"https://a.example.org/x":                                    "",
		"http://free.example.org/debian/pool/x.deb":                  "",
		"http://archive.example.org/debian/pool/x.deb":               "robot:three",
		"http://archive.example.org/debian-security/pool/x.deb":      "robot:three",
		"http://archive.example.org/debian-security-other/pool/x.de": "",
	} {
		if want != "" {
			want = "Basic " + base64.StdEncoding.EncodeToString([]byte(want))
		}
		if got := r.Authorization(url); got != want {
			t.Errorf("Authorization(%q) = %q; want %q", url, got, want)
		}
	}
	const apt = "machine https://m.example.org/go/a login robot password two\nmachine http://archive.example.org/debian login robot password three\nmachine http://archive.example.org/debian-security login robot password three\n"
	if got := r.AptAuth(); got != apt {
		t.Errorf("AptAuth() = %q; want %q", got, apt)
	}
	if got, want := r.Netrc("http://archive.example.org/debian/"), "machine archive.example.org login robot password three\n"; got != want {
		t.Errorf("Netrc = %q; want %q", got, want)
	}
	if got := r.Netrc("http://free.example.org/debian"); got != "" {
		t.Errorf("Netrc of a mirror without a credential = %q", got)
	}
	if got, err := r.URL("debian-security:pool/x.deb"); err != nil || got != "http://archive.example.org/debian-security/pool/x.deb" {
		t.Errorf("URL = %q, %v; want one without the default's password", got, err)
	}
	if got, err := r.Root("debian:"); err != nil || got != "http://archive.example.org/debian" {
		t.Errorf("Root() = %q, %v", got, err)
	}
}

func TestURL(t *testing.T) {
	for _, tt := range []struct {
		name  string
		rules []string
		in    string
		want  string
	}{
		{"no rules", nil, "https://a.example.org/x.tar.gz", "https://a.example.org/x.tar.gz"},
		{"below", []string{"https://a.example.org=http://m.example.org/a"}, "https://a.example.org/x/y.tar.gz", "http://m.example.org/a/x/y.tar.gz"},
		{"exactly", []string{"https://a.example.org/x=http://m.example.org/y"}, "https://a.example.org/x", "http://m.example.org/y"},
		{"a query", []string{"https://a.example.org/x=http://m.example.org/y"}, "https://a.example.org/x?v=1", "http://m.example.org/y?v=1"},
		{"a longer word", []string{"https://a.example.org/x=http://m.example.org/y"}, "https://a.example.org/xy", "https://a.example.org/xy"},
		{"a longer host", []string{"https://a.example=http://m.example.org"}, "https://a.example.org/x", "https://a.example.org/x"},
		{"another port", []string{"https://a.example.org=http://m.example.org"}, "https://a.example.org:8443/x", "https://a.example.org:8443/x"},
		{"a user, not a host", []string{"https://a.example.org=http://m.example.org"}, "https://a.example.org@evil.example/x", "https://a.example.org@evil.example/x"},
		{"another scheme", []string{"https://a.example.org=http://m.example.org"}, "http://a.example.org/x", "http://a.example.org/x"},
		{"the longest wins", []string{"https://a.example.org=http://one", "https://a.example.org/x/y=http://three", "https://a.example.org/x=http://two"}, "https://a.example.org/x/y/z", "http://three/z"},
		{"the first of two wins", []string{"https://a.example.org=http://one", "https://a.example.org=http://two"}, "https://a.example.org/x", "http://one/x"},
		{"once", []string{"https://a.example.org=https://b.example.org", "https://b.example.org=https://a.example.org"}, "https://a.example.org/x", "https://b.example.org/x"},

		{"debian", nil, "debian:pool/main/x.deb", debianRoot + "/pool/main/x.deb"},
		{"debian-security", nil, "debian-security:pool/x.deb", debianRoot + "-security/pool/x.deb"},
		{"debian's root", nil, "debian:", debianRoot + "/"},
		{"debian by its scheme", []string{"debian:=http://m.example.org/d"}, "debian:pool/x.deb", "http://m.example.org/d/pool/x.deb"},
		{"debian's root by its scheme", []string{"debian:=http://m.example.org/d"}, "debian:", "http://m.example.org/d"},
		{"debian by its URL", []string{debianRoot + "=http://m.example.org/d"}, "debian:pool/x.deb", "http://m.example.org/d/pool/x.deb"},
		{"the scheme before the URL", []string{debianRoot + "/pool=http://url", "debian:=http://scheme"}, "debian:pool/x.deb", "http://scheme/pool/x.deb"},
		{"debian is not debian-security", []string{"debian:=http://m.example.org/d"}, "debian-security:pool/x.deb", debianRoot + "-security/pool/x.deb"},
		{"debian-security by its scheme", []string{"debian-security:=http://m.example.org/s"}, "debian-security:pool/x.deb", "http://m.example.org/s/pool/x.deb"},

		{"ubuntu", nil, "ubuntu:pool/universe/x.deb", ubuntuRoot + "/pool/universe/x.deb"},
		{"ubuntu-ports", nil, "ubuntu-ports:pool/x.deb", portsRoot + "/pool/x.deb"},
		{"ubuntu is not ubuntu-ports", []string{"ubuntu:=http://m.example.org/u"}, "ubuntu-ports:pool/x.deb", portsRoot + "/pool/x.deb"},
		{"ubuntu by its scheme", []string{"ubuntu:=http://m.example.org/u"}, "ubuntu:pool/x.deb", "http://m.example.org/u/pool/x.deb"},

		{"goproxy", nil, "goproxy:golang.org/x/sys/@v/v0.1.0.zip", proxyRoot + "/golang.org/x/sys/@v/v0.1.0.zip"},
		{"goproxy by its scheme", []string{"goproxy:=http://m.example.org/go"}, "goproxy:a/@v/v1.zip", "http://m.example.org/go/a/@v/v1.zip"},
		{"goproxy by its URL", []string{proxyRoot + "=http://m.example.org/go"}, "goproxy:a/@v/v1.zip", "http://m.example.org/go/a/@v/v1.zip"},
	} {
		got, err := resolver(t, tt.rules...).URL(tt.in)
		if err != nil || got != tt.want {
			t.Errorf("%s: URL(%q) = %q, %v; want %q", tt.name, tt.in, got, err, tt.want)
		}
	}
}

func TestURLWithoutDefault(t *testing.T) {
	r := resolver(t, "goproxy:=http://m.example.org/go")
	none := errors.New("no archive is known")
	r.Defaults["debian:"] = func() (string, error) { return "", none }
	r.Defaults[goProxy] = func() (string, error) { t.Error("the default is asked for, and a rule is there"); return "", none }
	if got, err := r.URL("debian:pool/x.deb"); !errors.Is(err, none) {
		t.Errorf("URL = %q, %v; want the default's error", got, err)
	}
	if got, err := r.URL("goproxy:a"); err != nil || got != "http://m.example.org/go/a" {
		t.Errorf("URL = %q, %v", got, err)
	}
}

func TestImage(t *testing.T) {
	for _, tt := range []struct {
		name  string
		rules []string
		in    string
		want  string
	}{
		{"no rules", nil, "docker.io/nvidia/cuda:12.9.1", "docker.io/nvidia/cuda:12.9.1"},
		{"a registry", []string{"docker.io=mirror.example.org:5000"}, "docker.io/nvidia/cuda:12.9.1", "mirror.example.org:5000/nvidia/cuda:12.9.1"},
		{"a namespace", []string{"docker.io/nvidia=mirror.example.org/nv"}, "docker.io/nvidia/cuda:12.9.1", "mirror.example.org/nv/cuda:12.9.1"},
		{"a longer namespace", []string{"docker.io/nvidia=mirror.example.org/nv"}, "docker.io/nvidiax/cuda:1", "docker.io/nvidiax/cuda:1"},
		{"a repository", []string{"docker.io/nvidia/cuda=mirror.example.org/cuda"}, "docker.io/nvidia/cuda:12.9.1", "mirror.example.org/cuda:12.9.1"},
		{"a repository by digest", []string{"docker.io/nvidia/cuda=mirror.example.org/cuda"}, "docker.io/nvidia/cuda@sha256:12", "mirror.example.org/cuda@sha256:12"},
		{"a longer repository", []string{"docker.io/nvidia/cuda=mirror.example.org/cuda"}, "docker.io/nvidia/cuda-dl:1", "docker.io/nvidia/cuda-dl:1"},
		{"one tag", []string{"docker.io/nvidia/cuda:1=mirror.example.org/cuda:2"}, "docker.io/nvidia/cuda:1", "mirror.example.org/cuda:2"},
		{"a longer tag", []string{"docker.io/nvidia/cuda:1=mirror.example.org/cuda:2"}, "docker.io/nvidia/cuda:12", "docker.io/nvidia/cuda:12"},
		{"another port", []string{"localhost=mirror.example.org"}, "localhost:5000/cuda:1", "localhost:5000/cuda:1"},
		{"a short name", []string{"ubuntu=mirror.example.org/ubuntu"}, "ubuntu:24.04", "mirror.example.org/ubuntu:24.04"},
		{"not an archive's rule", []string{"ubuntu:=http://m.example.org/u"}, "ubuntu:24.04", "ubuntu:24.04"},
		{"the longest wins", []string{"docker.io=one", "docker.io/nvidia=two"}, "docker.io/nvidia/cuda:1", "two/cuda:1"},
	} {
		if got := resolver(t, tt.rules...).Image(tt.in); got != tt.want {
			t.Errorf("%s: Image(%q) = %q; want %q", tt.name, tt.in, got, tt.want)
		}
	}
}

// TestName: Name gives back what URL was given, whatever the rules, so that a
// lock does not depend on the mirrors of the machine that wrote it.
func TestName(t *testing.T) {
	names := []string{"debian:pool/main/x.deb", "debian-security:pool/main/x.deb", "ubuntu:pool/main/x.deb", "ubuntu-ports:pool/main/x.deb", "https://a.example.org/repo/x.deb", "https://a.example.org/repo/y/z.deb", "http://b.example.org/x.deb"}
	for _, list := range [][]string{
		nil,
		{"debian:=http://m.example.org/d"},
		{"debian:=http://m.example.org/d", "debian-security:=http://m.example.org/d-security"},
		{debianRoot + "=http://m.example.org/d"},
		{debianRoot + "=http://m.example.org/d", debianRoot + "-security=http://m.example.org/s"},
		{"http://archive.example.org=http://m.example.org/archive"},
		{"https://a.example.org=http://m.example.org"},
		// The longer FROM has the shorter TO.
		{"https://a.example.org/repo/y=http://m.example.org", "http://b.example.org=http://m.example.org/b"},
		{"debian:=http://m.example.org", "https://a.example.org=http://m.example.org/a", "http://b.example.org=http://m.example.org/ab"},
		{"https://a.example.org=http://robot:hunter2@m.example.org/a"},
	} {
		r := resolver(t, list...)
		for _, name := range names {
			at, err := r.URL(name)
			if err != nil {
				t.Fatal(err)
			}
			if got := r.Name(at); got != name {
				t.Errorf("with %q: Name(%q) = %q; want %q", list, at, got, name)
			}
		}
	}
	// A tool that leaves the password out of what it reports.
	r := resolver(t, "https://a.example.org=http://robot:hunter2@m.example.org/a")
	if got, want := r.Name("http://m.example.org/a/x.deb"), "https://a.example.org/x.deb"; got != want {
		t.Errorf("Name = %q; want %q", got, want)
	}
	r = resolver(t)
	r.Defaults["debian:"] = func() (string, error) { return "", errors.New("no archive is known") }
	if got, want := r.Name(debianRoot+"/pool/x.deb"), debianRoot+"/pool/x.deb"; got != want {
		t.Errorf("without a default: Name = %q; want %q", got, want)
	}
}

// TestSed runs sed over apt's own kinds of lists.
func TestSed(t *testing.T) {
	for _, tt := range []struct {
		name     string
		rules    []string
		in, want string
	}{
		{"no rules", nil, "deb https://a.example.org/x suite main\n", "deb https://a.example.org/x suite main\n"},
		{
			"a line of sources.list", []string{"https://a.example.org=http://m.example.org/a"},
			"# https://a.example.org/x\ndeb [trusted=yes] https://a.example.org/x suite main\n", "# http://m.example.org/a/x\ndeb [trusted=yes] http://m.example.org/a/x suite main\n",
		},
		{"two of a line", []string{"https://a.example.org=http://m"}, "URIs: https://a.example.org/1 https://a.example.org/2\n", "URIs: http://m/1 http://m/2\n"},
		{"the end of a line", []string{"https://a.example.org/x=http://m"}, "URIs: https://a.example.org/x\n", "URIs: http://m\n"},
		{"a tab", []string{"https://a.example.org/x=http://m"}, "deb\thttps://a.example.org/x\tsuite\n", "deb\thttp://m\tsuite\n"},
		{"a longer word", []string{debianRoot + "=http://m"}, "deb " + debianRoot + "-security suite\n", "deb " + debianRoot + "-security suite\n"},
		{"a dot is a dot", []string{"https://a.example.org=http://m"}, "deb https://aXexample.org/x suite\n", "deb https://aXexample.org/x suite\n"},
		{"special characters", []string{"https://a.example.org/[x]*+$=http://m/?a&b"}, "deb https://a.example.org/[x]*+$/ suite\n", "deb http://m/?a&b/ suite\n"},
		{"the longest wins", []string{"https://a.example.org=http://one", "https://a.example.org/x=http://two"}, "deb https://a.example.org/x/y s\n", "deb http://two/y s\n"},
		{"once", []string{"https://a.example.org=https://b.example.org", "https://b.example.org=https://a.example.org"}, "https://a.example.org/ https://b.example.org/\n", "https://b.example.org/ https://a.example.org/\n"},
		{"an image's rule", []string{"docker.io=m.example.org"}, "docker.io/x\n", "docker.io/x\n"},
		{
			"the schemes", []string{"debian:=http://m/d", "debian-security:=http://m/s"},
			"deb " + debianRoot + " s main\ndeb " + debianRoot + "-security s main\n", "deb http://m/d s main\ndeb http://m/s s main\n",
		},
	} {
		script := resolver(t, tt.rules...).Sed()
		if strings.Contains(script, "'") {
			t.Errorf("%s: Sed() = %q, which stands in single quotes", tt.name, script)
		}
		cmd := exec.Command("sed", "-e", script)
		cmd.Stdin = strings.NewReader(tt.in)
		out, err := cmd.CombinedOutput()
		if err != nil || string(out) != tt.want {
			t.Errorf("%s: sed -e %q of %q = %q, %v; want %q", tt.name, script, tt.in, out, err, tt.want)
		}
	}
}

// FuzzRule: what ParseRule accepts makes a sed script that does what URL does.
func FuzzRule(f *testing.F) {
	f.Add("https://a.example.org/x=http://m.example.org/y", "/z")
	f.Add("https://a.example.org/[x]*=http://m/?a&b", "")
	f.Add("docker.io=m", "")
	f.Add("debian:=http://m/d", "/pool")
	f.Fuzz(func(t *testing.T, text, rest string) {
		rule, err := ParseRule(text)
		if err != nil || strings.ContainsFunc(rest, forbidden) || rest != "" && rest[0] != '/' || strings.Contains(text+rest, "@assay") {
			return
		}
		r := resolver(t, text)
		script := r.Sed()
		if script == "" || strings.HasPrefix(rule.From, "debian") || strings.HasPrefix(rule.From, "goproxy") {
			return
		}
		in := rule.From + rest
		want, err := r.URL(in)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("sed", "-e", script)
		cmd.Env = []string{"LC_ALL=C.UTF-8"}
		cmd.Stdin = strings.NewReader(in)
		out, err := cmd.CombinedOutput()
		if err != nil || string(out) != want {
			t.Fatalf("sed -e %q of %q = %q, %v; URL says %q", script, in, out, err, want)
		}
	})
}

func TestRulesAreSorted(t *testing.T) {
	in := rules(t, "a=1", "a/b/c=2", "a/b=3")
	got := New(in...).Rules()
	want := rules(t, "a/b/c=2", "a/b=3", "a=1")
	if !slices.Equal(got, want) || in[0].From != "a" {
		t.Errorf("Rules() = %v (from %v); want %v", got, in, want)
	}
}

func TestDefaultGoProxy(t *testing.T) {
	for _, tt := range []struct{ env, want, err string }{
		{"https://modules.example.org", "https://modules.example.org", ""},
		{"https://modules.example.org/,direct", "https://modules.example.org", ""},
		{"off|file:///srv/modules", "file:///srv/modules", ""},
		{"robot:hunter2@nowhere", "", `GOPROXY="***@nowhere" names no proxy to fetch from`},
		{"direct", "", `GOPROXY="direct" names no proxy to fetch from`},
		{"off", "", `GOPROXY="off" names no proxy to fetch from`},
	} {
		t.Setenv("GOPROXY", tt.env)
		got, err := DefaultGoProxy()
		if got != tt.want || (err == nil) != (tt.err == "") || err != nil && err.Error() != tt.err {
			t.Errorf("GOPROXY=%q: DefaultGoProxy() = %q, %v; want %q, %s", tt.env, got, err, tt.want, tt.err)
		}
	}
}

// TestDefaultArchive reads a debootstrap, and this machine's where there is one.
func TestDefaultArchive(t *testing.T) {
	prefix := t.TempDir()
	t.Setenv("PATH", filepath.Join(prefix, "sbin"))
	write := func(name, text string) {
		t.Helper()
		file := filepath.Join(prefix, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	write("sbin/debootstrap", "#!/bin/sh\n# see http://docs.example.org\nDEF_MIRROR=\"http://deb.example.org/debian/\"\n")
	for _, a := range archive.All {
		if root, err := DefaultArchive(a); a.Scheme != "debian:" && (err == nil || !strings.Contains(err.Error(), "--mirror "+a.Scheme+"=URL")) {
			t.Errorf("without its script: DefaultArchive(%s) = %q, %v; want the remedy", a.Scheme, root, err)
		}
	}
	write("share/debootstrap/scripts/gutsy", "case $ARCH in\n  amd64|i386)\n\tdefault_mirror http://old-releases.example.org/ubuntu\n  \tdefault_mirror http://archive.example.org/ubuntu\n  *)\n\tdefault_mirror http://ports.example.org/ubuntu-ports\n")
	want := map[string]string{"debian:": "http://deb.example.org/debian", "ubuntu:": ubuntuRoot, "ubuntu-ports:": portsRoot}
	for _, a := range archive.All {
		if root, err := DefaultArchive(a); err != nil || root != want[a.Scheme] {
			t.Errorf("DefaultArchive(%s) = %q, %v; want %s", a.Scheme, root, err, want[a.Scheme])
		}
	}
	t.Setenv("PATH", "/nowhere")
	for _, a := range archive.All {
		root, err := DefaultArchive(a)
		if _, here := os.Stat("/usr/sbin/debootstrap"); here != nil {
			if err == nil || !strings.Contains(err.Error(), "make deps") {
				t.Errorf("without debootstrap: DefaultArchive(%s) = %q, %v; want the remedy", a.Scheme, root, err)
			}
		} else if err != nil || !strings.HasPrefix(root, "http") || strings.HasSuffix(root, "/") {
			t.Errorf("DefaultArchive(%s) = %q, %v; want an archive's root", a.Scheme, root, err)
		}
	}
}

// TestDirectoryURL: a directory has downloads at the path of their URL, and nothing above it.
func TestDirectoryURL(t *testing.T) {
	r := resolver(t, "https://a.example.org=/srv/sources", "debian:=/srv/debian/", "https://root.example.org=/")
	for url, want := range map[string]string{
		"https://a.example.org/x/v1.tgz":                "/srv/sources/x/v1.tgz",
		"https://a.example.org/x/v1%2B2.tgz?token=a#b":  "/srv/sources/x/v1+2.tgz",
		"https://a.example.org/../../etc/shadow":        "/srv/sources/etc/shadow",
		"https://a.example.org/x/%2e%2e/%2E%2E%2fetc/y": "/srv/sources/etc/y",
		"https://a.example.org":                         "/srv/sources",
		"https://root.example.org/x":                    "/x",
		"debian:pool/x.deb":                             "/srv/debian/pool/x.deb",
		"debian:":                                       "/srv/debian",
		"file:///etc/shadow":                            "file:///etc/shadow",
		"https://b.example.org/x":                       "https://b.example.org/x",
	} {
		got, err := r.URL(url)
		if err != nil || got != want || IsPath(got) != strings.HasPrefix(want, "/") {
			t.Errorf("URL(%q) = %q, %v; want %q", url, got, err, want)
		}
	}
	for file, want := range map[string]string{"/srv/sources/x/v1.tgz": "https://a.example.org/x/v1.tgz", "/srv/debian/pool/x.deb": "debian:pool/x.deb"} {
		if got := r.Name(file); got != want {
			t.Errorf("Name(%q) = %q; want %q", file, got, want)
		}
	}
}
