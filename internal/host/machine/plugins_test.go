package machine

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-hpc/assay/internal/elf/elftest"
	"github.com/assay-hpc/assay/internal/host/netenv"
)

// TestPlugins: what a plugin needs says what it is, whatever its place; those of
// LD_LIBRARY_PATH come first, those of installers last; links count once.
func TestPlugins(t *testing.T) {
	root := t.TempDir()
	write := func(name string, needed ...string) {
		t.Helper()
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, elftest.File{Needed: needed}.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("/mine/libnccl-net.so", "libfabric.so.1", "libc.so.6")
	write("/usr/lib64/libnccl-net.so", "libsharp_coll.so.5")
	write("/opt/other/libnccl-net.so", "libc.so.6")
	write("/opt/amazon/ofi-nccl/lib/libnccl-net-ofi.so")
	write("/opt/hpcx/nccl_spectrum-x_plugin/lib/libnccl-net-spcx.so")
	write("/opt/hpcx/nccl_rdma_sharp_plugin/lib/libnccl-net-sharp.so", "libsharp_coll.so.5")
	if err := os.MkdirAll(root+"/etc", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(root+"/etc/ld.so.conf", []byte("/opt/other\n/linked\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/opt/other", root+"/linked"); err != nil {
		t.Fatal(err)
	}
	want := []netenv.Plugin{
		{Path: "/mine/libnccl-net.so", Kind: netenv.PluginOFI, Listed: true},
		{Path: "/opt/other/libnccl-net.so", Kind: netenv.PluginOther, Listed: true},
		{Path: "/usr/lib64/libnccl-net.so", Kind: netenv.PluginSHARP, Listed: true},
		{Path: "/opt/amazon/ofi-nccl/lib/libnccl-net-ofi.so", Name: "ofi", Kind: netenv.PluginOFI},
		{Path: "/opt/hpcx/nccl_rdma_sharp_plugin/lib/libnccl-net-sharp.so", Name: "sharp", Kind: netenv.PluginSHARP},
		{Path: "/opt/hpcx/nccl_spectrum-x_plugin/lib/libnccl-net-spcx.so", Name: "spcx", Kind: netenv.PluginSpectrumX},
	}
	if diff := cmp.Diff(want, plugins(root, "relative:/mine")); diff != "" {
		t.Errorf("plugins (-want +got):\n%s", diff)
	}
}
