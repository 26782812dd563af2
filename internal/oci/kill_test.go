package oci

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// childEnv makes the test binary push and nothing else: "DIR REPO".
const childEnv = "ASSAY_TEST_PUSH"

func TestMain(m *testing.M) {
	if args := os.Getenv(childEnv); args != "" {
		dir, repo, _ := strings.Cut(args, " ")
		if _, err := push(context.Background(), dir, "fabric", repo, []string{"hash", "moving"}, quick); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// TestPushKilled kills a pushing process at one change of the registry after
// another, each of a fresh registry, and has the next push complete the work.
func TestPushKilled(t *testing.T) {
	l := newTarget(t, "fabric")
	for name, api := range bothReferrers {
		t.Run(name, func(t *testing.T) {
			whole := newRegistry(t, api)
			if _, err := push(t.Context(), l.Dir(), "fabric", whole.repo(), []string{"hash", "moving"}, quick); err != nil {
				t.Fatal(err)
			}
			changes, _ := whole.seen()
			// The referrers, their fallback tags and the tags are where order
			// matters: every one of them. Of the changes before, one in nine.
			for at := 1; at <= len(changes); at++ {
				if at%9 == 0 || at > len(changes)-14 {
					killAt(t, newRegistry(t, api), l, at)
				}
			}
		})
	}
}

func killAt(t *testing.T, r *testRegistry, l *Layout, at int) {
	t.Helper()
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
	child.Env = append(os.Environ(), childEnv+"="+l.Dir()+" "+r.repo())
	dead := make(chan struct{})
	reached := make(chan struct{}, 100)
	n := 0
	r.intercept(func(_ int, _ http.ResponseWriter, req *http.Request) bool {
		if req.Method == http.MethodGet || req.Method == http.MethodHead {
			return false
		}
		r.mu.Lock()
		n++
		last := n >= at
		r.mu.Unlock()
		if last {
			reached <- struct{}{}
			<-dead // the change is neither made nor answered
		}
		return last
	})
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	<-reached
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()
	close(dead)

	_, tagsBefore := r.seen()
	stored := r.stored(t, l)
	r.reset()
	res, err := push(t.Context(), l.Dir(), "fabric", r.repo(), []string{"hash", "moving"}, quick)
	if err != nil {
		t.Fatalf("push after one that was killed at change %d: %v", at, err)
	}
	expectComplete(t, r, l, "fabric", "hash", "moving")
	if res.Blobs > 13-stored { // fewer, if the registry was still storing one
		t.Errorf("killed at change %d: %d of 13 blobs were there, yet %d were uploaded", at, stored, res.Blobs)
	}
	if slices.Contains(tagsBefore, "moving") {
		t.Errorf("killed at change %d: the moving tag was set before the end", at)
	}
}

// stored counts the target's blobs that the registry has.
func (r *testRegistry) stored(t *testing.T, l *Layout) int {
	t.Helper()
	p, err := l.plan(root(t, l, "fabric"))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, b := range p.blobs {
		if r.ask(http.MethodHead, "/v2/owner/assay/blobs/"+b.Digest.String()).Code == http.StatusOK {
			n++
		}
	}
	return n
}
