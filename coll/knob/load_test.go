package knob

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/coll/debug"
)

// files is a machine with these files.
func files(f map[string]string) func(string) ([]byte, error) {
	return func(name string) ([]byte, error) {
		if text, ok := f[name]; ok {
			return []byte(text), nil
		}
		return noFiles(name)
	}
}

func TestSources(t *testing.T) {
	read := files(map[string]string{
		"/etc/nccl.conf":     "# all users\nNCCL_MIN_CTAS=1\nNCCL_MAX_CTAS=11\nNCCL_BUFFSIZE=2048\nNCCL_SINGLE_RING_THRESHOLD=8\n",
		"/home/u/.nccl.conf": "NCCL_MAX_CTAS=12\nNCCL_BUFFSIZE=4096\n",
		"/job.conf":          "\nNCCL_MAX_CTAS=13\r\nNCCL_SOCKET_IFNAME==eth0\n",
	})
	for _, c := range []struct {
		environ []string
		want    []string
	}{
		{nil, []string{"NCCL_BUFFSIZE set by /etc/nccl.conf:4 to 2048", "NCCL_MAX_CTAS set by /etc/nccl.conf:3 to 11", "NCCL_MIN_CTAS set by /etc/nccl.conf:2 to 1", "NCCL_SINGLE_RING_THRESHOLD set by /etc/nccl.conf:5 to 8"}},
		{[]string{"HOME=/home/u", "NCCL_SINGLE_RING_THRESHOLD=2"}, []string{"NCCL_BUFFSIZE set by /home/u/.nccl.conf:2 to 4096", "NCCL_MAX_CTAS set by /home/u/.nccl.conf:1 to 12", "NCCL_MIN_CTAS set by /etc/nccl.conf:2 to 1", "NCCL_SINGLE_RING_THRESHOLD set by environment to 2"}},
		{[]string{"HOME=/home/u", "NCCL_CONF_FILE=/job.conf", "NCCL_BUFFSIZE="}, []string{"NCCL_CONF_FILE set by environment to /job.conf", "NCCL_MAX_CTAS set by /job.conf:2 to 13", "NCCL_MIN_CTAS set by /etc/nccl.conf:2 to 1", "NCCL_SINGLE_RING_THRESHOLD set by /etc/nccl.conf:5 to 8", "NCCL_SOCKET_IFNAME set by /job.conf:3 to =eth0"}},
	} {
		k, warnings, err := Load(c.environ, read)
		if err != nil || slices.ContainsFunc(warnings, func(w Warning) bool { return w.Level != debug.Info || !strings.Contains(w.Message, " is left out: ") }) {
			t.Errorf("%v: %v, %v", c.environ, warnings, err)
			continue
		}
		var got []string
		for _, s := range k.Settings() {
			got = append(got, s.String())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%v:\n got %s\nwant %s", c.environ, strings.Join(got, "\n     "), strings.Join(c.want, "\n     "))
		}
	}
}

func TestGetenv(t *testing.T) {
	k, _, err := Load([]string{"HOME=/h", "NCCL_HOSTID=", "NCCL_ALGO=ring", "NCCL_ALGO=tree"}, files(map[string]string{
		"/etc/nccl.conf": "NCCL_COMM_ID=a:1\nNCCL_HOSTID=x\n",
	}))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"HOME": "/h", "NCCL_COMM_ID": "a:1", "NCCL_HOSTID": "", "NCCL_ALGO": "ring", "NOTHING": ""} {
		if got := k.Getenv(name); got != want {
			t.Errorf("Getenv(%q) = %q; want %q", name, got, want)
		}
	}
	if k.HostID != "" {
		t.Errorf("HostID is %q: an empty variable hides the file", k.HostID)
	}
}

// TestLines: each line of a file counts by itself, as NCCL reads it.
func TestLines(t *testing.T) {
	long := strings.Repeat("x", confWord)
	for _, c := range []struct{ line, says, unread string }{
		{"no equals sign", `/etc/nccl.conf:2: "no equals sign" is not KEY=VALUE and is left out`, ""},
		{"export NCCL_ALGO=tree", "/etc/nccl.conf:2: NCCL_ALGO is not set: NCCL takes everything before the = for the name; write NCCL_ALGO=tree", "NCCL_ALGO=tree"},
		{"  NCCL_ALGO = tree", "write NCCL_ALGO=tree", "NCCL_ALGO=tree"},
		{"\ufeffNCCL_ALGO=tree", "write NCCL_ALGO=tree", "NCCL_ALGO=tree"},
		{`setenv NCCL_ALGO "tree"`, "NCCL reads no line without =; write NCCL_ALGO=tree", "NCCL_ALGO=tree"},
		{"NCCL_ALGO: tree", "NCCL reads no line without =", "NCCL_ALGO=tree"},
		{"- NCCL_ALGO=tree", "write NCCL_ALGO=tree", "NCCL_ALGO=tree"},
		{"-x UCX_TLS=rc", "write UCX_TLS=rc", "UCX_TLS=rc"},
		{"; NCCL_ALGO=tree", "is not the name of a variable", ""},
		{"// NCCL_ALGO=tree", "is not the name of a variable", ""},
		{"=x", `"" is not the name of a variable`, ""},
		{"a b=x", `"a b" is not the name of a variable`, ""},
		{"NCCL_ALGO\x00=tree", `"NCCL_ALGO" is not KEY=VALUE`, ""},
		{"NCCL_HOSTID=a\x00b", "a zero byte ends the line", ""},
		{"NCCL_HOSTID=" + long + "y", "NCCL reads 1023 bytes of a value", ""},
		{"NCCL_HOSTID=" + strings.Repeat(long, 5), "NCCL reads", ""},
		{`NCCL_TOPO_FILE="/x.xml"`, "the quotes are a part of the value", ""},
		{`UCX_TLS="rc"`, "the quotes are a part of the value", ""},
		{"NCCL_P2P_DISABLE=x # comment", `NCCL_P2P_DISABLE="x # comment" (/etc/nccl.conf:2)`, ""},
		{"NCCL_MAX_CTAS=1", "", ""},
		{" # NCCL_ALGO=tree", "", ""},
		{"\t", "", ""},
	} {
		k, warnings, err := Load(nil, files(map[string]string{systemConf: "NCCL_MAX_NRINGS=7\n" + c.line + "\nNCCL_IB_HCA=mlx5_2"}))
		var said []string
		for _, w := range warnings {
			if w.Level == debug.Warn && w.Name != "NCCL_MAX_NRINGS" {
				said = append(said, w.Message)
			}
		}
		if err != nil || len(said) != min(len(c.says), 1) || c.says != "" && !strings.Contains(said[0], c.says) {
			t.Errorf("%q: %v, %v; want %s", c.line, said, err, c.says)
		}
		if k.MaxChannels == 0 || k.IB.HCA != "mlx5_2" {
			t.Errorf("%q: the other lines are lost", c.line)
		}
		unread := ""
		for _, s := range k.FromFiles() {
			if s.Unread != "" {
				unread = s.Name + "=" + s.Value
			}
		}
		if unread != c.unread {
			t.Errorf("%q means %q; want %q", c.line, unread, c.unread)
		}
	}
}

// TestFromFiles: other libraries' variables and unknown ones are there; what NCCL reads counts
// before what it does not read.
func TestFromFiles(t *testing.T) {
	k, _, err := Load([]string{"HOME=/h", "UCX_TLS=tcp", "NCCL_ALGO="}, files(map[string]string{
		"/h/.nccl.conf":  "NCCL_NEWER=1\nexport NCCL_IB_HCA=a\nexport NCCL_IB_SL=1",
		"/etc/nccl.conf": "FI_PROVIDER=efa\nUCX_TLS=rc\nNCCL_ALGO=tree\nNCCL_IB_HCA=b\nNCCL_NEWER=2",
	}))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range k.FromFiles() {
		got = append(got, s.Name+"="+s.Value)
	}
	if want := "NCCL_NEWER=1 FI_PROVIDER=efa NCCL_IB_HCA=b NCCL_IB_SL=1"; strings.Join(got, " ") != want {
		t.Errorf("got %v; want %s", got, want)
	}
	if k.Getenv("NCCL_IB_SL") != "" || k.IB.ServiceLvl != Auto {
		t.Error("a line that NCCL does not read counts")
	}
}

// TestLongValues: whatever is wrong with a long value, what is said of it is
// short.
func TestLongValues(t *testing.T) {
	const size, most = 100_000, 1000
	check := func(what string, warnings []Warning, err error) {
		t.Helper()
		if err != nil && len(err.Error()) > most {
			t.Errorf("%s: an error of %d bytes: %.300s", what, len(err.Error()), err)
		}
		for _, w := range warnings {
			if len(w.String()) > most {
				t.Errorf("%s: a warning of %d bytes: %.300s", what, len(w.String()), w)
			}
		}
	}
	for _, unit := range []string{"x", "ring,", "ring", "^", "1", "0 ", "a:b,", "eth0,", "nope:ring;", "\xff", "€", "\"", "[", "/dir", "ALL,"} {
		value := strings.Repeat(unit, size/len(unit))
		for _, row := range table() {
			k, warnings, err := Load([]string{row.Name + "=" + value}, noFiles)
			check(row.Name+" of "+unit, warnings, err)
			if k == nil {
				continue
			}
			for _, s := range k.Settings() {
				if len(s.String()) > most {
					t.Errorf("%s: a line of %d bytes: %.300s", row.Name, len(s.String()), s)
				}
			}
		}
		_, warnings, err := Load([]string{"NCCL_" + value + "=1", "HOME=" + value}, nil)
		check("a name of "+unit, warnings, err)
		for name, text := range map[string]string{
			"key": value + "=1", "our key": "NCCL_" + value + "=1", "no key": value, "quotes": "NCCL_HOSTID='" + value + "'", "twice": "NCCL_ALGO=ring\nNCCL_ALGO=" + value,
			"zero": "NCCL_HOSTID=\x00" + value, "value": "NCCL_ALGO=" + value,
		} {
			_, warnings, err := Load([]string{"NCCL_CONF_FILE=/" + value}, func(string) ([]byte, error) { return []byte(text), nil })
			check("a file with a long "+name+" of "+unit, warnings, err)
		}
		_, warnings, err = Load([]string{"NCCL_CONF_FILE=/" + value}, nil)
		check("a file of "+unit, warnings, err)
	}
}

func TestFilesThatCannotBeRead(t *testing.T) {
	denied := func(name string) ([]byte, error) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	for _, c := range []struct {
		environ []string
		read    func(string) ([]byte, error)
		want    string
	}{
		{nil, denied, systemConf + ": permission denied; it is left out"},
		{[]string{"NCCL_CONF_FILE=/no/such"}, noFiles, `NCCL_CONF_FILE="/no/such": file does not exist; it is left out`},
	} {
		k, warnings, err := Load(append(c.environ, "NCCL_ALGO=ring"), c.read)
		if err != nil || len(warnings) != 1 || warnings[0].Level != debug.Warn || !strings.Contains(warnings[0].Message, c.want) || k.Algo.String() != "ring" {
			t.Errorf("%v: %v, %v; want %s", c.environ, warnings, err, c.want)
		}
	}
	if k, _, err := Load([]string{"HOME=/h"}, noFiles); err != nil || diff(Default(), k) != "" {
		t.Errorf("without files: %v", err)
	}
	if _, err := readFile("/dev/zero"); err == nil || !strings.Contains(err.Error(), "no configuration") {
		t.Errorf("/dev/zero: %v; want an error", err)
	}
}

func TestFileSystem(t *testing.T) {
	home := t.TempDir()
	if err := os.WriteFile(filepath.Join(home, homeConf), []byte("NCCL_HOSTID=here\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	k, _, err := Load([]string{"HOME=" + home}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if k.HostID != "here" {
		t.Errorf("HostID %q; want here", k.HostID)
	}
}

func TestWarnings(t *testing.T) {
	read := files(map[string]string{"/etc/nccl.conf": "NCCL_ALGO=ring\nNCCL_ALGO=tree\nNVSHMEM_DEBUG=x\nNCLL_DEBUG=INFO\nNCCL_CONF_FILE=/x\n"})
	_, warnings, err := Load([]string{
		"NCCL_SOKET_IFNAME=eth0", "NCCL_TESTS_DEVICE=1", "NCCL_VERSION=2.30", "ASSAY_TIMEOT=3", "ASSAY_JOB_SECRET=hush",
		"NCCL_MIN_NRINGS=2", "NCCL_MIN_CTAS=4", "NCCL_LAUNCH_MODE=GROUP", "OTHER=1", "NCCL_UNKNOWN=",
	}, read)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, w := range warnings {
		got = append(got, w.Level.String()+" "+w.String())
	}
	want := []string{
		"WARN /etc/nccl.conf:2: NCCL_ALGO is set at /etc/nccl.conf:1 already, and the first counts",
		"INFO /etc/nccl.conf:3: NVSHMEM_DEBUG is left alone: it is not a variable of NCCL",
		"WARN /etc/nccl.conf:4: NCLL_DEBUG is left alone: it is not a variable of NCCL; did you mean NCCL_DEBUG?",
		"WARN /etc/nccl.conf:5: NCCL_CONF_FILE counts in the environment only",
		"WARN ASSAY_TIMEOT (environment) is unknown and does nothing; did you mean ASSAY_TIMEOUT?",
		"INFO NCCL_LAUNCH_MODE=GROUP (environment) has no effect here: how CUDA kernels are launched: those of a group are launched together in any case",
		"WARN NCCL_SOKET_IFNAME (environment) is unknown and does nothing; did you mean NCCL_SOCKET_IFNAME?",
		"WARN NCCL_MIN_NRINGS=2 gives way to NCCL_MIN_CTAS=4",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if warnings[0].Level != debug.Warn || warnings[0].Name != "NCCL_ALGO" {
		t.Errorf("%+v", warnings[0])
	}
}

func TestNews(t *testing.T) {
	unique := t.TempDir() // what is said stays said, for -count=2 as well
	a, b := Warning{Message: unique + " a"}, Warning{Message: unique + " b"}
	for _, c := range []struct{ in, want []Warning }{
		{[]Warning{a}, []Warning{a}},
		{[]Warning{a, b, b}, []Warning{b}},
		{[]Warning{a, b}, nil},
		{nil, nil},
	} {
		if got := News(c.in); !slices.Equal(got, c.want) {
			t.Errorf("News(%v) = %v; want %v", c.in, got, c.want)
		}
	}
}

// TestTogether: values that are right one by one and not together, and the
// newest name of a limit.
func TestTogether(t *testing.T) {
	for set, want := range map[string]struct {
		says           string
		min, max, each int
	}{
		"NCCL_MIN_CTAS=4 NCCL_MAX_NRINGS=2":               {`NCCL_MIN_CTAS="4" (environment): it is more than NCCL_MAX_NRINGS=2, which is taken`, 2, 2, Auto},
		"NCCL_SOCKET_NTHREADS=16 NCCL_NSOCKS_PERTHREAD=8": {"more than 64 sockets, and 4 is taken", 0, 0, 4},
	} {
		k, warnings, err := Load(strings.Fields(set), noFiles)
		if err != nil || len(warnings) != 1 || !strings.Contains(warnings[0].Message, want.says) {
			t.Errorf("%s: %v, %v; want %s", set, warnings, err, want.says)
		}
		if k.MinChannels != want.min || k.MaxChannels != want.max || k.SocketsPerThread != want.each {
			t.Errorf("%s: channels %d to %d, %d sockets", set, k.MinChannels, k.MaxChannels, k.SocketsPerThread)
		}
	}
	k, _, err := Load(strings.Fields("NCCL_MAX_CTAS=3 NCCL_MAX_NCHANNELS=2 NCCL_MAX_NRINGS=1 NCCL_MIN_NRINGS=1 NCCL_MIN_NCHANNELS=2"), noFiles)
	if err != nil {
		t.Fatal(err)
	}
	if k.MaxChannels != 3 || k.MinChannels != 2 {
		t.Errorf("channels %d to %d; want 2 to 3", k.MinChannels, k.MaxChannels)
	}
}

// FuzzLoad: any environment and file gives possible knobs; what was read reads back the same; each
// line of the file is set, or named in a warning.
func FuzzLoad(f *testing.F) {
	for _, c := range good {
		f.Add(c.set, "")
		f.Add("", c.set)
	}
	for _, c := range made {
		f.Add(c.set, "export "+c.set)
	}
	for name, values := range bad {
		f.Add(name+"="+values[0], "NCCL_NOPE=1")
	}
	f.Add("NCCL_CONF_FILE=x\nHOME=/h", "# c\n\n =\n")
	f.Add("NCCL_ALGO=ring", "NCCL_ALGO=tree\nNCCL_PROTO=LL\nNCCL_PROTO=Simple\nexport NCCL_PROTO=LL\r\nUCX_TLS\x00=rc\nx")
	f.Fuzz(func(t *testing.T, environ, conf string) {
		read := func(name string) ([]byte, error) {
			if name == systemConf {
				return []byte(conf), nil
			}
			return nil, fs.ErrNotExist
		}
		k, warnings, err := Load(strings.Split(environ, "\n"), read)
		if k.MinChannels > 0 && k.MaxChannels > 0 && k.MinChannels > k.MaxChannels || k.Timeout < 0 || k.HangAfter < 0 || k.BuffSize < minBuffSize || k.Threads < 0 {
			t.Fatalf("impossible knobs %+v", k)
		}
		n := 0
		for line := range strings.Lines(conf) {
			n++
			if text := strings.TrimSpace(line); text == "" || text[0] == '#' {
				continue
			}
			where := fmt.Sprintf("%s:%d", systemConf, n)
			set := 0
			for _, s := range k.FromFiles() {
				if s.From == where && s.Unread == "" {
					set++
				}
			}
			left := 0
			for _, w := range warnings {
				if rest, ok := strings.CutPrefix(w.Message, where+": "); ok && (strings.Contains(rest, "left out") || strings.Contains(rest, "is not set") || strings.Contains(rest, "the first counts") || strings.Contains(rest, "environment only")) {
					left++
				}
			}
			if set+left != 1 {
				t.Fatalf("line %d, %q: set %d times and left out %d times: %v", n, line, set, left, warnings)
			}
		}
		if err != nil {
			return
		}
		var again []string
		for _, s := range k.Settings() {
			again = append(again, s.Name+"="+s.Value)
		}
		k2, _, err := Load(again, noFilesBut("/h"))
		if err != nil {
			t.Fatalf("what was read does not read back: %v", err)
		}
		if d := diff(k, k2); d != "" {
			t.Fatal(d)
		}
	})
}

// noFilesBut has empty configuration files: NCCL_CONF_FILE may name any.
func noFilesBut(string) func(string) ([]byte, error) {
	return func(string) ([]byte, error) { return nil, nil }
}

// TestGDRLevel: the newer name counts, wherever it stands.
func TestGDRLevel(t *testing.T) {
	for _, environ := range []string{"NCCL_NET_GDR_LEVEL=PIX NCCL_IB_GDR_LEVEL=SYS", "NCCL_IB_GDR_LEVEL=SYS NCCL_NET_GDR_LEVEL=PIX"} {
		k, _, err := Load(strings.Fields(environ), noFiles)
		if err != nil {
			t.Fatal(err)
		}
		if k.IB.GDRLevel != PIX {
			t.Errorf("%s: level %v; want PIX", environ, k.IB.GDRLevel)
		}
	}
}
