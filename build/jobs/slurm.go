package jobs

import (
	"cmp"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// slurm returns a script for sbatch. A site can override directives on sbatch's command
// line, which takes precedence.
func (j *job) slurm() []byte {
	s := &script{}
	s.line("#!/bin/bash")
	for _, r := range j.remarks() {
		s.comment(r)
	}
	for _, d := range j.directives() {
		s.line("#SBATCH --" + d)
	}
	s.line("set -euo pipefail\n")
	if j.certifies() {
		s.comment(j.results("$out"))
		if j.OutputDir == "" {
			s.line(`out=$SLURM_SUBMIT_DIR/assay-$SLURM_JOB_ID`)
		} else {
			s.line("out=" + quote(j.OutputDir))
		}
		s.line("mkdir -p \"$out\"\n")
	}
	vars := j.vars
	if j.Scheduler == SlurmEnroot {
		vars = append(j.onMake[:len(j.onMake):len(j.onMake)], vars...)
	}
	for _, v := range vars {
		s.export(v)
	}
	if len(vars) > 0 {
		s.line("")
	}
	if j.Scheduler == SlurmEnroot {
		j.importImage(s)
	}
	if j.apart() {
		s.comment("shellcheck disable=SC2016 # each node knows its own name")
	}
	s.command(j.srun(vars)...)
	return s.bytes()
}

// directives returns what the job requests from Slurm.
func (j *job) directives() []string {
	slurm := j.profile.Slurm
	out := []string{
		"job-name=" + j.Name,
		"output=%x_%j.out",
		"nodes=" + strconv.Itoa(j.Nodes),
		"ntasks-per-node=" + strconv.Itoa(j.slots),
		"gpus-per-node=" + strconv.Itoa(j.GPUs),
	}
	if slurm.CPUsPerTask.known() {
		out = append(out, "cpus-per-task="+strconv.Itoa(slurm.CPUsPerTask.Value*j.GPUs/j.slots)) // the profile's value is per GPU
	}
	if slurm.Memory.known() {
		out = append(out, "mem="+slurmMemory(slurm.Memory.Value))
	}
	segment := cmp.Or(j.Segment, slurm.Segment.Value)
	if j.Segment == 0 && segment > 0 && j.Nodes%segment != 0 {
		segment = 0 // the profile's segment does not divide the nodes, which Slurm refuses
	}
	if segment > 0 {
		out = append(out, "segment="+strconv.Itoa(segment))
	}
	out = append(out, "time="+slurmTime(j.Time), "distribution=block:block", "exclusive")
	if j.certifies() {
		out = append(out, "no-kill") // a dead node is a result of the run and must not end it
	}
	if j.Partition != "" {
		out = append(out, "partition="+j.Partition)
	}
	if j.Account != "" {
		out = append(out, "account="+j.Account)
	}
	return out
}

// slurmMemory converts a quantity to Slurm's M, which is 2^20 bytes.
func slurmMemory(s string) string {
	q := resource.MustParse(s)
	return strconv.FormatInt(q.Value()>>20, 10) + "M"
}

func slurmTime(d time.Duration) string {
	m := int((d + time.Minute - 1) / time.Minute)
	return fmt.Sprintf("%d-%02d:%02d:00", m/(24*60), m/60%24, m%60)
}

// importImage imports the image into a file that all jobs share. Concurrent jobs import
// under names of their own, and the rename is atomic. The architecture is part of the
// file name, for clusters that have two.
func (j *job) importImage(s *script) {
	registry, rest, _ := strings.Cut(j.Image, "/")
	arch := j.profile.Arch.Value
	file := strings.NewReplacer("/", "+", ":", "+", "@", "+").Replace(rest) + "." + arch + ".sqsh"
	s.line("image=" + quote("docker://"+registry+"#"+rest))
	if j.ImageDir == "" {
		s.line("squash=$SLURM_SUBMIT_DIR/" + quote(file))
	} else {
		s.line("squash=" + quote(path.Join(j.ImageDir, file)))
	}
	s.line(`if [ ! -s "$squash" ]; then`)
	s.line(`  trap 'rm -f "$squash.$SLURM_JOB_ID"' EXIT`)
	s.line(`  enroot import --arch ` + arch + ` --output "$squash.$SLURM_JOB_ID" "$image"`)
	s.line(`  mv -f "$squash.$SLURM_JOB_ID" "$squash"`)
	s.line("fi")
	s.comment("As root of its own namespace an ordinary user is another one to PMIx.")
	s.line(`if [ "$(id -u)" -eq 0 ]; then root=--container-remap-root; else root=--no-container-remap-root; fi`)
	s.line("")
}

// srun starts the ranks.
func (j *job) srun(vars []Var) []string {
	words := []string{"srun"}
	if j.Run == RunNCCL { // the harness reads its rank from Slurm's own variables
		words = append(words, "--mpi=pmix")
	}
	switch n := j.profile.Slurm.CPUsPerTask; {
	case j.certifies():
		// A dead process or node is a result of the run and must not end it. The first
		// process to finish does not limit the others' time, whatever slurm.conf's
		// WaitTime is. Child processes may use all CPUs that the job has on the node.
		words = append(words, "--kill-on-bad-exit=0", "--no-kill", "--wait=0", "--cpu-bind=none")
	case n.known(): // since Slurm 22.05 srun does not inherit it from sbatch
		words = append(words, "--kill-on-bad-exit=1", "--cpus-per-task="+strconv.Itoa(n.Value))
	default:
		words = append(words, "--kill-on-bad-exit=1")
	}
	if j.Scheduler == SlurmEnroot {
		words = append(words, `--container-image="$squash"`, "--no-container-mount-home", `"$root"`)
		var mounts, names []string
		if j.certifies() {
			mounts = append(mounts, "$out:$out")
		}
		for _, d := range j.devices {
			mounts = append(mounts, d+":"+d)
		}
		if len(mounts) > 0 {
			words = append(words, `--container-mounts="`+strings.Join(mounts, ",")+`"`)
		}
		for _, v := range vars { // otherwise the image's values would override the job's
			names = append(names, v.Name)
		}
		if len(names) > 0 {
			words = append(words, "--container-env="+strings.Join(names, ","))
		}
	}
	if j.apart() {
		words = append(words, "bash", "-c", `'exec "${@:2}" --out "$1/$SLURMD_NODENAME/"'`, "-", `"$out"`)
		return append(words, j.rankCommand()...)
	}
	words = append(words, j.rankCommand()...)
	if j.certifies() {
		words = append(words, "--out", `"$out/"`)
	}
	return words
}
