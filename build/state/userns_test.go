package state

import (
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestSubIDs(t *testing.T) {
	file := filepath.Join(t.TempDir(), "subuid")
	if err := os.WriteFile(file, []byte("alice:100000:65536\nbob:165536:1000\n1003:200000:40000\n1003:300000:30000\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, uid, want string }{
		{"alice", "1001", "7 0 1000 1 1 100000 65536"},
		{"carol", "1003", "7 0 1000 1 1 200000 40000 40001 300000 30000"}, // by number, in two ranges
	} {
		ranges, err := subIDs(file, &user.User{Username: tt.name, Uid: tt.uid})
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		if got := strings.Join(idMap(7, 1000, ranges), " "); got != tt.want {
			t.Errorf("%s: %s; want %s", tt.name, got, tt.want)
		}
	}
	for name, file := range map[string]string{"bob": file, "dave": file, "eve": file + "-missing"} {
		if ranges, err := subIDs(file, &user.User{Username: name, Uid: "1010"}); err == nil || !strings.Contains(err.Error(), "usermod") || !strings.HasSuffix(err.Error(), name) {
			t.Errorf("%s: %v, %v; want the remedy", name, ranges, err)
		}
	}
}

// TestCanBeRoot: root is, and any other user is told why not.
func TestCanBeRoot(t *testing.T) {
	err := CanBeRoot()
	if os.Geteuid() == 0 && err != nil {
		t.Error(err)
	}
	if err != nil && !slices.ContainsFunc([]string{"usermod", "apt-get install", "sysctl", "apparmor_parser", "--security-opt"}, func(remedy string) bool { return strings.Contains(err.Error(), remedy) }) {
		t.Errorf("%v; want a remedy", err)
	}
}
