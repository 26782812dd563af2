package bootstrap

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/assay-hpc/assay/internal/meet"
)

// An ID identifies a future communicator, and lets its holder join: it contains the
// addresses of the root and a secret. Every holder is trusted. All its bytes are
// significant; it may be copied and sent as it is.
//
//	0    4  "ASB1"
//	4   32  secret
//	36   1  number of addresses, at most 5; bit 7: the root may start later
//	37  18  address: 16 bytes IP (IPv4 mapped into IPv6), 2 port, big endian
//	…       the rest is zero
//
// Zones of link-local addresses are not included: they are valid only on the root's host.
// A caller tries its own zones.
type ID [128]byte

const (
	idMagic     = "ASB1"
	idAddrs     = 37
	idMaxAddrs  = 5
	idLate      = 0x80
	secretBytes = 32
)

func newID(secret [secretBytes]byte, addrs []netip.AddrPort, late bool) ID {
	var id ID
	copy(id[:], idMagic)
	copy(id[4:], secret[:])
	addrs = addrs[:min(len(addrs), idMaxAddrs)]
	id[36] = byte(len(addrs))
	if late {
		id[36] |= idLate
	}
	for i, a := range addrs {
		putAddr(id[idAddrs+18*i:], a)
	}
	return id
}

func randomSecret() (s [secretBytes]byte) {
	rand.Read(s[:]) // never fails: crypto/rand ends the process instead
	return s
}

func (id ID) secret() []byte { return id[4 : 4+secretBytes] }

// late reports whether the root may start later than the ID is known.
func (id ID) late() bool { return id[36]&idLate != 0 }

// addrs returns the root's addresses, best first.
func (id ID) addrs() ([]netip.AddrPort, error) {
	if string(id[:4]) != idMagic {
		return nil, errors.New("this is not a communicator id: make one with NewRoot (is it all zero, or from another version?)")
	}
	n := int(id[36] &^ idLate)
	if n == 0 || n > idMaxAddrs {
		return nil, fmt.Errorf("communicator id with %d addresses; 1 to %d are possible", n, idMaxAddrs)
	}
	var out []netip.AddrPort
	for i := range n {
		a := getAddr(id[idAddrs+18*i:])
		if !a.Addr().IsValid() || a.Addr().IsUnspecified() || a.Port() == 0 {
			return nil, fmt.Errorf("communicator id with address %v", a)
		}
		out = append(out, a)
	}
	return out, nil
}

// String names the ID, with addresses and a fingerprint, without the secret.
func (id ID) String() string {
	addrs, err := id.addrs()
	if err != nil {
		return "id(invalid)"
	}
	return fmt.Sprintf("id(%s, %x)", joined(addrs), derive(id.secret(), "fingerprint")[:4])
}

func joined(addrs []netip.AddrPort) string {
	var names []string
	for _, a := range addrs {
		names = append(names, a.String())
	}
	return strings.Join(names, " ")
}

// GoString is String: %#v must not print the secret either.
func (id ID) GoString() string { return id.String() }

// IDAt returns the ID of a root that listens, or will listen, at "host:port". Its secret
// is derived from the given one and the address. With an empty secret, any process that
// knows the address can join.
func IDAt(addr string, secret []byte) (ID, error) {
	host, service, err := net.SplitHostPort(addr)
	if err != nil {
		return ID{}, fmt.Errorf("root address %q: %w; write host:port", addr, err)
	}
	port, err := strconv.ParseUint(service, 10, 16)
	if err != nil || port == 0 {
		return ID{}, fmt.Errorf("root address %q: port %q is not in 1 … 65535", addr, service)
	}
	ips, err := resolve(host)
	if err != nil {
		return ID{}, fmt.Errorf("root address %q: %w", addr, err)
	}
	var addrs []netip.AddrPort
	for _, ip := range ips {
		addrs = append(addrs, netip.AddrPortFrom(ip, uint16(port)))
	}
	return newID([secretBytes]byte(derive(secret, "root at "+addr)), addrs, true), nil
}

// resolve returns a host's addresses, best first. A host often resolves its own name to a
// loopback address, which is of no use to other hosts: then resolve returns the addresses
// of its interfaces.
func resolve(host string) ([]netip.Addr, error) {
	if ip, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{ip.Unmap()}, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	for i := range ips {
		ips[i] = ips[i].Unmap().WithZone("")
	}
	if host != "localhost" && !slices.ContainsFunc(ips, func(a netip.Addr) bool { return !a.IsLoopback() }) {
		if list, err := meet.Interfaces("", ""); err == nil {
			ips = nil
			for _, i := range list {
				ips = append(ips, i.Addr.WithZone(""))
			}
		}
	}
	slices.SortStableFunc(ips, meet.CompareAddrs)
	return ips, nil
}

// derive derives a key for one purpose from a secret: HMAC-SHA256 over the label.
func derive(secret []byte, label string) []byte {
	m := hmac.New(sha256.New, secret)
	m.Write([]byte("assay bootstrap 1 " + label))
	return m.Sum(nil)
}

func putAddr(b []byte, a netip.AddrPort) {
	ip := a.Addr().As16()
	copy(b, ip[:])
	binary.BigEndian.PutUint16(b[16:], a.Port())
}

// appendAddrs writes up to idMaxAddrs addresses: their number (1), and 18 bytes each.
func appendAddrs(b []byte, addrs []netip.AddrPort) []byte {
	addrs = addrs[:min(len(addrs), idMaxAddrs)]
	b = append(b, byte(len(addrs)))
	for _, a := range addrs {
		b = append(b, make([]byte, 18)...)
		putAddr(b[len(b)-18:], a)
	}
	return b
}

// cutAddrs reads what appendAddrs writes, and returns what follows.
func cutAddrs(b []byte) (addrs []netip.AddrPort, rest []byte, err error) {
	if len(b) == 0 || b[0] == 0 || b[0] > idMaxAddrs || len(b) < 1+18*int(b[0]) {
		return nil, nil, errors.New("addresses are cut off")
	}
	for i := range int(b[0]) {
		addrs = append(addrs, getAddr(b[1+18*i:]))
	}
	return addrs, b[1+18*int(b[0]):], nil
}

func getAddr(b []byte) netip.AddrPort {
	ip := netip.AddrFrom16([16]byte(b)).Unmap()
	return netip.AddrPortFrom(ip, binary.BigEndian.Uint16(b[16:]))
}
