package jobs

import (
	"strconv"
	"time"
)

// docker returns a script that runs the image on this node.
func (j *job) docker() []byte {
	s := &script{}
	s.line("#!/bin/bash")
	for _, r := range j.remarks() {
		s.comment(r)
	}
	s.line("set -euo pipefail\n")
	// timeout sets the deadline: docker has none of its own.
	words := []string{"timeout", strconv.Itoa(int(j.Time / time.Second)), "docker", "run", "--rm", "--gpus", "all", "--network", "host", "--ipc", "host"}
	if j.rdma || j.fabric == "unknown" && !j.has("no-ib") {
		s.comment("RDMA: memory is pinned, and its device files must be in the container.")
		s.line("rdma=(--ulimit memlock=-1 --cap-add IPC_LOCK)")
		s.line("if [ -d /dev/infiniband ]; then rdma+=(--device /dev/infiniband); fi\n")
		words = append(words, `"${rdma[@]}"`)
	}
	for _, d := range j.devices {
		words = append(words, "--device", quote(d))
	}
	for _, v := range append(j.onMake[:len(j.onMake):len(j.onMake)], j.vars...) {
		s.comment(v.Name + ": " + v.reason())
		words = append(words, "--env", quote(v.Name+"="+v.Value))
	}
	if j.certifies() {
		s.comment(j.results("$out"))
		if j.OutputDir == "" {
			s.line("out=$PWD/" + quote(j.Name) + "-$(date +%Y%m%d-%H%M%S)")
		} else {
			s.line("out=" + quote(j.OutputDir))
		}
		s.line("mkdir -p \"$out\"\n")
		words = append(words, "--volume", `"$out:$out"`)
	}
	words = append(append(words, quote(j.Image)), j.rankCommand()...)
	if j.certifies() {
		words = append(words, "--out", `"$out/"`)
	}
	s.command(words...)
	return s.bytes()
}
