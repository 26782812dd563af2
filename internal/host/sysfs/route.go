package sysfs

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"strconv"
	"strings"
)

// A Route is a usable entry of the kernel's main routing table. Reject routes and routes to the
// machine itself are omitted.
type Route struct {
	To      netip.Prefix // 0.0.0.0/0 or ::/0: the default route
	Gateway netip.Addr   // not valid: the destination is on the link
	Dev     string
	Metric  uint32 // the lower one of two routes to the same destination is used
}

// An InterfaceAddr is an IPv6 address of an interface.
type InterfaceAddr struct {
	Dev    string
	Prefix netip.Prefix // the address, with the prefix length of its network
}

// Flags in both tables (linux/route.h, ipv6_route.h).
const (
	routeUp      = 0x1
	routeReject  = 0x200
	routeAnycast = 0x00100000
	routeLocal   = 0x80000000
)

// Routes reads /proc/net/route and /proc/net/ipv6_route. They do not contain the rules that select
// other tables. The error is fs.ErrNotExist for a kernel without either file.
func (f FS) Routes() ([]Route, error) {
	four, err4 := f.read("/proc/net/route")
	six, err6 := f.read("/proc/net/ipv6_route")
	if err4 != nil && err6 != nil {
		return nil, err4
	}
	for _, err := range []error{err4, err6} {
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	out, err := ParseRoutes(four)
	if err != nil {
		return nil, fmt.Errorf("/proc/net/route: %w", err)
	}
	more, err := ParseRoutes6(six)
	if err != nil {
		return nil, fmt.Errorf("/proc/net/ipv6_route: %w", err)
	}
	return append(out, more...), nil
}

// ParseRoutes parses /proc/net/route: a header, then interface, destination, gateway, flags, two
// counts, metric and mask. Addresses are hexadecimal, in the byte order of a little-endian
// processor.
func ParseRoutes(text string) ([]Route, error) {
	var out []Route
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] == "Iface" {
			continue
		}
		bad := fmt.Errorf("%.80q is no route", strings.TrimSpace(line))
		if len(f) < 8 {
			return nil, bad
		}
		to, err1 := address4(f[1])
		gateway, err2 := address4(f[2])
		flags, err3 := strconv.ParseUint(f[3], 16, 32)
		metric, err4 := strconv.ParseUint(f[6], 10, 32)
		mask, err5 := address4(f[7])
		if errors.Join(err1, err2, err3, err4, err5) != nil {
			return nil, bad
		}
		bits, ok := maskBits(mask)
		if !ok {
			return nil, bad
		}
		if flags&routeUp == 0 || flags&routeReject != 0 {
			continue
		}
		r := Route{To: netip.PrefixFrom(to, bits), Dev: f[0], Metric: uint32(metric)}
		if !gateway.IsUnspecified() {
			r.Gateway = gateway
		}
		out = append(out, r)
	}
	return out, nil
}

// ParseRoutes6 parses /proc/net/ipv6_route: destination, its prefix length, source, its prefix
// length, next hop, metric, two counts, flags and interface. Numbers are hexadecimal.
func ParseRoutes6(text string) ([]Route, error) {
	var out []Route
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		bad := fmt.Errorf("%.160q is no route", strings.TrimSpace(line))
		if len(f) < 10 {
			return nil, bad
		}
		to, err1 := address6(f[0])
		bits, err2 := strconv.ParseUint(f[1], 16, 8)
		gateway, err3 := address6(f[4])
		metric, err4 := strconv.ParseUint(f[5], 16, 32)
		flags, err5 := strconv.ParseUint(f[8], 16, 32)
		if errors.Join(err1, err2, err3, err4, err5) != nil || bits > 128 {
			return nil, bad
		}
		if flags&routeUp == 0 || flags&(routeReject|routeLocal|routeAnycast) != 0 {
			continue
		}
		r := Route{To: netip.PrefixFrom(to, int(bits)), Dev: f[9], Metric: uint32(metric)}
		if !gateway.IsUnspecified() {
			r.Gateway = gateway
		}
		out = append(out, r)
	}
	return out, nil
}

// Addresses6 reads the interfaces' IPv6 addresses from /proc/net/if_inet6. The kernel has no such
// file for IPv4.
func (f FS) Addresses6() ([]InterfaceAddr, error) {
	text, err := f.read("/proc/net/if_inet6")
	if err != nil {
		return nil, err
	}
	return ParseAddresses6(text)
}

// ParseAddresses6 parses /proc/net/if_inet6: address, index, prefix length, scope, flags,
// interface. Numbers are hexadecimal.
func ParseAddresses6(text string) ([]InterfaceAddr, error) {
	var out []InterfaceAddr
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		if len(f) < 6 {
			return nil, fmt.Errorf("%.80q is not an address", strings.TrimSpace(line))
		}
		addr, err1 := address6(f[0])
		bits, err2 := strconv.ParseUint(f[2], 16, 8)
		if err1 != nil || err2 != nil || bits > 128 {
			return nil, fmt.Errorf("%.80q is not an address", strings.TrimSpace(line))
		}
		out = append(out, InterfaceAddr{Dev: f[5], Prefix: netip.PrefixFrom(addr, int(bits))})
	}
	return out, nil
}

func address4(s string) (netip.Addr, error) {
	v, err := strconv.ParseUint(s, 16, 32)
	if err != nil || len(s) != 8 {
		return netip.Addr{}, fmt.Errorf("%.20q is not an address", s)
	}
	var b [4]byte
	binary.LittleEndian.PutUint32(b[:], uint32(v))
	return netip.AddrFrom4(b), nil
}

func address6(s string) (netip.Addr, error) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != 16 {
		return netip.Addr{}, fmt.Errorf("%.40q is not an address", s)
	}
	return netip.AddrFrom16([16]byte(b)), nil
}

// maskBits returns the number of bits of a mask, if they are contiguous.
func maskBits(mask netip.Addr) (int, bool) {
	b := mask.As4()
	v := binary.BigEndian.Uint32(b[:])
	for bits := range 33 {
		if v == ^uint32(0)<<(32-bits) {
			return bits, true
		}
	}
	return 0, false
}
