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

// A Host is one of a cluster's machines. Between Kill and Boot it is off.
type Host struct {
	Name string
	Addr netip.Addr
	Link Link // as it is; SetLink changes it

	c *Cluster
	i int
	*machine
}

// Boot starts the host, with the link that it had.
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
	if c.o.SSH {
		// As the MPI Operator starts it.
		init = []string{"/usr/sbin/sshd", "-De"}
	}
	m, err := spawn(newAll, environ, "bash", append([]string{"-c", machineScript, "machine"}, init...)...)
	if err != nil {
		c.t.Skipf("no namespaces here: %v", err)
	}
	h.machine = m
	c.t.Cleanup(m.kill)
	if err := m.up(); err != nil {
		c.t.Fatalf("%s: %v", h.Name, err)
	}
	// One packet at a time, not dozens as one: so they are lost on a wire, too.
	c.hub.mustIP(c.t, fmt.Sprintf("link add name %s gso_max_segs 1 type veth peer name eth0 address 02:00:00:00:00:%02x gso_max_segs 1 netns %d\nlink set %[1]s master bridge0\nlink set %[1]s up\n",
		h.port(), h.i+1, m.pid()))
	m.mustIP(c.t, fmt.Sprintf("link set lo up\naddress add %s/24 dev eth0\nlink set eth0 up\n", h.Addr))
	h.SetLink(h.Link)
	if c.o.SSH {
		h.awaitSSH()
	}
}

// port is the switch's end of the host's link.
func (h *Host) port() string { return fmt.Sprintf("port%d", h.i+1) }

// awaitSSH waits for the server, which makes its keys first.
func (h *Host) awaitSSH() {
	h.c.t.Helper()
	for end := time.Now().Add(5 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		out, err := h.Command(h.c.t.Context(), "bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/22").CombinedOutput()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			log, _ := h.Command(h.c.t.Context(), "cat", "/run/init.log").CombinedOutput()
			h.c.t.Fatalf("%s: no sshd after a minute: %s\n%s", h.Name, out, log)
		}
	}
}

// Command is a command that runs on the host, with nothing of this process's
// environment. When ctx ends it is killed. It ends when the host is killed, with
// status 137.
func (h *Host) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	// nsenter would fork, and stop itself when the child is stopped; a shell waits.
	shell := []string{"-c", `"$@"; exit`, name, name}
	one := h.in([]string{"--mount", "--uts", "--ipc", "--net", "--pid", "--no-fork"}, "sh", append(shell, args...)...)
	cmd := exec.CommandContext(ctx, one.Args[0], one.Args[1:]...)
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8"}
	// A signal must reach shell and child.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	return cmd
}

// Kill ends the host at once, with all that runs on it.
func (h *Host) Kill() {
	if h.machine != nil {
		h.kill()
		h.machine = nil
		// Its network lives on until the kernel comes to it.
		_ = h.c.hub.ip("link del " + h.port() + "\n")
	}
}

// Freeze stops everything on the host, while its kernel goes on taking packets.
func (h *Host) Freeze() error { return h.freeze() }

// Cut cuts the host's link so that neither side notices, until it boots again.
func (h *Host) Cut() error { return h.c.hub.ip("link set " + h.port() + " nomaster\n") }
