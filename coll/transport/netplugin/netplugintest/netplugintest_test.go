//go:build cgo

package netplugintest_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/coll/transport/netplugin"
	"github.com/assay-hpc/assay/coll/transport/netplugin/netplugintest"
)

// TestPlugin runs the suite on the plugin that ASSAY_NET_PLUGIN names.
func TestPlugin(t *testing.T) {
	entry := os.Getenv("ASSAY_NET_PLUGIN")
	if entry == "" {
		t.Skip("ASSAY_NET_PLUGIN names no plugin")
	}
	netplugintest.Run(t, entry)
}

// TestCollNet runs the suite of networks that reduce on the plugin that
// ASSAY_NET_PLUGIN names.
func TestCollNet(t *testing.T) {
	entry := os.Getenv("ASSAY_NET_PLUGIN")
	if entry == "" {
		t.Skip("ASSAY_NET_PLUGIN names no plugin")
	}
	l, err := netplugin.Load(entry)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := l.CollNetName(); !ok {
		t.Skip("the plugin has no table for networks that reduce")
	}
	netplugintest.RunCollNet(t, entry)
}

// TestOurs runs the suite on the test plugin, in several moods.
func TestOurs(t *testing.T) {
	t.Setenv("ASSAY_TEST_NET_STRICT", "1")
	for name, env := range map[string]map[string]string{
		"plain": nil,
		"nasty": {"ASSAY_TEST_NET_CONNECT": "5", "ASSAY_TEST_NET_BUSY": "2", "ASSAY_TEST_NET_PARTIAL": "100000"},
	} {
		t.Run(name, func(t *testing.T) {
			for k, v := range env {
				t.Setenv(k, v)
			}
			netplugintest.Run(t, netplugintest.Build(t))
		})
	}
	t.Run("version 8", func(t *testing.T) { netplugintest.Run(t, netplugintest.Build(t, "-DONLY=8")) })
}

// TestOursCollNet runs the suite on what of the test plugin reduces.
func TestOursCollNet(t *testing.T) {
	t.Setenv("ASSAY_TEST_NET_STRICT", "1")
	file := netplugintest.Build(t)
	t.Run("plain", func(t *testing.T) { netplugintest.RunCollNet(t, file) })
	t.Run("nasty", func(t *testing.T) {
		t.Setenv("ASSAY_TEST_COLLNET_BUSY", "2")
		t.Setenv("ASSAY_TEST_NET_PARTIAL", "10000")
		netplugintest.RunCollNet(t, file)
	})
	for _, v := range []string{"-DONLY=8", "-DONLY=10", "-DALLREDUCE_ONLY"} {
		t.Run(v, func(t *testing.T) { netplugintest.RunCollNet(t, netplugintest.Build(t, v)) })
	}
}

// TestCollNetBites: as TestBites, of networks that reduce.
func TestCollNetBites(t *testing.T) {
	file := netplugintest.Build(t)
	for rule, tt := range map[string]struct{ run, want string }{
		"sum":      {"reductions", "at head 0 broke a rule: the result is what is asked for"},
		"few":      {"requests", "collnet plugin assay test reducing: iallreduce: internal error (3)"},
		"null":     {"groups", "connect: it returned success and no object"},
		"supports": {"reductions", "reduceSupport broke a rule: a network that reduces has a reduction"},
	} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestCollNet$/"+tt.run, "-test.v")
		cmd.Env = append(os.Environ(), "ASSAY_NET_PLUGIN="+file, "ASSAY_TEST_COLLNET_BREAK="+rule)
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), tt.want) {
			t.Errorf("%s: %v; want a failure with %q:\n%s", rule, err, tt.want, out)
		}
	}
}

// TestBites: a plugin that breaks a rule fails the suite, which says what the
// rule is.
func TestBites(t *testing.T) {
	file := netplugintest.Build(t)
	for rule, tt := range map[string]struct{ run, want string }{
		"length": {"device_0/sizes", "test broke a rule: it says of a receive how many bytes came: 0 were sent, it says 1"},
		"behind": {"device_0/receive", "irecv broke a rule: memory behind a message of 0 bytes in a receive of 100000 is not touched"},
		"few":    {"device_0/requests", "network plugin assay test: irecv: internal error (3)"},
		"speed":  {"properties", "getProperties(0) broke a rule: the speed is positive"},
		"handle": {"device_0/listen", "listen: it wrote more than 128 bytes of handle"},
		"block":  {"device_0/patience", "accept broke a rule: it does not block"},
		"bytes":  {"device_0/order", "irecv broke a rule: what is received is what was sent"},
	} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestPlugin$/"+tt.run, "-test.v")
		cmd.Env = append(os.Environ(), "ASSAY_NET_PLUGIN="+file, "ASSAY_TEST_NET_BREAK="+rule)
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), tt.want) {
			t.Errorf("%s: %v; want a failure with %q:\n%s", rule, err, tt.want, out)
		}
	}
}
