package confine

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "confine" {
		if err := Main(os.Args[2:], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(3)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// sh returns a shell's script as a program.
func sh(script string) Program {
	return Program{File: "/bin/sh", Args: []string{"sh", "-c", script}, Env: []string{"PATH=/bin:/usr/bin", "HOME=/root", "A=b"}}
}

// run runs a script within limits.
func run(t *testing.T, script string, l Limits) Outcome {
	t.Helper()
	p := sh(script)
	p.Limits = l
	return Local{}.Run(t.Context(), p)
}

func TestOutcome(t *testing.T) {
	for script, want := range map[string]struct {
		o    Outcome
		text string
	}{
		"echo $A; echo b >&2":  {Outcome{Output: []byte("b\nb\n")}, ""},
		"exit 7":               {Outcome{Status: 7}, "x ended with exit status 7"},
		"kill -9 $$":           {Outcome{Status: -1, Signal: 9}, "x was ended by signal 9 (killed)"},
		"exec /no/such/binary": {Outcome{Status: 127}, "x ended with exit status 127"},
	} {
		o := run(t, script, Limits{})
		if o.Status != want.o.Status || o.Signal != want.o.Signal || o.Failed != "" || want.o.Output != nil && string(o.Output) != string(want.o.Output) {
			t.Errorf("%s: %+v; want %+v", script, o, want.o)
		}
		if err := o.Describe("x"); fmt.Sprint(err) != want.text && (err != nil || want.text != "") {
			t.Errorf("%s: Describe = %v; want %q", script, err, want.text)
		}
	}
	if o := (Local{}).Run(t.Context(), Program{File: "/no/such/program", Args: []string{"x"}}); !strings.Contains(o.Failed, "no such file") {
		t.Errorf("a program that does not exist: %+v", o)
	}
	if o := (Local{Harness: "/bin/false"}).Run(t.Context(), sh("true")); !strings.Contains(o.Failed, "the supervisor: exit status 1") {
		t.Errorf("a supervisor that fails: %+v", o)
	}
	if o := (Local{Harness: "/bin/true"}).Run(t.Context(), sh("true")); !strings.Contains(o.Failed, "the supervisor's answer: EOF") {
		t.Errorf("a supervisor that says nothing: %+v", o)
	}
}

func TestLimits(t *testing.T) {
	for _, tt := range []struct {
		name, script string
		limits       Limits
		stopped      string
	}{
		{"time", "trap '' TERM; while :; do sleep 1; done", Limits{Seconds: 0.2}, "it ran longer than 200ms"},
		{"memory", "a=x; while :; do a=$a$a; done", Limits{Memory: 64 << 20, Seconds: 60}, "it used more than 64 MiB of memory"},
		{"processes", "i=0; while [ $i -lt 40 ]; do sleep 100 & i=$((i+1)); done; wait", Limits{Processes: 20, Seconds: 60}, "it started more than 20 processes"},
	} {
		o := run(t, tt.script, tt.limits)
		// As root, processes are limited by the kernel, too, and the shell ends when it cannot fork.
		if o.Stopped != tt.stopped && (tt.name != "processes" || o.Status == 0) {
			t.Errorf("%s: %+v; want %q", tt.name, o, tt.stopped)
		}
	}
	if o := run(t, "yes | head -c 10000000", Limits{Output: 1000}); len(o.Output) != 1000 || o.Status != 0 {
		t.Errorf("10 MB of output: status %d, %d bytes are kept; want 1000", o.Status, len(o.Output))
	}
}

// TestNothingStays: what a program starts ends with it, however it hides.
func TestNothingStays(t *testing.T) {
	mark := fmt.Sprintf("10%d.%d", os.Getpid(), time.Now().UnixNano()%1e6) // seconds that nothing else sleeps
	for name, script := range map[string]string{
		"child":      "sleep %s & exit 0",
		"daemon":     "(setsid sh -c 'sleep %s & sleep %[1]s' </dev/null >/dev/null 2>&1 &) ; exit 0",
		"no output":  "sleep %s >/dev/null 2>&1 & exit 3",
		"ignores":    "sh -c \"trap '' TERM HUP INT; sleep %s\" & kill -9 $$",
		"has output": "setsid sleep %s & echo done",
	} {
		run(t, fmt.Sprintf(strings.ReplaceAll(script, "%s", "%[1]s"), mark), Limits{Seconds: 30})
		if left := sleeping(t, mark); len(left) > 0 {
			t.Errorf("%s: %v are left", name, left)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan Outcome)
	go func() { done <- Local{}.Run(ctx, sh("trap '' TERM; setsid sleep "+mark+" & sleep "+mark)) }()
	for len(sleeping(t, mark)) < 2 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	if o := <-done; o.Stopped != "nobody waits for it any more" {
		t.Errorf("cancelled: %+v", o)
	}
	if left := sleeping(t, mark); len(left) > 0 {
		t.Errorf("cancelled: %v are left", left)
	}
}

// sleeping returns the processes that sleep for that long.
func sleeping(t *testing.T, seconds string) (pids []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		b, _ := os.ReadFile(file)
		if string(b) == "sleep\x00"+seconds+"\x00" {
			pids = append(pids, strings.Split(file, "/")[2])
		}
	}
	return pids
}

// TestPrivileges: root's programs run as a user that cannot reach this process.
func TestPrivileges(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can run programs as other users")
	}
	secret := filepath.Join(t.TempDir(), "certificate.json")
	if err := os.WriteFile(secret, []byte("verdict"), 0o644); err != nil {
		t.Fatal(err)
	}
	own := "/tmp/" + rand.Text()
	p := sh(fmt.Sprintf(`id -u; grep NoNewPrivs /proc/self/status; echo $HOME; kill -0 %d; kill -0 $PPID; cat /proc/$PPID/environ; echo x >%s; cat %s`, os.Getpid(), secret, own))
	p.Strict = true
	p.Files = []File{{Path: own, Data: []byte("its own file")}}
	o := Local{}.Run(t.Context(), p)
	lines := strings.Split(string(o.Output), "\n")
	if id, err := strconv.Atoi(lines[0]); err != nil || id < firstUser || id >= firstUser+users {
		t.Errorf("the program runs as %q", lines[0])
	}
	out := string(o.Output)
	for _, want := range []string{"NoNewPrivs:\t1", "\n/tmp\n", "its own file"} {
		if !strings.Contains(out, want) {
			t.Errorf("the output lacks %q:\n%s", want, out)
		}
	}
	if n := strings.Count(strings.ToLower(out), "permitted"); n < 2 {
		t.Errorf("%d of 2 signals were refused:\n%s", n, out)
	}
	if n := strings.Count(strings.ToLower(out), "permission denied"); n < 2 {
		t.Errorf("%d of 2 files were refused:\n%s", n, out)
	}
	if b, _ := os.ReadFile(secret); string(b) != "verdict" {
		t.Errorf("the file is now %q", b)
	}
	if _, err := os.Stat(p.Files[0].Path); err == nil {
		t.Error("the program's file is left")
	}
}

func TestStrictWantsPrivileges(t *testing.T) {
	p := sh("true")
	p.Strict = true
	if os.Geteuid() != 0 {
		if o := (Local{}).Run(t.Context(), p); !strings.Contains(o.Failed, "only root") {
			t.Errorf("without root: %+v", o)
		}
		return
	}
	for text, want := range map[string]bool{
		"0 0 4294967295\n": true, "0 1000 1\n1 100000 65536\n": true, "0 1000 1\n": false, "": false, "junk": false,
	} {
		if got := maps(text, firstUser); got != want {
			t.Errorf("maps(%q) = %v", text, got)
		}
	}
}

// TestFilesMode runs a program as a gate's container does: the request and the outcome are files.
func TestFilesMode(t *testing.T) {
	dir := t.TempDir()
	in, out := filepath.Join(dir, "program.json"), filepath.Join(dir, "outcome.json")
	b, err := json.Marshal(sh("echo hello"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(in, b, 0o400); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	start := func() error {
		p, err := os.StartProcess(self, []string{self, "confine", in, out}, &os.ProcAttr{Files: []*os.File{nil, nil, nil}})
		if err != nil {
			t.Fatal(err)
		}
		st, err := p.Wait()
		if err == nil && st.ExitCode() != 0 {
			err = fmt.Errorf("exit status %d", st.ExitCode())
		}
		return err
	}
	if err := start(); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if o := ReadOutcome(f, Limits{}); string(o.Output) != "hello\n" {
		t.Errorf("outcome %+v", o)
	}
	if start() == nil {
		t.Error("an outcome that exists is replaced")
	}
}

// TestServe connects both ends.
func TestServe(t *testing.T) {
	hin, din := io.Pipe()
	dout, hout := io.Pipe()
	type request struct{ Name string }
	type answer struct{ Outputs []string }
	go func() {
		var req request
		m, err := Connect(hin, hout, &req)
		if err != nil {
			t.Error(err)
			return
		}
		got := make(chan string)
		for i := range 8 {
			go func() {
				o := m.Run(t.Context(), Program{File: strconv.Itoa(i)})
				got <- req.Name + string(o.Output)
			}()
		}
		var a answer
		for range 8 {
			a.Outputs = append(a.Outputs, <-got)
		}
		if err := m.Finish(a, nil); err != nil {
			t.Error(err)
		}
	}()
	raw, err := Serve(t.Context(), dout, din, request{"image "}, func(_ context.Context, p Program) Outcome {
		if !p.Strict {
			t.Errorf("%s is run with the privileges of the supervisor if they cannot be dropped", p.File)
		}
		return Outcome{Output: []byte(p.File)}
	})
	if err != nil {
		t.Fatal(err)
	}
	var a answer
	if err := json.Unmarshal(raw, &a); err != nil || len(a.Outputs) != 8 {
		t.Errorf("answer %s, %v", raw, err)
	}
	for i := range 8 {
		if !strings.Contains(string(raw), fmt.Sprintf("image %d", i)) {
			t.Errorf("%s lacks program %d", raw, i)
		}
	}
}

// TestServeRefuses: what is no message ends the gate without a result.
func TestServeRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"": "ended without a result", "{}": "without content", `{"error":"no"}`: "no", "\x00": "invalid character", `{"result"`: "EOF", `[]`: "cannot unmarshal",
	} {
		if _, err := Serve(t.Context(), strings.NewReader(text), io.Discard, nil, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %q", text, err, want)
		}
	}
}

func TestConnectionEnds(t *testing.T) {
	r, w := io.Pipe()
	go func() { _, _ = io.WriteString(w, "{}\n") }()
	var req struct{}
	m, err := Connect(r, io.Discard, &req)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan Outcome)
	go func() { done <- m.Run(t.Context(), Program{}) }()
	time.Sleep(time.Millisecond)
	w.Close()
	if o := <-done; !strings.Contains(o.Failed, "the connection to what runs programs ended") {
		t.Errorf("outcome %+v", o)
	}
}
