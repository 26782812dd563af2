package clustertest

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestSlurmStranger: PMIx, which looks for X servers on ports 6000 and up, is not
// kept waiting by whatever else listens there on this machine and says nothing.
func TestSlurmStranger(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:6001")
	if err != nil {
		t.Logf("a stranger is there already: %v", err)
	} else {
		defer l.Close()
	}
	s := StartSlurm(t, SlurmOptions{})
	out, err := s.Command("srun", "--mpi=pmix", "-N", "2", "-n", "2", "sh", "-c", "echo $PMIX_RANK").CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("0\n")) || !bytes.Contains(out, []byte("1\n")) {
		t.Errorf("srun: %v\n%s", err, out)
	}
}

// TestSlurmGone: when a test's process is killed, nothing of its cluster stays.
func TestSlurmGone(t *testing.T) {
	const role = "CLUSTERTEST_ROLE"
	if os.Getenv(role) != "" {
		s := StartSlurm(t, SlurmOptions{})
		if out, err := s.Command("sbatch", "-N", "2", "--wrap", "srun -n 2 sleep 600", "-o", "/dev/null").CombinedOutput(); err != nil {
			t.Fatalf("sbatch: %v\n%s", err, out)
		}
		for end := time.Now().Add(2 * time.Minute); len(slurmProcesses(s.Dir, "slurmstepd")) < 2; time.Sleep(50 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("two slurmstepd do not start; of the cluster there are %q", slurmProcesses(s.Dir, ""))
			}
		}
		fmt.Println("cluster " + s.Dir)
		select {}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^TestSlurmGone$")
	cmd.Env = append(os.Environ(), role+"=victim")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var dir string
	for lines := bufio.NewScanner(stdout); dir == "" && lines.Scan(); {
		if lines.Text() == "PASS" {
			_ = cmd.Wait()
			t.Skip("there can be no cluster here")
		}
		_, _ = fmt.Sscanf(lines.Text(), "cluster %s", &dir)
	}
	if n := len(slurmProcesses(dir, "slurm")); n < 5 {
		t.Errorf("%d processes of the cluster are found; want slurmctld, two slurmd and two slurmstepd at least", n)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	t.Cleanup(func() { os.RemoveAll(dir) })
	var left []string
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if left = slurmProcesses(dir, ""); len(left) == 0 {
			return
		}
	}
	t.Errorf("left of the cluster: %q", left)
}

// slurmProcesses are those of a cluster, by its directory in what they were
// started with, that have some text in their command line.
func slurmProcesses(dir, text string) []string {
	own, _ := os.Readlink("/proc/self/ns/pid")
	processes, _ := filepath.Glob("/proc/[0-9]*")
	namespace := func(p string) string {
		n, _ := os.Readlink(p + "/ns/pid")
		return n
	}
	of := map[string]bool{}
	for _, p := range processes {
		environ, _ := os.ReadFile(p + "/environ")
		if n := namespace(p); n != own && bytes.Contains(environ, []byte("SLURM_CONF="+dir+"/")) {
			of[n] = true
		}
	}
	var out []string
	for _, p := range processes {
		line, _ := os.ReadFile(p + "/cmdline")
		if of[namespace(p)] && bytes.Contains(line, []byte(text)) {
			out = append(out, string(line))
		}
	}
	return out
}
