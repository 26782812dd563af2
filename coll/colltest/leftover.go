package colltest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// settle is how long the leftovers of a test may take to disappear.
const settle = 5 * time.Second

// Watch makes the test fail if it leaves something behind: goroutines, open files and sockets,
// mapped shared memory, child processes, or files in /dev/shm that no process uses. It must be
// called first, and not in tests that run in parallel with others.
func Watch(t testing.TB) {
	t.Helper()
	wakePoller(t)
	before := takeState()
	t.Cleanup(func() {
		if t.Failed() {
			return // the failure itself matters more
		}
		deadline := time.Now().Add(settle)
		for {
			left := takeState().minus(before)
			if len(left) == 0 {
				return
			}
			if time.Now().After(deadline) {
				t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	})
}

// wakePoller makes the runtime open its own epoll and event descriptors now, so that they do not
// count as the test's.
func wakePoller(t testing.TB) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.SetReadDeadline(time.Now())
	r.Close()
	w.Close()
}

// A state is what exists, each thing under a unique key.
type state map[string]string

func takeState() state {
	s := state{}
	goroutines(s)
	descriptors(s)
	mappings(s)
	children(s)
	for name := range sharedMemory() {
		s["/dev/shm/"+name] = "unused file /dev/shm/" + name
	}
	return s
}

// minus lists what did not exist before. Files in /dev/shm count only if no process uses them:
// other tests have some, too.
func (s state) minus(before state) []string {
	var out []string
	for key, text := range s {
		if _, ok := before[key]; ok {
			continue
		}
		if strings.HasPrefix(key, "/dev/shm/") && inUse(key) {
			continue
		}
		out = append(out, text)
	}
	slices.Sort(out)
	return out
}

// goroutines lists the goroutines that are not the testing package's.
func goroutines(s state) {
	buf := make([]byte, 1<<20)
	for {
		n := runtime.Stack(buf, true)
		if n < len(buf) {
			buf = buf[:n]
			break
		}
		buf = make([]byte, 2*len(buf))
	}
	for g := range bytes.SplitSeq(buf, []byte("\n\n")) {
		text := string(g)
		header, _, _ := strings.Cut(text, " [") // goroutine 17
		if strings.Contains(text, "testing.(*M).") || strings.Contains(text, "testing.tRunner") || strings.Contains(text, "os/signal.") || strings.Contains(text, "runtime.ensureSigM") {
			continue
		}
		s[header] = text
	}
}

// flightMemory is the memory of package flight, which a process keeps from its first communicator on.
const flightMemory = "/memfd:assay-flight"

func descriptors(s state) {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return
	}
	for _, e := range entries {
		// The descriptor of the directory itself is closed by now: Readlink fails.
		if target, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && !strings.Contains(target, flightMemory) {
			key := "descriptor " + e.Name() + " is " + target
			s[key] = key
		}
	}
}

// mappings lists mapped shared memory.
func mappings(s state) {
	data, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return
	}
	for line := range strings.Lines(string(data)) {
		if (strings.Contains(line, "/memfd:") || strings.Contains(line, "/dev/shm/")) && !strings.Contains(line, flightMemory) {
			s["mapping "+line] = "mapping " + strings.TrimSpace(line)
		}
	}
}

func children(s state) {
	files, _ := filepath.Glob("/proc/self/task/*/children")
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		for pid := range strings.FieldsSeq(string(data)) {
			name, _ := os.ReadFile("/proc/" + pid + "/comm")
			s["child "+pid] = fmt.Sprintf("child process %s (%s)", pid, bytes.TrimSpace(name))
		}
	}
}

// sharedMemory lists the files in /dev/shm.
func sharedMemory() map[string]bool {
	out := map[string]bool{}
	entries, _ := os.ReadDir("/dev/shm")
	for _, e := range entries {
		out[e.Name()] = true
	}
	return out
}

// orphans lists the files in /dev/shm that were not there before and that no
// process uses.
func orphans(before map[string]bool) []string {
	var out []string
	for name := range sharedMemory() {
		if !before[name] && !inUse("/dev/shm/"+name) {
			if _, err := os.Stat("/dev/shm/" + name); err == nil { // its user has not removed it meanwhile
				out = append(out, name)
			}
		}
	}
	slices.Sort(out)
	return out
}

// inUse reports whether any process has a file open or mapped.
func inUse(path string) bool {
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range procs {
		if maps, err := os.ReadFile(p + "/maps"); err == nil && bytes.Contains(maps, []byte(" "+path+"\n")) {
			return true
		}
		fds, _ := os.ReadDir(p + "/fd")
		for _, fd := range fds {
			if target, err := os.Readlink(p + "/fd/" + fd.Name()); err == nil && target == path {
				return true
			}
		}
	}
	return false
}
