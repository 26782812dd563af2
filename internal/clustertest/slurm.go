package clustertest

import (
	_ "embed"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

//go:embed slurm.sh
var slurmInit string

// SlurmOptions are the options of a Slurm cluster.
type SlurmOptions struct {
	Nodes  int    // n1, n2, …; 0 is 2
	GPUs   int    // per node, as configured in Slurm
	Config string // additional lines of slurm.conf; %s is replaced by the cluster's directory
	// Prepare creates files in the directory that the cluster needs when it starts.
	Prepare func(dir string)
}

// A Slurm is a real Slurm with nodes that are all this machine. It has its own network, so that its
// ports are free and it cannot reach other servers on this machine, and its own processes: it is
// removed when its test ends, or when the test's process does.
type Slurm struct {
	Dir string   // of this cluster only, readable by all users; slurm.conf and logs are in Dir/c
	Env []string // this process's environment, with the path of the cluster's slurm.conf

	machine *fakeMachine
}

// StartSlurm starts a cluster. If that is not possible, the test is skipped with the reason.
func StartSlurm(t testing.TB, o SlurmOptions) *Slurm {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a Slurm cluster needs root")
	}
	for _, need := range []string{"slurmctld:slurm-wlm", "slurmd:slurm-wlm", "munged:munge", "ip:iproute2", "nsenter:util-linux"} {
		program, pkg, _ := strings.Cut(need, ":")
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("there is no %s: apt-get install %s", program, pkg)
		}
	}
	if o.Nodes == 0 {
		o.Nodes = 2
	}
	dir, err := os.MkdirTemp("/tmp", "slurm") // munged and slurmd have strict rules for their directories
	if err != nil {
		t.Fatal(err)
	}
	s := &Slurm{Dir: dir}
	t.Cleanup(func() {
		if s.machine != nil {
			s.machine.kill()
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(dir, "c")
	if err := os.Mkdir(own, 0o755); err != nil {
		t.Fatal(err)
	}
	s.Env = append(os.Environ(), "SLURM_CONF="+filepath.Join(own, "slurm.conf"))
	if o.Prepare != nil {
		o.Prepare(dir)
	}
	// It gets its own /proc, in which Slurm finds the processes of a job.
	script := "mount --make-rprivate / && mount -t proc proc /proc\n" + slurmInit
	s.machine, err = spawn(newNet|syscall.CLONE_NEWNS|syscall.CLONE_NEWPID, s.Env,
		"sh", "-c", script, "slurm", own, strconv.Itoa(o.Nodes), strconv.Itoa(o.GPUs), strings.ReplaceAll(o.Config, "%s", dir))
	if err != nil {
		t.Skipf("no namespaces here: %v", err)
	}
	if err := s.machine.up(); err != nil {
		t.Fatalf("Slurm: %v", err)
	}
	return s
}

// Line returns the command line that runs a command on the cluster's network, the only one on which
// Slurm's daemons are reachable. The command also needs Env.
func (s *Slurm) Line(name string, args ...string) []string {
	return append(s.machine.in([]string{"--net"}, name).Args, args...)
}

// Command returns a command that runs on the cluster's network.
func (s *Slurm) Command(name string, args ...string) *exec.Cmd {
	line := s.Line(name, args...)
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Env = s.Env
	return cmd
}
