// Package clustertest creates a cluster on this machine, for tests. Each host is a set of
// namespaces with its own name, root, identity and address; a switch in this process connects them.
// Their links have a rate, and links and the ways between hosts can be made slow, late, lossy or dead;
// hosts can be frozen and killed.
package clustertest

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Options of a cluster.
type Options struct {
	Hosts int // 0 is 4
	// Rate is the rate of each host's link, per direction, in bits per second; 0: as fast as the
	// kernel is.
	Rate int
	// SSH makes each host like a worker of an image: its first process is OpenSSH's server as the
	// image sets it up, and its root may log in to the other hosts; nil: hosts without it.
	SSH *SSH
	// Programs are installed in /usr/local/bin of each host.
	Programs []string
}

// A Cluster is a number of hosts and the switch between them. It is removed when its test ends, or
// when the test's process does.
type Cluster struct {
	Hosts  []*Host
	Shared string // a directory that all hosts see as /shared

	t     testing.TB
	o     Options
	wires *wires
	seed  string // content of the hosts' roots: see machine.sh
	image string
	files string
}

// Start creates a cluster. If that is not possible, the test is skipped with the reason.
func Start(t testing.TB, o Options) *Cluster {
	t.Helper()
	if o.Hosts == 0 {
		o.Hosts = 4
	}
	if o.Hosts < 2 || o.Hosts > 250 {
		t.Fatalf("a cluster of %d hosts", o.Hosts)
	}
	if os.Geteuid() != 0 {
		t.Skip("a cluster of namespaces needs root")
	}
	for _, need := range []string{"ip:iproute2", "nsenter:util-linux", "bash:bash"} {
		program, pkg, _ := strings.Cut(need, ":")
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("there is no %s: apt-get install %s", program, pkg)
		}
	}
	c := &Cluster{t: t, o: o, wires: newWires(o.Hosts), Shared: t.TempDir(), files: t.TempDir()}
	c.programs()
	if o.SSH != nil {
		c.ssh()
	}
	for i := range o.Hosts {
		h := &Host{Name: fmt.Sprintf("node%02d", i+1), Addr: netip.AddrFrom4([4]byte{10, 88, 0, byte(i + 1)}), c: c, i: i}
		h.Link = Link{Send: Path{Rate: o.Rate}, Receive: Path{Rate: o.Rate}}
		c.Hosts = append(c.Hosts, h)
	}
	var names strings.Builder
	names.WriteString("127.0.0.1 localhost\n")
	for _, h := range c.Hosts {
		fmt.Fprintf(&names, "%s %s\n", h.Addr, h.Name)
	}
	c.write(filepath.Join(c.Shared, "hosts"), names.String(), 0o644)
	for _, h := range c.Hosts {
		h.Boot()
	}
	return c
}

// programs copies the programs into the shared directory, and links to them in every root.
func (c *Cluster) programs() {
	for _, from := range c.o.Programs {
		name := filepath.Base(from)
		b, err := os.ReadFile(from)
		if err != nil {
			c.t.Fatal(err)
		}
		c.write(filepath.Join(c.Shared, "bin", name), string(b), 0o755)
		link := filepath.Join(c.files, "usr/local/bin", name)
		if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
			c.t.Fatal(err)
		}
		if err := os.Symlink("/shared/bin/"+name, link); err != nil {
			c.t.Fatal(err)
		}
	}
}

func (c *Cluster) write(name, text string, mode os.FileMode) {
	c.t.Helper()
	err := os.MkdirAll(filepath.Dir(name), 0o755)
	if err == nil {
		err = os.WriteFile(name, []byte(text), mode)
	}
	if err == nil {
		err = os.Chmod(name, mode) // regardless of the umask
	}
	if err != nil {
		c.t.Fatal(err)
	}
}
