package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/assay-hpc/assay/internal/exit"
)

// What does not end when it is told ends all the same: after a while, or when
// it is told again.
func TestLeave(t *testing.T) {
	if after, err := time.ParseDuration(os.Getenv("ASSAY_TEST_LEAVE")); err == nil {
		go leave(os.Stderr, after)
		time.Sleep(100 * time.Millisecond) // until it listens
		fmt.Println("ready")
		select {}
	}
	for _, tt := range []struct {
		after   string
		signals int
		want    string
	}{{"10ms", 1, "did not end within 10ms"}, {"1h", 2, "terminated again"}} {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(self, "-test.run=^TestLeave$")
		cmd.Env = append(os.Environ(), "ASSAY_TEST_LEAVE="+tt.after)
		var errOut bytes.Buffer
		cmd.Stderr = &errOut
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		for range tt.signals {
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			time.Sleep(200 * time.Millisecond) // two at once are one
		}
		var status *exec.ExitError
		if err := cmd.Wait(); !errors.As(err, &status) || status.ExitCode() != exit.NotDone || !strings.Contains(errOut.String(), tt.want) {
			t.Errorf("%+v: %v, %q", tt, err, errOut.String())
		}
	}
}
