package clustertest

import (
	"context"
	_ "embed"
	"fmt"
	"net/netip"
	"os/exec"
	"syscall"
	"time"
)

//go:embed machine.sh
var machineScript string

// A Host is a machine of a cluster. Between Kill and Boot it is off.
type Host struct {
	Name string
	Addr netip.Addr
	Link Link // the current link; SetLink changes it

	c *Cluster
	i int
	*fakeMachine
}

// Boot starts the host, with its previous link.
func (h *Host) Boot() {
	c := h.c
	c.t.Helper()
	h.Kill()
	bed := c.t.TempDir()
	environ := []string{
		"BED=" + bed, "SHARED=" + c.Shared, "SEED=" + c.seed, "IMAGE=" + c.image, "FILES=" + c.files,
		"NAME=" + h.Name, fmt.Sprintf("ID=00000000-0000-4000-8000-%012d", h.i+1),
	}
	init := []string{"sleep", "infinity"}
	if c.o.SSH != nil {
		// As the MPI Operator does.
		init = []string{"/usr/sbin/sshd", "-De"}
	}
	m, err := spawn(newAll, environ, "bash", append([]string{"-c", machineScript, "machine"}, init...)...)
	if err != nil {
		c.t.Skipf("no namespaces here: %v", err)
	}
	h.fakeMachine = m
	c.t.Cleanup(m.kill)
	if err := m.up(); err != nil {
		c.t.Fatalf("%s: %v", h.Name, err)
	}
	tap, err := newTap(m.pid())
	if err != nil {
		c.t.Skipf("no TAP devices here: %v", err)
	}
	c.wires.plug(h.i, tap)
	m.mustIP(c.t, fmt.Sprintf("link set lo up\nlink set eth0 address %s\naddress add %s/24 dev eth0\nlink set eth0 up\n", mac(h.i), h.Addr))
	h.SetLink(h.Link)
	if c.o.SSH != nil {
		h.awaitSSH()
	}
}

// awaitSSH waits for the server, which creates its keys first.
func (h *Host) awaitSSH() {
	h.c.t.Helper()
	for end := time.Now().Add(5 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		out, err := h.Command(h.c.t.Context(), "bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/22").CombinedOutput()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			log, _ := h.Command(h.c.t.Context(), "cat", "/run/init.log").CombinedOutput()
			h.c.t.Fatalf("%s: no sshd after 5 minutes: %s\n%s", h.Name, out, log)
		}
	}
}

// Command returns a command that runs on the host, without this process's environment. It is killed
// when ctx ends. It ends with status 137 when the host is killed.
func (h *Host) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	// nsenter would fork, and stop itself when its child is stopped; a shell waits.
	shell := []string{"-c", `"$@"; exit`, name, name}
	one := h.in([]string{"--mount", "--uts", "--ipc", "--net", "--pid", "--no-fork"}, "sh", append(shell, args...)...)
	cmd := exec.CommandContext(ctx, one.Args[0], one.Args[1:]...)
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8"}
	// A signal must reach the shell and its child.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	return cmd
}

// Kill stops the host immediately, with everything that runs on it.
func (h *Host) Kill() {
	if h.fakeMachine != nil {
		h.kill()
		h.fakeMachine = nil
		h.c.wires.unplug(h.i)
	}
}

// Freeze stops all processes on the host, while its kernel continues to receive packets.
func (h *Host) Freeze() error { return h.freeze() }
