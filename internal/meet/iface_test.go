package meet

import (
	"net/netip"
	"strings"
	"testing"
)

func TestInterfaceSelection(t *testing.T) {
	list := func(s string) (out []Interface) {
		for f := range strings.FieldsSeq(s) {
			name, a, _ := strings.Cut(f, "=")
			name, leads := strings.CutSuffix(name, "*")
			out = append(out, Interface{name, netip.MustParseAddr(a), leads})
		}
		return out
	}
	all := "lo=127.0.0.1 lo=::1 docker0=172.17.0.1 eth0=fe80::1%eth0 eth0=10.0.0.1 eth0=fd00::1 eth10=10.0.1.1 ib0=10.9.0.1"
	for _, tt := range []struct{ all, ifname, family, want string }{
		{all, "", "", "10.0.0.1 10.0.1.1 10.9.0.1 fd00::1 fe80::1%eth0"},
		{all, "", "AF_INET6", "fd00::1 fe80::1%eth0"},
		{all, "eth", "AF_INET", "10.0.0.1 10.0.1.1"},
		{all, "=eth1", "AF_INET", "no interface fits NCCL_SOCKET_IFNAME=\"=eth1\""},
		{all, "=eth10", "", "10.0.1.1"},
		{all, "ib,eth", "AF_INET", "10.9.0.1 10.0.0.1 10.0.1.1"},
		{all, "^docker,lo", "AF_INET", "10.0.0.1 10.0.1.1 10.9.0.1"},
		{all, "^=eth0", "AF_INET", "127.0.0.1 172.17.0.1 10.0.1.1 10.9.0.1"},
		{all, "lo", "", "127.0.0.1 ::1"},
		{"lo=127.0.0.1 docker0=172.17.0.1", "", "", "172.17.0.1"},
		{"lo=127.0.0.1 lo=::1", "", "", "127.0.0.1 ::1"},
		{"eth0=fe80::1%eth0 lo=127.0.0.1", "", "", "fe80::1%eth0"},
		{"eth0=10.0.0.1 lo=::1", "", "AF_INET6", "::1"},
		{"veth1=fe80::3%veth1 br-5=fe80::2%br-5 eth0=fe80::1%eth0 eth0=10.0.0.1 ib0=169.254.0.9", "", "", "10.0.0.1 fe80::1%eth0"},
		{"veth1=fe80::3%veth1 br-5=fe80::2%br-5 eth0=10.0.0.1", "br", "", "fe80::2%br-5"},
		{"veth1=fe80::3%veth1 eth0=fe80::1%eth0 docker0=172.17.0.1", "", "", "fe80::1%eth0 fe80::3%veth1"},
		{"br-0123=172.18.0.1 bond0=10.0.0.1 veth7=10.1.0.1 eno1*=10.2.0.1 eno1*=fd00::1", "", "", "10.2.0.1 fd00::1 10.0.0.1 172.18.0.1 10.1.0.1"},
		{"br-0123=172.18.0.1 eno1*=10.2.0.1", "br,eno", "", "172.18.0.1 10.2.0.1"},
		{"br-0123=172.18.0.1 br0*=10.2.0.1", "", "", "10.2.0.1 172.18.0.1"},
		{"br-0123=172.18.0.1 lo=127.0.0.1", "", "", "172.18.0.1"},
		{"", "", "", "no network interface"},
		{all, "", "AF_UNIX", "NCCL_SOCKET_FAMILY"},
	} {
		got, err := selectInterfaces(list(tt.all), tt.ifname, tt.family)
		var s []string
		for _, i := range got {
			s = append(s, i.Addr.String())
		}
		text := strings.Join(s, " ")
		if err != nil {
			text = err.Error()
		}
		if text != tt.want && (err == nil || !strings.Contains(text, tt.want)) {
			t.Errorf("ifname %q, family %q of %s: %s; want %s", tt.ifname, tt.family, tt.all, text, tt.want)
		}
	}
}
