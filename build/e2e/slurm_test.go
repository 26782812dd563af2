package e2e

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/assay-hpc/assay/build/jobs"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/clustertest"
	"github.com/assay-hpc/assay/internal/result"
)

// A slurm is a real Slurm whose nodes are all this machine, and a harness for
// its jobs.
type slurm struct {
	*clustertest.Slurm
	t       *testing.T
	dir     string // of submission
	harness string
	nodes   []string
}

// startSlurm starts one of SLURM_NODES nodes, by default two, that have GPUs as far
// as Slurm knows. To the harness they are machines of their own: by Slurm's names,
// and with NCCL_HOSTID nothing but TCP joins them. Lines are for slurm.conf.
func startSlurm(t *testing.T, lines ...string) *slurm {
	t.Helper()
	long(t)
	n := 2
	if v := os.Getenv("SLURM_NODES"); v != "" {
		var err error
		if n, err = strconv.Atoi(v); err != nil || n < 2 {
			t.Fatalf("SLURM_NODES=%s; want 2 or more", v)
		}
	}
	s := &slurm{t: t}
	lines = append(lines, "MessageTimeout=30", "TaskProlog=%s/prolog")
	s.Slurm = clustertest.StartSlurm(t, clustertest.SlurmOptions{Nodes: n, GPUs: 8, Config: strings.Join(lines, "\n"), Prepare: func(dir string) {
		if err := os.WriteFile(filepath.Join(dir, "prolog"), []byte("#!/bin/sh\necho \"export NCCL_HOSTID=$SLURMD_NODENAME\"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}})
	s.dir, s.harness = s.Dir, filepath.Join(s.Dir, "harness")
	for i := range n {
		s.nodes = append(s.nodes, fmt.Sprintf("n%d", i+1))
	}
	build := exec.Command("go", "build", "-tags", "urfave_cli_no_docs", "-o", s.harness, "../../cmd/harness")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s, %d nodes", s.run("sbatch", "--version"), n)
	return s
}

// run runs a command that must succeed, and returns what it prints.
func (s *slurm) run(name string, args ...string) string {
	s.t.Helper()
	cmd := s.Command(name, args...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		s.t.Fatalf("%s %v: %v\n%s%s", name, args, err, &out, &errOut)
	}
	return strings.TrimSpace(out.String())
}

// A submitted job.
type submitted struct {
	s    *slurm
	id   string
	name string
}

// submit gives sbatch what assay renders, as it is. What a site wants otherwise,
// srun and sbatch take from the environment.
func (s *slurm) submit(o jobs.Options, env ...string) *submitted {
	s.t.Helper()
	o.Profile, o.Scheduler, o.Nodes, o.Harness, o.Partition = "generic", jobs.SlurmBare, len(s.nodes), s.harness, "test"
	text, err := jobs.Render(o)
	if err != nil {
		s.t.Fatal(err)
	}
	script := filepath.Join(s.dir, "job.slurm")
	if err := os.WriteFile(script, text, 0o755); err != nil {
		s.t.Fatal(err)
	}
	cmd := s.Command("sbatch", "--parsable", script)
	cmd.Dir, cmd.Env = s.dir, append(s.Env[:len(s.Env):len(s.Env)], env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Fatalf("sbatch: %v\n%s\n%s", err, out, text)
	}
	return &submitted{s, strings.TrimSpace(string(out)), fmt.Sprintf("assay-generic-%dx8", len(s.nodes))}
}

func (j *submitted) log() string {
	b, _ := os.ReadFile(filepath.Join(j.s.dir, j.name+"_"+j.id+".out"))
	return string(b)
}

// dir is where the job's results are.
func (j *submitted) dir() string { return filepath.Join(j.s.dir, "assay-"+j.id) }

// show is a field of what Slurm knows of the job.
func (j *submitted) show(field string) string {
	j.s.t.Helper()
	for _, word := range strings.Fields(j.s.run("scontrol", "show", "job", j.id)) {
		if v, ok := strings.CutPrefix(word, field+"="); ok {
			return v
		}
	}
	return ""
}

func (j *submitted) until(what string, done func() bool) {
	j.s.t.Helper()
	for end := time.Now().Add(20 * time.Minute); !done(); time.Sleep(200 * time.Millisecond) {
		if time.Now().After(end) {
			_ = j.s.Command("scancel", j.id).Run()
			j.s.t.Fatalf("waited in vain: %s\n%s", what, j.log())
		}
	}
}

// ends waits for the job's end and wants it in a state.
func (j *submitted) ends(state string) {
	j.s.t.Helper()
	j.until("the job's end", func() bool {
		return !slices.Contains([]string{"PENDING", "CONFIGURING", "RUNNING", "COMPLETING"}, j.show("JobState"))
	})
	if got := j.show("JobState"); got != state {
		j.s.t.Fatalf("the job is %s; want %s\n%s", got, state, j.log())
	}
}

// certificate reads one of the job's.
func (j *submitted) certificate(name string) *certificate.Statement {
	j.s.t.Helper()
	b, err := os.ReadFile(filepath.Join(j.dir(), name))
	if err != nil {
		j.s.t.Fatalf("%v\n%s", err, j.log())
	}
	st, err := certificate.Parse(b)
	if err != nil {
		j.s.t.Fatalf("%s: %v", name, err)
	}
	return st
}

// verdicts are the results of a certificate by id.
func verdicts(st *certificate.Statement) map[string]result.Verdict {
	out := map[string]result.Verdict{}
	for _, r := range st.Predicate.Results {
		out[r.ID] = r.Verdict
	}
	return out
}

// TestSlurmFabric submits the rendered job with each of Slurm's ways to bring
// ranks together. It must complete, and leave the cluster's certificate, which
// verifies once it is signed, with each node's beside it.
func TestSlurmFabric(t *testing.T) {
	s := startSlurm(t)
	key, pub := keyPair(t, s.dir)
	for _, with := range []string{"none", "pmi2", "pmix"} {
		t.Run(with, func(t *testing.T) {
			s.t = t
			j := s.submit(jobs.Options{}, "SLURM_MPI_TYPE="+with)
			j.ends("COMPLETED")
			st := j.certificate("certificate.json")
			got := verdicts(st)
			for _, node := range s.nodes {
				if got["node/"+node] != result.Pass {
					t.Errorf("node/%s: %q; want a pass", node, got["node/"+node])
				}
				own := j.certificate(filepath.Join("nodes", node+".json"))
				if own.Predicate.Node == nil || own.Predicate.Node.Name != node || len(own.Predicate.Results) < 20 {
					t.Errorf("nodes/%s.json is about %+v, with %d results", node, own.Predicate.Node, len(own.Predicate.Results))
				}
			}
			if len(st.Subject) != len(s.nodes) || got["coll/host/all_reduce"] != result.Pass {
				t.Errorf("%d subjects, coll/host/all_reduce: %q; want %d, a pass", len(st.Subject), got["coll/host/all_reduce"], len(s.nodes))
			}
			if want := fmt.Sprintf("%d machines, %d ranks", len(s.nodes), len(s.nodes)); !strings.Contains(j.log(), want) {
				t.Errorf("the log has no %q:\n%s", want, j.log())
			}
			signed := filepath.Join(j.dir(), "signed.json")
			s.run(s.harness, "sign", filepath.Join(j.dir(), "certificate.json"), "--key", key, "--out", signed)
			s.run(s.harness, "verify", signed, "--key", pub)
		})
	}
}

// TestSlurmApart: nodes that make a certificate each write it under their name, and
// do nothing together.
func TestSlurmApart(t *testing.T) {
	s := startSlurm(t)
	j := s.submit(jobs.Options{Suite: "quick"})
	j.ends("COMPLETED")
	for _, node := range s.nodes {
		st := j.certificate(filepath.Join(node, "certificate.json"))
		if st.Predicate.Node.Name != node {
			t.Errorf("%s/certificate.json is about %s", node, st.Predicate.Node.Name)
		}
		for _, r := range st.Predicate.Results {
			if r.ID == "coll/host/all_reduce" && !strings.HasPrefix(r.Reason, "2 ranks, ") {
				t.Errorf("%s: %s: %s; want its own ranks alone", node, r.ID, r.Reason)
			}
		}
	}
}

// TestSlurmDeath: a node whose process or which itself dies during the run is
// named in the certificate of the others, also if it was the first one.
func TestSlurmDeath(t *testing.T) {
	s := startSlurm(t, "SlurmdTimeout=20")
	deaths := []string{"process", "process of the first", "node"} // the node last: it stays dead
	if len(s.nodes) > 2 {                                         // a minute goes by until Slurm gives a dead node up
		deaths = deaths[:2]
	}
	for _, what := range deaths {
		t.Run(what, func(t *testing.T) {
			s.t = t
			victim := s.nodes[len(s.nodes)-1]
			if what == "process of the first" {
				victim = s.nodes[0]
			}
			j := s.submit(jobs.Options{})
			var processes map[int]string
			j.until("the victim is at its checks", func() bool {
				processes = j.on(victim)
				for _, name := range processes {
					if strings.Contains(name, " health ") || strings.Contains(name, " coll ") {
						return true
					}
				}
				return false
			})
			for pid, name := range processes {
				if what == "node" || strings.Contains(name, " certify ") && !strings.HasPrefix(name, "srun ") { // the first node has srun
					kill(t, pid)
				}
			}
			if what == "node" {
				kill(t, s.slurmd(victim))
			}
			j.ends("FAILED")
			st := j.certificate("certificate.json")
			got := verdicts(st)
			for _, node := range s.nodes {
				if node != victim && got["node/"+node] != result.Pass {
					t.Errorf("node/%s: %q; want a pass\n%s", node, got["node/"+node], j.log())
				}
			}
			i := slices.IndexFunc(st.Predicate.Results, func(r result.Result) bool { return r.ID == "node/"+victim })
			if r := st.Predicate.Results[max(i, 0)]; i < 0 || r.Verdict != result.Error || !strings.Contains(r.Reason, "no certificate was created: ") ||
				strings.Contains(r.Reason, "rank 1 took over") != (victim == s.nodes[0]) {
				t.Errorf("of %s it says %+v; want that it was lost\n%s", victim, r, j.log())
			}
		})
	}
}

// on are the processes of the job on a node, and Slurm's own for it, by number.
func (j *submitted) on(node string) map[int]string {
	out := map[int]string{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		environ, _ := os.ReadFile(filepath.Join(dir, "environ"))
		text, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		name := strings.ReplaceAll(string(text), "\x00", " ")
		vars := strings.Split(string(environ), "\x00")
		has := func(v string) bool { return slices.Contains(vars, v) }
		switch {
		case has("SLURM_CONF="+filepath.Join(j.s.dir, "c", "slurm.conf")) && has("SLURM_JOB_ID="+j.id) && has("SLURMD_NODENAME="+node):
			out[pid] = name
		case strings.HasPrefix(name, "slurmstepd: ["+j.id+".0]") && j.spools(dir, node):
			out[pid] = name
		}
	}
	return out
}

// slurmd is the number of a node's daemon.
func (s *slurm) slurmd(node string) int {
	s.t.Helper()
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		environ, _ := os.ReadFile(filepath.Join(dir, "environ"))
		line, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		if bytes.Contains(environ, []byte("SLURM_CONF="+s.dir+"/")) && bytes.HasSuffix(line, []byte("\x00-N\x00"+node+"\x00")) && bytes.HasPrefix(line, []byte("slurmd\x00")) {
			pid, _ := strconv.Atoi(filepath.Base(dir))
			return pid
		}
	}
	s.t.Fatalf("there is no slurmd of %s", node)
	return 0
}

// spools reports whether a step's daemon is a node's: it has its log open.
func (j *submitted) spools(proc, node string) bool {
	files, _ := filepath.Glob(filepath.Join(proc, "fd", "*"))
	return slices.ContainsFunc(files, func(f string) bool {
		to, _ := os.Readlink(f)
		return to == filepath.Join(j.s.dir, "c", node+".log")
	})
}

func kill(t *testing.T, pid int) {
	t.Helper()
	p, err := os.FindProcess(pid)
	if err == nil {
		err = p.Kill()
	}
	if err != nil {
		t.Logf("process %d: %v", pid, err) // the end of another took it along
	}
}

// keyPair writes a key to sign with, and one to verify.
func keyPair(t *testing.T, dir string) (key, pub string) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, der []byte, err error) string {
		t.Helper()
		name = filepath.Join(dir, name)
		if err == nil {
			err = os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		return name
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	key = write("key.pem", "PRIVATE KEY", der, err)
	der, err = x509.MarshalPKIXPublicKey(public)
	return key, write("pub.pem", "PUBLIC KEY", der, err)
}
