//go:build cgo

package netplugintest_test

import (
	"os"
	"testing"

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
