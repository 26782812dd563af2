//go:build cuda && cgo

package cuda

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/coll/cuda/emutest"
	"github.com/assay-hpc/assay/internal/gpu/driver"
	"github.com/assay-hpc/assay/internal/gputest"
)

// The tests that need GPUs, with a driver whose GPUs are emulated: all of the
// engine runs as it does on real ones, but for the speed. With -short these are random programs alone.
func TestEmulated(t *testing.T) {
	if driver.Init() == nil {
		t.Skip("there are GPUs")
	}
	lib := emutest.Driver(t, ".")
	all := []struct{ tests, devices, env string }{
		{"TestPrograms|TestStoppedPrograms", "2", ""},
		{"TestPrograms|TestStoppedPrograms", "4", ""},
		{"TestScaled|TestGroup|TestAllToAll|TestStreams|TestAbort|TestStagedAbort|TestMismatch|TestProcesses|TestPointers|TestStagedGraph|TestWays|TestHostedRefused|TestGraph|TestTuner|TestReuse|TestAbortFree|TestRegistered.*|TestHandover|TestDescriptors|TestDeparture", "2", ""},
		{"TestFailedOpen|TestWholePages|TestFailedLSA", "2", ""},
		{"TestLSA.*", "2", ""},
		{"TestLSA.*", "4", ""},
		{"TestConformance", "2", ""},
		{"TestCopies|TestRingEnds", "2", ""},
		{"TestGroup|TestStreams|TestProcesses", "2", "ASSAY_GPU_ALGO=copy:8:512:65536"},
		{"TestRoomRefused", "2", "FAKE_SMALL=1"},
		{"TestLinks", "2", ""},
		{"TestLinks|TestPrograms", "2", "FAKE_PCIE=1"},
		{"TestCopies|TestCopiedExchanges|TestLargeAverages|TestRegistered", "3", ""},
		{"TestLeftAlone", "3", "FAKE_LATE_COPIES=20"},
		{"TestGroup|TestAbort|TestNorm.*|TestSendOneBuffer|TestAllToAll", "4", ""},
		{"TestEnqueueAhead|TestAheadLeavesRoom|TestShared|TestGroupStreams|TestStreamsBetween", "2", ""},
		{"TestOppositeOrders", "4", ""},
		{"TestScaled", "2", "CUDA_LAUNCH_BLOCKING=1"},
		{"TestPrograms|TestGroup|TestScaled|TestReuse|TestAllToAll", "2", "ASSAY_CHECK=1:fail"},
		{"TestCopiedExchanges|TestLargeAverages", "3", "ASSAY_CHECK=1:fail"},
		{"TestVerifyFails", "2", ""},
		{"TestVerifyFlips|TestSuiteFlips", "3", ""},
		{"TestFewQueues", "2", "FAKE_MULTIPROCESSORS=2 FAKE_QUEUES=1 CUDA_DEVICE_MAX_CONNECTIONS=1"},
		{"TestFewQueues", "2", "FAKE_QUEUES=8 CUDA_DEVICE_MAX_CONNECTIONS=8"},
	}
	if testing.Short() {
		all = all[:2]
	}
	for _, c := range all {
		t.Run(c.devices+" "+c.tests, func(t *testing.T) {
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(self, "-test.run=^("+c.tests+")$", "-test.short", "-test.timeout=10m", "-test.v")
			cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+lib, "FAKE_DEVICES="+c.devices, gputest.Variable+"="+c.devices, "ASSAY_GPU_TEST_LIMIT=60000")
			cmd.Env = append(cmd.Env, strings.Fields(c.env)...)
			out, err := cmd.CombinedOutput()
			if err != nil || strings.Contains(string(out), "SKIP") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
