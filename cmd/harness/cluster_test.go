package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/certificate/certificatetest"
	"github.com/assay-hpc/assay/internal/clustertest"
	"github.com/assay-hpc/assay/internal/result"
)

// shortFabric does what the suite fabric does in less time, on machines without
// GPUs. The file's name makes it a suite of several machines.
const shortFabric = `version: 1
title: machines are fit, and work together
limit: 2m
checks:
  - run: health
    with: {window: 0s, only: [node/hugepages, node/stuck]}
  - run: coll
    id: coll/host
    with: {operations: [all_reduce, alltoall], over: nodes, device: cpu, ranks: 1, max: 1M, factor: 8, min_time: 20ms}
  - run: mesh
    with: {over: nodes}
`

// A labour is a cluster on which the harness certifies.
type labour struct {
	*clustertest.Cluster
	bin string
}

// newLabour is four hosts with the harness and a suite, or skips the test.
func newLabour(t *testing.T, o clustertest.Options) *labour {
	t.Helper()
	bin := harnessBinary(t)
	o.Programs = []string{bin}
	c := &labour{clustertest.Start(t, o), bin}
	c.file(t, "fabric.yaml", shortFabric)
	return c
}

func (c *labour) file(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(c.Shared, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// mpirun starts a suite on all hosts, by the hostfile that assay renders, and returns what
// it wrote.
func (c *labour) mpirun(ctx context.Context, t *testing.T, dir, suite string, options ...string) (string, error) {
	t.Helper()
	var hosts []string
	for _, h := range c.Hosts {
		hosts = append(hosts, h.Name)
	}
	n := fmt.Sprint(len(hosts))
	render := exec.CommandContext(ctx, "go", "run", "../assay", "jobs", "render", "generic", "--scheduler", "hostfile", "--nodes", n, "--hosts", strings.Join(hosts, ","))
	var stderr bytes.Buffer
	render.Stderr = &stderr
	text, err := render.Output()
	if err != nil {
		t.Fatalf("assay jobs render: %v: %s", err, &stderr)
	}
	c.file(t, "hostfile", string(text))
	words := append([]string{"--allow-run-as-root", "--hostfile", "/shared/hostfile", "-np", n, "--map-by", "ppr:1:node", "--bind-to", "none"}, options...)
	cmd := c.Hosts[0].Command(ctx, "mpirun", append(words, "harness", "certify", "--suite", suite, "--out", "/shared/"+dir+"/")...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// A job is a harness on each host, as torchrun's agents start it.
type clusterJob struct {
	ranks []*clusterRank
	start time.Time
}

type clusterRank struct {
	cmd            *exec.Cmd
	stdout, stderr bytes.Buffer
	err            error
	wall           time.Duration
	done           chan struct{} // closed when the rest is valid
}

// job starts harness with arguments on all hosts but the absent ones.
func (c *labour) job(ctx context.Context, id string, absent []int, args ...string) *clusterJob {
	j := &clusterJob{start: time.Now()}
	for i, h := range c.Hosts {
		r := &clusterRank{done: make(chan struct{})}
		j.ranks = append(j.ranks, r)
		if slices.Contains(absent, i) {
			close(r.done)
			continue
		}
		// A host has processors of its own: these do not wait for this machine's other work.
		r.cmd = h.Command(ctx, "nice", append([]string{"-n", "-10", "harness"}, args...)...)
		r.cmd.Env = append(r.cmd.Env, fmt.Sprintf("RANK=%d", i), fmt.Sprintf("WORLD_SIZE=%d", len(c.Hosts)), "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1",
			"MASTER_ADDR="+c.Hosts[0].Name, "MASTER_PORT=29500", "TORCHELASTIC_RUN_ID="+id)
		r.cmd.Stdout, r.cmd.Stderr = &r.stdout, &r.stderr
		go func() {
			r.err = r.cmd.Run()
			r.wall = time.Since(j.start)
			close(r.done)
		}()
	}
	return j
}

// wait waits for all ranks but one, or for all with -1.
func (j *clusterJob) wait(but int) {
	for i, r := range j.ranks {
		if i != but {
			<-r.done
		}
	}
}

// String is all that they wrote, once they have ended.
func (j *clusterJob) String() string {
	var b strings.Builder
	for i, r := range j.ranks {
		fmt.Fprintf(&b, "rank %d: %v after %v\n%s%s", i, r.err, r.wall.Round(time.Millisecond), &r.stderr, &r.stdout)
	}
	return b.String()
}

// certificate reads what a run left, and holds it against the schema.
func (c *labour) certificate(t *testing.T, name string) *certificate.Statement {
	t.Helper()
	doc, err := os.ReadFile(filepath.Join(c.Shared, name))
	if err != nil {
		t.Fatal(err)
	}
	if err := certificatetest.Validate(doc); err != nil {
		t.Errorf("%s: %v", name, err)
	}
	st, err := certificate.Parse(doc)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return st
}

// keys writes a private and a public key into the shared directory.
func (c *labour) keys(t *testing.T) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	c.file(t, "key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})))
	c.file(t, "key.pub", string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})))
}

// verify signs a certificate and has harness verify look at it.
func (c *labour) verify(t *testing.T, name string) {
	t.Helper()
	c.keys(t)
	in := func(name string) string { return filepath.Join(c.Shared, name) }
	output(t, nil, c.bin, "sign", "--key", in("key"), "--out", in("signed.json"), in(name))
	output(t, nil, c.bin, "verify", "--key", in("key.pub"), in("signed.json"))
}

// certified wants the certificate of a cluster that is well: all hosts in it, each
// one's own beside it, and that it passes.
func (c *labour) certified(t *testing.T, dir string, together ...string) {
	t.Helper()
	st := c.certificate(t, dir+"/certificate.json")
	if st.Predicate.Verdict != result.Pass {
		t.Errorf("the verdict is %s", st.Predicate.Verdict)
	}
	verdicts := map[string]result.Verdict{}
	for _, r := range st.Predicate.Results {
		verdicts[r.ID] = r.Verdict
		t.Logf("%s: %s %s", r.ID, r.Verdict, r.Reason)
	}
	for _, h := range c.Hosts {
		if !slices.ContainsFunc(st.Subject, func(s certificate.Subject) bool { return s.Name == "node:"+h.Name }) {
			t.Errorf("%s is not what it is about: %v", h.Name, st.Subject)
		}
		if v := verdicts["node/"+h.Name]; v != result.Pass {
			t.Errorf("%s: %q", h.Name, v)
		}
		own := c.certificate(t, dir+"/nodes/"+h.Name+".json")
		if own.Predicate.Node == nil || own.Predicate.Node.Name != h.Name {
			t.Errorf("the certificate of %s is about %+v", h.Name, own.Predicate.Node)
		}
	}
	for _, id := range together {
		if v := verdicts[id]; v != result.Pass {
			t.Errorf("%s: %q", id, v)
		}
	}
	c.verify(t, dir+"/certificate.json")
}

// TestClusterMpirun runs the suite that is built in over ssh, as a job of Open MPI
// does.
func TestClusterMpirun(t *testing.T) {
	needs(t, "mpirun", "openmpi-bin")
	c := newLabour(t, clustertest.Options{SSH: imageSSH(t)})
	ctx, end := context.WithTimeout(t.Context(), 10*time.Minute)
	defer end()
	out, err := c.mpirun(ctx, t, "out", "fabric")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	c.certified(t, "out", "coll/host/all_reduce", "coll/host/alltoall")
}

// TestClusterMpirunFirst kills the first rank of a job of Open MPI, which lets the others go
// on.
func TestClusterMpirunFirst(t *testing.T) {
	needs(t, "mpirun", "openmpi-bin")
	c := newLabour(t, clustertest.Options{SSH: imageSSH(t)})
	ctx, end := context.WithTimeout(t.Context(), 5*time.Minute)
	defer end()
	killed := make(chan string, 1)
	go func() {
		// The patterns do not match themselves.
		out, err := c.Hosts[0].Command(ctx, "sh", "-c", `until grep -qs 'all_[r]educe' /proc/[0-9]*/cmdline; do sleep 0.02; done
for p in /proc/[0-9]*; do
  case $(tr '\0' ' ' <"$p/cmdline" 2>/dev/null) in "harness certify "*) kill -9 "${p#/proc/}"; echo "killed ${p#/proc/}" ;; esac
done`).CombinedOutput()
		killed <- fmt.Sprintf("%s%v", out, err)
	}()
	out, err := c.mpirun(ctx, t, "out", "/shared/fabric.yaml", "--enable-recovery")
	if ctx.Err() != nil {
		t.Fatalf("mpirun did not end\n%s", out)
	}
	t.Logf("%s; mpirun: %v", <-killed, err)
	c.named(t, "out", 0, &clusterJob{})
	if !strings.Contains(out, "rank 1 took over") {
		t.Errorf("the second rank's report is not in the output:\n%s", out)
	}
}

// TestClusterTorchrun does without ssh, as torchrun's agents start it.
func TestClusterTorchrun(t *testing.T) {
	c := newLabour(t, clustertest.Options{})
	ctx, end := context.WithTimeout(t.Context(), 10*time.Minute)
	defer end()
	j := c.job(ctx, "out", nil, "certify", "--suite", "/shared/fabric.yaml", "--out", "/shared/out/")
	j.wait(-1)
	for _, r := range j.ranks {
		if r.err != nil {
			t.Fatal(j)
		}
	}
	c.certified(t, "out", "coll/host/all_reduce", "coll/host/alltoall")
}
