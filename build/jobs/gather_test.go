package jobs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

// gatherNames stands in for getent: a pod's name leads to it while it is ready.
const gatherNames = `#!/bin/bash
[ "$1" = hosts ] && [ -e "$DIR/ready-$2" ]
`

// gatherHarness stands in for the harness: it says what torchrun's variables are,
// and ends as the test says. One that hangs lets its neighbour say it first.
const gatherHarness = `#!/bin/bash
echo "$(ls "$DIR" | grep -c ready-) ready, $RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE, at $MASTER_ADDR:$MASTER_PORT, $*"
touch "$DIR/said-$RANK"
case $RANK in
"$FAILS") exit 3 ;;
"$HANGS") until [ -e "$DIR/said-$((RANK - 1))" ]; do sleep 0.05; done
	touch "$DIR/hangs" && exec sleep 60 ;;
esac
`

// TestGather runs the pods of a JobSet as they are rendered, as processes of this
// machine: they wait for one another, and each starts what its node is to.
func TestGather(t *testing.T) {
	for _, tt := range []struct {
		name, run    string
		fails, hangs string // a rank
		lost         int    // a pod that never comes; 0: none
		slow         time.Duration
		status       [3]int // of the pods; -1: it is not started
	}{
		{"a process a node", RunCertify, "", "", 0, 0, [3]int{}},
		{"the last comes late", RunCertify, "", "", 0, 1200 * time.Millisecond, [3]int{}},
		{"a process a GPU", RunColl, "", "", 0, 0, [3]int{}},
		{"one of them fails", RunColl, "3", "", 0, 0, [3]int{0, 3, 0}},
		{"a pod never comes", RunCertify, "", "", 2, 0, [3]int{0, 0, -1}},
		{"a pod is ended", RunColl, "", "5", 0, 0, [3]int{0, 0, 143}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for name, text := range map[string]string{"getent": gatherNames, "harness": gatherHarness} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			text, err := Render(Options{Profile: "generic", Scheduler: JobSet, Image: image, Nodes: 3, GPUs: 2, Run: tt.run, Name: "a"})
			if err != nil {
				t.Fatal(err)
			}
			set := &Set{}
			if err := yaml.UnmarshalStrict(text, set); err != nil {
				t.Fatal(err)
			}
			c := set.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Containers[0]
			env := append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "DIR="+dir, "FAILS="+tt.fails, "HANGS="+tt.hangs)
			for _, v := range c.Env {
				env = append(env, v.Name+"="+v.Value)
			}
			seconds := "600"
			if tt.lost > 0 {
				seconds = "5"
			}
			var out [3]strings.Builder
			var status [3]int
			var wg sync.WaitGroup
			for pod := range 3 {
				if status[pod] = tt.status[pod]; status[pod] == -1 {
					continue
				}
				wg.Go(func() {
					if pod == 2 {
						time.Sleep(tt.slow)
					}
					name := fmt.Sprintf("a-node-0-%d.a", pod)
					words := make([]string, len(c.Command))
					for i, w := range c.Command {
						words[i] = strings.NewReplacer("$$(", "$(", readyFile, dir+"/ready-"+name, "+ 600", "+ "+seconds, inImage, dir+"/harness").Replace(w)
					}
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					cmd := exec.CommandContext(ctx, words[0], words[1:]...)
					cmd.Env = append(slices.Clone(env), fmt.Sprintf("JOB_COMPLETION_INDEX=%d", pod))
					cmd.Stdout, cmd.Stderr = &out[pod], &out[pod]
					if err := cmd.Start(); err != nil {
						t.Error(err)
						return
					}
					if tt.hangs != "" && pod == 2 { // kubelet ends it
						go func() {
							for ctx.Err() == nil {
								if _, err := os.Stat(dir + "/hangs"); err == nil {
									_ = cmd.Process.Signal(syscall.SIGTERM)
									return
								}
								time.Sleep(10 * time.Millisecond)
							}
						}()
					}
					err := cmd.Wait()
					var exit *exec.ExitError
					if errors.As(err, &exit) {
						status[pod] = exit.ExitCode()
					} else if err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if status != tt.status {
				t.Errorf("the pods end with %v; want %v\n%s%s%s", status, tt.status, out[0].String(), out[1].String(), out[2].String())
			}
			each := map[string]int{RunCertify: 1, RunColl: 2}[tt.run]
			for pod := range 3 {
				if status[pod] == -1 {
					continue
				}
				for i := range each {
					came := 3 // before the first process begins
					if tt.lost > 0 {
						came = 2
					}
					want := fmt.Sprintf("%d ready, %d of %d, %d of %d, at a-node-0-0.a:29500, exec -- ", came, pod*each+i, 3*each, i, each)
					if n := strings.Count(out[pod].String(), want); n != 1 {
						t.Errorf("pod %d says %d times %q:\n%s", pod, n, want, out[pod].String())
					}
				}
				if told := strings.Contains(out[pod].String(), "pod 2 has not come"); told != (tt.lost == 2 && pod == 0) {
					t.Errorf("pod %d: %s", pod, out[pod].String())
				}
			}
		})
	}
}
