package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/coll/colltest"
)

// TestEnvNetns asks a host made of a network namespace for its control plane:
// real interfaces, addresses and routes.
func TestEnvNetns(t *testing.T) {
	net := colltest.Veth(t)
	in := func(args ...string) string {
		t.Helper()
		out, err := exec.Command("ip", append([]string{"netns", "exec", net.Names[0]}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("%q: %v: %s", args, err, out)
		}
		return string(out)
	}
	for _, args := range []string{"ip link add docker0 type bridge", "ip address add 172.17.0.1/16 dev docker0", "ip link set docker0 up"} {
		in(strings.Fields(args)...)
	}
	four, six := net.V4[1].String(), net.V6[1].String()
	for _, tt := range []struct{ flags, want, not string }{
		{"", "export NCCL_SOCKET_IFNAME='=" + net.Interface + "'", "AF_INET6"},
		{"--peers " + four + "," + net.V4[0].String(), "export GLOO_SOCKET_IFNAME='" + net.Interface + "'  #", "AF_INET6"},
		{"--peers " + six, "export NCCL_SOCKET_FAMILY='AF_INET6'", "docker0"},
		{"--peers " + six + "," + four, "no IPv6 route", "export NCCL_SOCKET_FAMILY"}, // one host each
		{"--peers 172.17.0.9", "reached over docker0", "export"},
	} {
		out := in(append([]string{"harness", "show", "environment", "--export"}, strings.Fields(tt.flags)...)...)
		if !strings.Contains(out, tt.want) || strings.Contains(out, tt.not) {
			t.Errorf("harness show environment %s: want %q and not %q:\n%s", tt.flags, tt.want, tt.not, out)
		}
	}
}
