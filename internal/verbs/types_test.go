package verbs

import (
	"errors"
	"strings"
	"syscall"
	"testing"
)

func gid(t *testing.T, s string) GID {
	t.Helper()
	g, err := parseGID(s)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestDefaultGID(t *testing.T) {
	local := gid(t, "fe80:0000:0000:0000:0011:22ff:fe33:4455")
	v6 := gid(t, "2001:0db8:0000:0000:0000:0000:0000:0001")
	v4 := gid(t, "0000:0000:0000:0000:0000:ffff:0a09:0001")
	// What a ConnectX has with an address of each family.
	usual := []GIDEntry{{0, local, 1, ""}, {1, local, 2, ""}, {2, v4, 1, ""}, {3, v4, 2, ""}, {4, v6, 1, ""}, {5, v6, 2, ""}}
	for _, c := range []struct {
		name  string
		table []GIDEntry
		ipv6  bool
		want  int
		ok    bool
	}{
		{"none", nil, false, 0, false},
		{"empty entries", []GIDEntry{{0, GID{}, 2, ""}}, false, 0, false},
		{"usual", usual, false, 3, true},
		{"usual, IPv6", usual, true, 1, true},
		{"ties keep the earlier", []GIDEntry{{3, v4, 2, ""}, {7, v4, 2, ""}}, false, 3, true},
		{"only link-local", usual[:2], false, 1, true},
	} {
		if got, ok := DefaultGID(c.table, c.ipv6); got != c.want || ok != c.ok {
			t.Errorf("%s: %d %v, want %d %v", c.name, got, ok, c.want, c.ok)
		}
	}
}

func TestGID(t *testing.T) {
	v4 := gid(t, "0000:0000:0000:0000:0000:ffff:0a09:0001")
	if v4.String() != "10.9.0.1" || !v4.IsIPv4() || v4.IsZero() {
		t.Errorf("%v: IPv4 %v, zero %v", v4, v4.IsIPv4(), v4.IsZero())
	}
	local := gid(t, "fe80:0000:0000:0000:0011:22ff:fe33:4455")
	if local.String() != "fe80::11:22ff:fe33:4455" || local.IsIPv4() {
		t.Errorf("%v: IPv4 %v", local, local.IsIPv4())
	}
	for _, s := range []string{"", "fe80", "zz80:0000:0000:0000:0011:22ff:fe33:4455", strings.Repeat("00", 17)} {
		if _, err := parseGID(s); err == nil {
			t.Errorf("%q is taken for a GID", s)
		}
	}
}

func TestMTU(t *testing.T) {
	for m, bytes := range map[MTU]int{1: 256, 2: 512, 3: 1024, 4: 2048, 5: 4096, 0: 0, 6: 0, -1: 0} {
		if got := m.Bytes(); got != bytes {
			t.Errorf("MTU %d has %d bytes, want %d", m, got, bytes)
		}
		if bytes != 0 && MTUOf(bytes) != m {
			t.Errorf("%d bytes are MTU %d, want %d", bytes, MTUOf(bytes), m)
		}
	}
	if MTUOf(1500) != 0 {
		t.Error("1500 is no MTU of InfiniBand")
	}
}

func TestErrors(t *testing.T) {
	e := newError("ibv_modify_qp(RTR)", "mlx5_0", syscall.EINVAL)
	e.Port, e.QPN, e.State, e.What = 1, 0x12, "INIT", "from GID index 9 to 10.9.0.2"
	want := "ibv_modify_qp(RTR) on mlx5_0 port 1, QP 0x000012 in INIT, from GID index 9 to 10.9.0.2: invalid argument (errno 22): the GID index (-x)"
	if !strings.HasPrefix(e.Error(), want) {
		t.Errorf("%s\nwant %s …", e, want)
	}
	if !errors.Is(e, syscall.EINVAL) {
		t.Error("the errno is lost")
	}
	for call, errno := range map[string]syscall.Errno{"ibv_reg_mr": syscall.ENOMEM, "ibv_create_qp": syscall.ENOMEM, "ibv_open_device": syscall.ENODEV, "ibv_modify_qp(RTS)": syscall.EINVAL, "rdma_resolve_route": syscall.ENODEV, "rdma_bind_addr": syscall.EADDRNOTAVAIL} {
		if newError(call, "mlx5_0", errno).Cause == "" {
			t.Errorf("%s, %v: no cause is known", call, errno)
		}
	}
	if newError("ibv_reg_mr", "mlx5_0", nil).Errno != syscall.EIO {
		t.Error("an error without a number is not EIO")
	}
	c := &CompletionError{Status: retryExceeded, VendorError: 0x81, QPN: 0x17, Device: "mlx5_0", Port: 1}
	if s := c.Error(); !strings.Contains(s, "QP 0x000017 on mlx5_0 port 1 failed: transport retry count exceeded (status 12, vendor error 0x81): nothing returned") {
		t.Error(s)
	}
}

func TestNames(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{RC.String(), "RC"}, {UD.String(), "UD"}, {Transport(9).String(), "transport 9"}, {stateRTS.String(), "RTS"}, {qpState(17).String(), "17"},
		{portActive.String(), "ACTIVE"}, {roce(2).String(), "RoCE v2"},
		{Event{Type: eventPortDown, Port: 1}.String(), "port error on port 1"}, {Event{Type: eventQPFatal, QPN: 3}.String(), "QP fatal error on QP 0x000003"},
		{Event{Type: eventDeviceDead}.String(), "device fatal error"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}

// TestNoLibrary holds wherever this is run: there is an answer, and where there
// is no device it is not one.
func TestNoLibrary(t *testing.T) {
	if err := Load(); err != nil && (!errors.Is(err, ErrNoLibrary) || strings.Contains(err.Error(), "\n")) {
		t.Errorf("%v", err)
	}
	names, err := Names()
	if err != nil && !errors.Is(err, ErrNoLibrary) {
		t.Errorf("%v", err)
	}
	t.Logf("devices: %q, %v", names, err)
}
