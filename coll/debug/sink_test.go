package debug

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestExpand(t *testing.T) {
	for in, want := range map[string]string{
		"nccl.log":    "nccl.log",
		"nccl.%h.%p":  "nccl.node.42",
		"%p%p%%":      "4242%",
		"100%":        "100%",
		"%x.%%h":      "%x.%h",
		"":            "",
		"/tmp/a %h/b": "/tmp/a node/b",
	} {
		if got := expand(in, "node", 42); got != want {
			t.Errorf("expand(%q) = %q; want %q", in, got, want)
		}
	}
}

// TestFile: created and truncated once in a process, appended to afterwards.
func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nccl.log")
	if err := os.WriteFile(path, []byte("of an earlier run\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	o := Options{Level: Info, Subsystems: All, File: path, Host: "h", PID: 1}
	for _, text := range []string{"first", "second"} {
		a, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		b, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		a.Infof(Init, "%s", text)
		a.Close()
		a.Close() // must not close b's file
		b.Infof(Init, "%s again", text)
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		b.Infof(Init, "dropped")
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const p = "h:1:1 [0] NCCL INFO "
	if want := p + "first\n" + p + "first again\n" + p + "second\n" + p + "second again\n"; string(got) != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if len(files.open) != 0 {
		t.Errorf("%d files are open", len(files.open))
	}
}

func TestFileOnlyAboveVersion(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nccl.log")
	for level, want := range map[Level]bool{None: false, Version: false, Warn: true} {
		os.Remove(path)
		l, err := Open(Options{Level: level, File: path})
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("NCCL_DEBUG=%v: the file is there: %v; want %v", level, err == nil, want)
		}
		delete(files.created, path)
	}
}

func TestFileThatCannotBe(t *testing.T) {
	_, err := Open(Options{Level: Info, File: filepath.Join(t.TempDir(), "missing", "log")})
	if err == nil || !strings.Contains(err.Error(), "NCCL_DEBUG_FILE") || !strings.Contains(err.Error(), "missing/log") {
		t.Errorf("error %v; want one that names the variable and the file", err)
	}
}

// TestStandardStreams: they are not opened by name, which would truncate what
// they are redirected to.
func TestStandardStreams(t *testing.T) {
	var b strings.Builder
	l, err := Open(Options{Level: Warn, File: "/dev/stderr", Host: "h", PID: 1, Stderr: &b})
	if err != nil {
		t.Fatal(err)
	}
	l.Warnf("x")
	if want := "h:1:1 [0] NCCL WARN x\n"; b.String() != want {
		t.Errorf("got %q; want %q", b.String(), want)
	}
	if l, err = Open(Options{Level: Warn, File: "/dev/stdout"}); err != nil || l.out.w != os.Stdout {
		t.Errorf("/dev/stdout: %v, %v", l, err)
	}
	if len(files.open) != 0 {
		t.Errorf("%d files are open", len(files.open))
	}
}
