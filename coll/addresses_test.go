package coll

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/assay-hpc/assay/coll/colltest"
)

// TestDeadAddresses: two hosts have networks of containers, which come before the link between them in
// the order of the system, and whose addresses lead nowhere from the other host: the same ones on both
// and with names as Docker gives them, or others, where the link has the default route.
func TestDeadAddresses(t *testing.T) {
	for _, count := range []int{3, 20, 80} {
		for _, docker := range []bool{true, false} {
			t.Run(fmt.Sprintf("%d, docker=%v", count, docker), func(t *testing.T) {
				n := colltest.Veth(t)
				for side := range 2 {
					var batch strings.Builder
					if !docker {
						fmt.Fprintf(&batch, "route add default dev %s\n", n.Interface)
					}
					for i := range count {
						name, last := fmt.Sprintf("br-%012x", i), 1
						if !docker {
							name, last = fmt.Sprint("net", i), 1+side
						}
						fmt.Fprintf(&batch, "link add %[1]s type veth peer name container%[2]d\nlink set %[1]s up\nlink set container%[2]d up\n", name, i)
						fmt.Fprintf(&batch, "addr add 172.%d.%d.%d/24 dev %s\n", 16+i%15, i, last, name)
					}
					cmd := exec.Command("ip", "-n", n.Names[side], "-batch", "-")
					cmd.Stdin = strings.NewReader(batch.String())
					if out, err := cmd.CombinedOutput(); err != nil {
						t.Fatalf("%v: %s", err, out)
					}
				}
				start := time.Now()
				job := colltest.Start(t, colltest.JobOptions{Program: "sums", Ranks: 4, Arg: "socket small", Prefix: func(r int) []string { return n.Prefix(r % 2) }})
				for _, r := range job.Wait(5 * time.Minute) {
					if err := r.Clean(); err != nil {
						t.Error(err)
					}
				}
				t.Logf("all sums after %v", time.Since(start).Round(time.Millisecond))
			})
		}
	}
}
