package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/clustertest"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/host/machine"
	"github.com/assay-hpc/assay/internal/host/sysfs"
	"github.com/assay-hpc/assay/internal/result"
)

// A slurmSite is a Slurm cluster of two nodes, n1 and n2, with the scripts of
// examples/slurm in its directory.
type slurmSite struct {
	*clustertest.Slurm
	t       *testing.T
	dir     string
	harness string
}

// standIn stands in for "harness certify --suite node" in the scripts: it takes
// the outcome from files, and does with it what the flags for the site say.
const standIn = `#!/bin/sh
[ "$1 $2 $3 $4 $5 $6 $7" = "certify --suite node --gpus 4 --only health" ] || exit 2
shift 7
cd %[1]s/"$SLURMD_NODENAME" || exit 2
%[2]s apply certificate.json --node-identity %[3]s "$@" 2>>log
read -r status <status
exit "$status"
`

// startSlurm starts one with some lines in slurm.conf, in which %s is the
// directory.
func startSlurm(t *testing.T, lines string) *slurmSite {
	t.Helper()
	bin := harnessBinary(t)
	program, err := os.ReadFile(bin)
	if err != nil {
		t.Fatal(err)
	}
	s := &slurmSite{t: t}
	s.Slurm = clustertest.StartSlurm(t, clustertest.SlurmOptions{Config: lines, Prepare: func(dir string) {
		s.dir, s.harness = dir, filepath.Join(dir, "harness")
		s.write("harness", string(program))
		s.write("certify", fmt.Sprintf(standIn, dir, s.harness, certificate.NodeDigest(slurmIdentity)))
		s.write("assay.conf", fmt.Sprintf("ASSAY_HARNESS=%s/certify\nASSAY_GPUS=4\nexport SLURM_CONF=%s/c/slurm.conf\n[ ! -e %s/drain ] || ASSAY_ON_ERROR=drain\n", dir, dir, dir))
		for _, name := range []string{"checks.sh", "prolog.sh", "epilog.sh", "healthcheck.sh"} {
			text, err := os.ReadFile(filepath.Join("..", "..", "examples", "slurm", name))
			if err != nil {
				t.Fatal(err)
			}
			s.write(name, string(text))
		}
		for _, node := range []string{"n1", "n2"} {
			s.outcome(node, result.Pass)
		}
	}})
	return s
}

func (s *slurmSite) write(name, text string) {
	s.t.Helper()
	name = filepath.Join(s.dir, name)
	err := os.MkdirAll(filepath.Dir(name), 0o755)
	if err == nil { // a script that runs must not see half of it
		err = os.WriteFile(name+".new", []byte(text), 0o755)
	}
	if err == nil {
		err = os.Rename(name+".new", name)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// failing is a reason with all that a shell, Slurm and a terminal could stumble on.
const failing = "2 \"errors\" at 41 °C, don't; $(x) Reason=`y`\n\x1b[31m[z@w]"

const wantReason = "assay: gpu/ecc: GPU 3: 2 \"errors\" at 41 °C, don't; $(x) Reason=`y` [31m[z@w]; reset it"

// slurmIdentity is the machine that certificates of these tests are about.
var slurmIdentity = []string{"GPU-1"}

// outcome is what the node's checks will find, and its certificate's file. A pass answers a failure.
func (s *slurmSite) outcome(node string, v result.Verdict) string {
	s.t.Helper()
	return s.certificate(node, v, v == result.Pass)
}

func (s *slurmSite) certificate(node string, v result.Verdict, repeated bool) string {
	s.t.Helper()
	r := result.Result{ID: "gpu/ecc", Title: "no errors", Verdict: v}
	p := certificate.Predicate{Suite: "node"}
	status := map[result.Verdict]string{result.Pass: "0", result.Fail: "1", result.Error: "3"}[v]
	if v == result.Pass {
		p.Results = []result.Result{{ID: certificate.GPUsID, Title: "GPUs", Verdict: v}}
		time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second))) // Slurm counts seconds, and a pass of the drain's does not undo it
	} else {
		r.Reason, r.Remedy = failing, "reset it"
		r.Objects = []result.Object{{Name: "GPU 3", Verdict: v, Reason: "2"}}
	}
	if repeated {
		p.After = &certificate.After{Checks: []string{r.ID}, Times: 3}
	}
	p.Results, p.Started = append(p.Results, r), time.Now()
	p.Finished = p.Started
	st := certificate.New(p)
	if err := st.SetNode(&certificate.Node{Name: node, Identity: slurmIdentity}); err != nil {
		s.t.Fatal(err)
	}
	doc, err := st.Marshal()
	if err != nil {
		s.t.Fatal(err)
	}
	s.write(node+"/status", status+"\n")
	s.write(node+"/certificate.json", string(doc))
	return filepath.Join(s.dir, node, "certificate.json")
}

// run runs a command and returns what it prints, both streams, and its status.
func (s *slurmSite) run(uid uint32, name string, args ...string) (string, int) {
	s.t.Helper()
	id := strconv.FormatUint(uint64(uid), 10)
	cmd := s.Command("setpriv", append([]string{"--reuid=" + id, "--regid=" + id, "--clear-groups", name}, args...)...)
	var out bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", &out, &out
	if err := cmd.Run(); cmd.ProcessState == nil {
		s.t.Fatal(err)
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

func (s *slurmSite) apply(want int, said string, args ...string) {
	s.t.Helper()
	out, got := s.run(0, s.harness, append([]string{"apply", "--node-identity", certificate.NodeDigest(slurmIdentity)}, args...)...)
	if got != want || !strings.Contains(out, said) {
		s.t.Errorf("apply %v: status %d\n%swant %d, %q", args, got, out, want, said)
	}
}

// node returns a node's state and reason.
func (s *slurmSite) node(name string) (state, reason string) {
	s.t.Helper()
	out, _ := s.run(0, "scontrol", "show", "node", name)
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		if rest, ok := strings.CutPrefix(line, "State="); ok {
			state, _, _ = strings.Cut(rest, " ")
		}
		if rest, ok := strings.CutPrefix(line, "Reason="); ok {
			reason = rest[:strings.LastIndex(rest, " [")]
		}
	}
	return state, reason
}

func (s *slurmSite) want(name string, drained bool, reason string) {
	s.t.Helper()
	state, got := s.node(name)
	if strings.Contains(state, "DRAIN") != drained || got != reason {
		s.t.Errorf("node %s: %s, %q; want drained %v, %q", name, state, got, drained, reason)
	}
}

// until waits for something that Slurm does by and by.
func (s *slurmSite) until(what string, done func() bool) {
	s.t.Helper()
	for end := time.Now().Add(10 * time.Minute); !done(); time.Sleep(200 * time.Millisecond) {
		if time.Now().After(end) {
			out, _ := s.run(0, "sh", "-c", "scontrol show node; scontrol show job; tail -n 20 "+s.dir+"/c/*.log "+s.dir+"/n*/log")
			s.t.Fatalf("waited in vain: %s\n%s", what, out)
		}
	}
}

func (s *slurmSite) scontrol(args ...string) {
	s.t.Helper()
	if out, status := s.run(0, "scontrol", args...); status != 0 {
		s.t.Fatalf("scontrol %v: %s", args, out)
	}
}

func TestSlurmApply(t *testing.T) {
	s := startSlurm(t, "")
	fail, noRight := s.outcome("n1", result.Fail), "only root, SlurmUser (root(0)) and operators"
	pass := s.outcome("pass", result.Pass)
	broken := s.outcome("broken", result.Error)
	n1 := []string{"--slurm", "--slurm-node", "n1"}
	with := func(args ...string) []string { return append(args, n1...) }

	// Who may not says so, with a command that does exactly the same.
	out, status := s.run(65534, s.harness, with("apply", "--node-identity", certificate.NodeDigest(slurmIdentity), fail)...)
	s.want("n1", false, "")
	_, command, _ := strings.Cut(out, "can run: ")
	if status != exit.NotDone || !strings.Contains(out, noRight) || !strings.HasPrefix(command, "scontrol update") {
		t.Fatalf("without rights: status %d, %s", status, out)
	}
	s.run(0, "sh", "-c", command)
	s.want("n1", true, wantReason)
	s.apply(0, "is drained already", with(fail)...)

	// Ours is taken back when that is asked for, on a pass alone.
	s.apply(0, "stays drained", with(pass)...)
	s.apply(0, "is left as it is: not run", with(broken, "--slurm-resume")...)
	s.apply(exit.Fail, "the certificate is older than the drain", with(pass, "--slurm-resume")...)
	s.want("n1", true, wantReason)
	time.Sleep(1100 * time.Millisecond) // Slurm's times have whole seconds
	s.apply(0, "stays drained: it failed by gpu/ecc, which this certificate did not measure harder", with(s.certificate("usual", result.Pass, false), "--slurm-resume")...)
	s.want("n1", true, wantReason)
	pass = s.later("pass")
	s.apply(0, "is taken back", with(pass, "--slurm-resume")...)
	s.want("n1", false, "")
	s.apply(0, "is in service", with(pass, "--slurm-resume")...)
	s.apply(0, `node n1 is drained: "assay: gpu/ecc`, with(fail)...)
	s.want("n1", true, wantReason)
	s.apply(0, "is drained: \"assay: not run: ", with(broken, "--slurm-on-error")...)
	pass = s.later("pass")
	s.apply(0, "is taken back", with(pass, "--slurm-resume")...)

	// Others' reasons stay.
	s.scontrol("update", "nodename=n1", "state=drain", "reason=fan assay: x")
	s.apply(0, "stays drained: the reason is not ours", with(pass, "--slurm-resume")...)
	s.apply(0, "out of service already", with(fail)...)
	s.want("n1", true, "fan assay: x")

	s.apply(exit.NotDone, "Node n9 not found; --slurm-node says", fail, "--slurm=health", "--slurm-node=n9")
}

// TestSlurmRepair: certify measures harder what the node failed by, and takes it back then.
func TestSlurmRepair(t *testing.T) {
	if fs, err := sysfs.Open("/"); err != nil || machine.PCIGPUs(fs) > 0 {
		t.Skip("this machine has GPUs: it is no node that should have none")
	}
	s := startSlurm(t, "")
	const reason = "assay: health/node/shm: full (+1 more: health/node/hugepages)"
	s.scontrol("update", "nodename=n1", "state=drain", "reason="+reason)
	for _, tt := range []struct {
		flags  string
		reason string // "": it is taken back
		says   string
	}{
		{"--only health/node/shm", reason, "stays drained: it failed by health/node/hugepages, which"},
		{"--only health/node --gpus 9", "assay: gpus: ", "node n1 is drained: "},
		{"--only health/node/shm --after '" + reason + "'", "", "is taken back"},
	} {
		time.Sleep(1100 * time.Millisecond) // Slurm's times have whole seconds
		out, _ := s.run(0, "sh", "-c", "SLURMD_NODENAME=n1 exec "+s.harness+" certify --suite health --gpus 0 --slurm=by-hand --slurm-resume "+tt.flags)
		if !strings.Contains(out, tt.says) {
			t.Errorf("%s: %s", tt.flags, out)
		}
		state, got := s.node("n1")
		if !strings.HasPrefix(got, tt.reason) || strings.Contains(state, "DRAIN") != (tt.reason != "") {
			t.Errorf("%s: node n1 is %s, %q; want %q", tt.flags, state, got, tt.reason)
		}
	}
}

// later is a pass whose checks began in a later second than anything before.
func (s *slurmSite) later(node string) string {
	s.t.Helper()
	time.Sleep(1100 * time.Millisecond) // Slurm's times have whole seconds
	return s.outcome(node, result.Pass)
}

// submit submits a job that writes a file when it runs.
func (s *slurmSite) submit(node, file string) (job string) {
	s.t.Helper()
	out, status := s.run(0, "sbatch", "--parsable", "-w", node, "-o", "/dev/null", "--wrap", "echo >"+filepath.Join(s.dir, file))
	if status != 0 {
		s.t.Fatal(out)
	}
	return strings.TrimSpace(out)
}

func (s *slurmSite) wrote(file string) bool {
	_, err := os.Stat(filepath.Join(s.dir, file))
	return err == nil
}

func (s *slurmSite) wantHeld(job, file string) {
	s.t.Helper()
	s.until("the job is held", func() bool {
		out, _ := s.run(0, "squeue", "-h", "-j", job, "-o", "%T %r")
		return strings.HasPrefix(out, "PENDING") && strings.Contains(out, "held")
	})
	if s.wrote(file) {
		s.t.Errorf("the job that wants %s ran", file)
	}
}

func TestSlurmProlog(t *testing.T) {
	s := startSlurm(t, "Prolog=%s/prolog.sh\nEpilog=%s/epilog.sh")
	s.outcome("n1", result.Error)
	s.submit("n1", "unchecked")
	s.until("a job runs where checks could not run", func() bool { return s.wrote("unchecked") })
	s.until("its epilog has ended", func() bool { state, _ := s.node("n1"); return state == "IDLE" })
	s.want("n1", false, "")

	s.outcome("n1", result.Fail)
	s.wantHeld(s.submit("n1", "failed"), "failed")
	s.want("n1", true, wantReason)

	// The node fails while a job runs there: the epilog finds it.
	job := s.submit("n2", "well")
	s.until("the job has ended", func() bool {
		out, _ := s.run(0, "scontrol", "show", "job", job)
		return strings.Contains(out, "JobState=COMPLETED")
	})
	s.want("n2", false, "")
	long, _ := s.run(0, "sbatch", "--parsable", "-w", "n2", "-o", "/dev/null", "--wrap", "echo >"+s.dir+"/long; sleep 600")
	s.until("the job runs", func() bool { return s.wrote("long") })
	s.outcome("n2", result.Fail)
	s.run(0, "scancel", strings.TrimSpace(long))
	s.until("the epilog drains n2", func() bool { _, reason := s.node("n2"); return reason == wantReason })

	// Where the site wants it, what could not run drains, too.
	s.scontrol("update", "nodename=n2", "state=undrain")
	s.outcome("n2", result.Error)
	s.write("drain", "")
	s.until("n2 takes jobs", func() bool { state, _ := s.node("n2"); return state == "IDLE" })
	s.wantHeld(s.submit("n2", "strict"), "strict")
	s.want("n2", true, strings.Replace(wantReason, "assay: ", "assay: not run: ", 1))
}

func TestSlurmHealthCheck(t *testing.T) {
	s := startSlurm(t, "HealthCheckProgram=%s/healthcheck.sh\nHealthCheckInterval=2\nHealthCheckNodeState=IDLE,CYCLE")
	s.outcome("n1", result.Fail)
	s.until("n1 is drained", func() bool { _, reason := s.node("n1"); return reason == wantReason })
	s.want("n2", false, "")
	s.outcome("n1", result.Pass)
	s.until("n1 is taken back", func() bool { state, _ := s.node("n1"); return !strings.Contains(state, "DRAIN") })
	s.scontrol("update", "nodename=n1", "state=drain", "reason=fan")
	s.outcome("n2", result.Fail)
	s.until("n2 is drained", func() bool { _, reason := s.node("n2"); return reason == wantReason })
	s.want("n1", true, "fan")
}
