package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/clustertest"
	"github.com/assay-hpc/assay/internal/result"
)

// shortAcceptance is the suite acceptance in less time, on machines without GPUs.
const shortAcceptance = `version: 1
title: machines are fit, alike, and work together
limit: 5m
checks:
  - run: health
    with: {window: 0s, only: [node/hugepages, node/stuck]}
  - run: coll
    id: node/coll
    with: {operations: [all_reduce], device: cpu, ranks: 2, max: 64K, variables: {NCCL_SHM_DISABLE: "1"}}
  - run: same
  - run: topology
  - run: coll
    id: scale
    with: {operations: [all_reduce], over: nodes, scale: true, device: cpu, ranks: 1, max: 64K, min_time: 5ms}
  - run: train
    with: {over: nodes, device: cpu, ranks: 1, steps: 5}
`

const acceptanceScript = `#!/bin/sh
#SBATCH --ntasks-per-node=1
exec srun --export=ALL harness certify --suite /shared/accept.yaml --sign-key /shared/key --out /shared/accepted/ "$@"
`

// TestAcceptance accepts a cluster of a real Slurm: one sbatch, and one signed certificate. A second
// job is cut off, and a third one goes on where that was.
func TestAcceptance(t *testing.T) {
	c := newLabour(t, clustertest.Options{Hosts: 8})
	ctx := t.Context()
	leaves := "SwitchName=leaf1 Nodes=node[01-04]\nSwitchName=leaf2 Nodes=node[05-08]\nSwitchName=spine Switches=leaf[1-2]\n"
	environ := c.Slurm(ctx, leaves)
	c.file(t, "accept.yaml", shortAcceptance)
	c.file(t, "accept.sh", acceptanceScript)
	c.keys(t)
	sbatch := func(options ...string) (log string) {
		t.Helper()
		cmd := c.Hosts[0].Command(ctx, "sbatch", append([]string{"--wait", "--nodes=8", "--output=/shared/accept.log", "--open-mode=truncate", "/shared/accept.sh"}, options...)...)
		cmd.Env = append(cmd.Env, environ...)
		cmd.Env = append(cmd.Env, "ASSAY_PYTHON=/usr/bin/python3")
		out, err := cmd.CombinedOutput()
		b, _ := os.ReadFile(filepath.Join(c.Shared, "accept.log"))
		if err != nil {
			t.Logf("sbatch: %v: %s", err, out)
		}
		return string(b)
	}
	log := sbatch()
	c.accepted(t, log)
	if !strings.Contains(log, "on 8 machines, about ") || !strings.Contains(log, ", at most 5 minutes") {
		t.Errorf("nothing says how long it takes:\n%s", log)
	}
	output(t, nil, c.bin, "verify", "--key", filepath.Join(c.Shared, "key.pub"), filepath.Join(c.Shared, "accepted", "certificate.dsse.json"))
	t.Run("resumed", func(t *testing.T) { c.resumed(t, environ, sbatch) })
	if left, _ := filepath.Glob(filepath.Join(c.Shared, "accepted", ".*partial")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// accepted wants the certificate of a cluster that is well.
func (c *labour) accepted(t *testing.T, log string) *certificate.Statement {
	t.Helper()
	st := c.certificate(t, "accepted/certificate.json")
	for _, r := range st.Predicate.Results {
		t.Logf("%s: %s %s", r.ID, r.Verdict, r.Reason)
		switch {
		case r.Verdict == result.Pass, r.ID == "train" && r.Verdict == result.Skip:
		default:
			t.Errorf("%s: %s: %s\n%s", r.ID, r.Verdict, r.Reason, log)
		}
		if r.ID == "topology" && r.Reason != "8 machines below 2 leaves" {
			t.Errorf("topology: %s", r.Reason)
		}
		if r.ID == "scale/all_reduce" && len(r.Objects) != 3 {
			t.Errorf("scale: %d numbers of machines; want 2, 4 and 8: %s", len(r.Objects), r.Reason)
		}
	}
	return st
}

// resumed cuts a job off when two of its joint checks are done, and has another go on.
func (c *labour) resumed(t *testing.T, environ []string, sbatch func(...string) string) {
	ended := make(chan string, 1)
	go func() { ended <- sbatch() }()
	notes := filepath.Join(c.Shared, "accepted", ".certify.partial")
	for end := time.Now().Add(5 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if b, _ := os.ReadFile(notes); bytes.Count(b, []byte("\n")) > 2 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("no check was done after 5 minutes: %s", <-ended)
		}
	}
	cancel := c.Hosts[0].Command(t.Context(), "scancel", "--state=RUNNING", "--user=root")
	cancel.Env = append(cancel.Env, environ...)
	if out, err := cancel.CombinedOutput(); err != nil {
		t.Fatalf("scancel: %v: %s", err, out)
	}
	if log := <-ended; strings.Contains(log, "PASS ") {
		t.Fatalf("it was not cut off:\n%s", log)
	}
	b, err := os.ReadFile(notes)
	if err != nil {
		t.Fatal(err)
	}
	var head struct{ Started time.Time }
	first, _, _ := bytes.Cut(b, []byte("\n"))
	if err := json.Unmarshal(first, &head); err != nil {
		t.Fatal(err)
	}
	log := sbatch("--resume")
	st := c.accepted(t, log)
	if d := st.Predicate.Started.Sub(head.Started).Abs(); d > 2*time.Second {
		t.Errorf("it started at %v, not at %v", st.Predicate.Started, head.Started)
	}
}
