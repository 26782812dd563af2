package clustertest

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Namespaces that a process gets for itself.
const (
	newNet = syscall.CLONE_NEWNET
	newAll = newNet | syscall.CLONE_NEWNS | syscall.CLONE_NEWUTS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC
)

// A fakeMachine is a set of namespaces, represented by its first process.
type fakeMachine struct {
	cmd    *exec.Cmd
	stdout io.Reader
	stderr *bytes.Buffer
	once   sync.Once
}

// spawn starts a machine. It dies with this process.
func spawn(namespaces uintptr, environ []string, name string, args ...string) (*fakeMachine, error) {
	m := &fakeMachine{cmd: exec.Command(name, args...), stderr: new(bytes.Buffer)}
	m.cmd.Env = append(environ, "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces, Pdeathsig: syscall.SIGKILL, Setpgid: true}
	m.cmd.Stderr, m.cmd.WaitDelay = m.stderr, time.Second
	var err error
	if m.stdout, err = m.cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	// Pdeathsig is sent when the forking thread exits, so that thread must be one that stays.
	done := make(chan error)
	forker() <- func() { done <- m.cmd.Start() }
	if err := <-done; err != nil {
		return nil, err
	}
	return m, nil
}

var forker = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
})

func (m *fakeMachine) pid() int { return m.cmd.Process.Pid }

// up waits for the line "up".
func (m *fakeMachine) up() error {
	line, err := bufio.NewReader(m.stdout).ReadString('\n')
	if line != "up\n" {
		m.kill()
		return fmt.Errorf("it did not come up: %w: %q %s", err, line, m.stderr)
	}
	return nil
}

// kill kills all processes of the machine.
func (m *fakeMachine) kill() {
	m.once.Do(func() {
		_ = m.cmd.Process.Kill()
		_ = m.cmd.Wait()
	})
}

// in returns a command in the machine's namespaces that the options of nsenter select.
func (m *fakeMachine) in(which []string, name string, args ...string) *exec.Cmd {
	enter := append([]string{"--target", strconv.Itoa(m.pid())}, which...)
	return exec.Command("nsenter", append(append(enter, "--", name), args...)...)
}

// tool passes text to a program that runs on the machine's network.
func (m *fakeMachine) tool(text, name string, args ...string) error {
	cmd := m.in([]string{"--net"}, name, args...)
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s\n%s", name, err, out, text)
	}
	return nil
}

func (m *fakeMachine) ip(batch string) error { return m.tool(batch, "ip", "-batch", "-") }

func (m *fakeMachine) mustIP(t testing.TB, batch string) {
	t.Helper()
	if err := m.ip(batch); err != nil {
		t.Fatal(err)
	}
}

// freeze stops all processes of the machine, as if its kernel or hypervisor hung, except that its
// kernel continues to answer packets.
func (m *fakeMachine) freeze() error {
	space, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid_for_children", m.pid()))
	if err != nil {
		return err
	}
	// Repeat until there is no new process: one may have forked before it was stopped.
	stopped := map[int]bool{}
	for more := true; more; {
		more = false
		entries, err := os.ReadDir("/proc")
		if err != nil {
			return err
		}
		for _, e := range entries {
			pid, err := strconv.Atoi(e.Name())
			if err != nil || stopped[pid] {
				continue
			}
			if s, err := os.Readlink("/proc/" + e.Name() + "/ns/pid"); err != nil || s != space {
				continue
			}
			if syscall.Kill(pid, syscall.SIGSTOP) == nil {
				stopped[pid], more = true, true
			}
		}
	}
	return nil
}
