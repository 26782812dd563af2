package sysfs_test

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/assay-hpc/assay/internal/host/sysfs"
	"github.com/assay-hpc/assay/internal/host/sysfs/sysfstest"
)

func TestDMI(t *testing.T) {
	f := sysfstest.Tree(t, []byte("-- sys/class/dmi/id/sys_vendor --\nAmazon EC2\n-- sys/class/dmi/id/product_name --\np5.48xlarge\n"))
	if got, err := f.DMI(); err != nil || got != (sysfs.DMI{Vendor: "Amazon EC2", Product: "p5.48xlarge"}) {
		t.Errorf("DMI() = %+v, %v", got, err)
	}
	if got, err := sysfstest.Tree(t, nil).DMI(); !errors.Is(err, fs.ErrNotExist) || got != (sysfs.DMI{}) {
		t.Errorf("DMI() of nothing = %+v, %v; want fs.ErrNotExist", got, err)
	}
}

func TestContainer(t *testing.T) {
	for _, tt := range []struct{ name, tree, want string }{
		{"bare", "-- proc/1/cgroup --\n0::/init.scope\n-- proc/self/mounts --\n/dev/sda1 / ext4 rw 0 0\noverlay /var/lib/x overlay rw 0 0\n", ""},
		{"nothing", "", ""},
		{"docker", "-- .dockerenv --\n", "docker"},
		{"podman", "-- run/.containerenv --\n", "podman"},
		{"pod", "-- .dockerenv --\n-- var/run/secrets/kubernetes.io/serviceaccount/token --\nx\n", "kubernetes"},
		{"cgroup v1", "-- proc/1/cgroup --\n5:cpu:/kubepods/burstable/pod1\n", "kubernetes"},
		{"nspawn", "-- run/systemd/container --\nsystemd-nspawn\n", "systemd-nspawn"},
		{"cgroup namespace", "-- proc/1/cgroup --\n0::/\n-- proc/self/mounts --\noverlay / overlay rw 0 0\n", "a container with an overlay file system"},
		{"live system", "-- proc/self/mounts --\noverlay / overlay rw 0 0\n/dev/sda1 / ext4 rw 0 0\n", ""},
	} {
		if got := sysfstest.Tree(t, []byte(tt.tree)).Container(); got != tt.want {
			t.Errorf("%s: Container() = %q; want %q", tt.name, got, tt.want)
		}
	}
}
