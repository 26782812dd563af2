package jobs

import (
	"strconv"
	"time"
)

// docker is a script that runs the image on this node.
func (j *job) docker() []byte {
	s := &script{}
	s.line("#!/bin/bash")
	for _, r := range j.remarks() {
		s.comment(r)
	}
	s.line("set -euo pipefail\n")
	// The command's own deadline: docker has none.
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
	if j.OutputDir != "" {
		s.line("mkdir -p " + quote(j.OutputDir))
		words = append(words, "--volume", quote(j.OutputDir+":"+j.OutputDir))
	}
	words = append(words, quote(j.Image))
	s.command(append(words, j.rankCommand(j.OutputDir)...)...)
	return s.bytes()
}
