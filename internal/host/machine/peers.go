package machine

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/host/netenv"
	"github.com/assay-hpc/assay/internal/infile"
)

// PeerNames returns the hosts of a list with commas, and those of a host file; "": there is none.
func PeerNames(list, hostfile string) ([]string, error) {
	var names []string
	for name := range strings.SplitSeq(list, ",") {
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, name)
		}
	}
	if hostfile != "" {
		text, err := infile.ReadArgument(hostfile, maxHostfile)
		if err != nil {
			return nil, exit.Usagef("--hostfile: %w", err)
		}
		more := hostfileNames(string(text))
		if len(more) == 0 {
			return nil, exit.Usagef("--hostfile: %s names no host", hostfile)
		}
		names = append(names, more...)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// maxHostfile is the largest host file that is read, in bytes.
const maxHostfile = 16 << 20

// hostfileNames parses a host file: one host per line, followed by fields that do not
// matter here (slots=8), and comments after #. It drops users before @ and numbers of
// slots after a colon.
func hostfileNames(text string) []string {
	var out []string
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		name := fields[0][strings.LastIndexByte(fields[0], '@')+1:]
		if _, err := netip.ParseAddr(name); err != nil {
			name, _, _ = strings.Cut(name, ":")
		}
		if name != "" {
			out = append(out, name)
		}
	}
	return out
}

// Name services answer within milliseconds or not at all, and can handle a hundred
// queries at a time.
const (
	lookUpTime = 5 * time.Second
	lookUps    = 100
)

// LookUp resolves the addresses of hosts.
func LookUp(ctx context.Context, names []string) []netenv.Peer {
	ctx, cancel := context.WithTimeout(ctx, lookUpTime)
	defer cancel()
	out := make([]netenv.Peer, len(names))
	slots := make(chan struct{}, lookUps)
	var wg sync.WaitGroup
	for i, name := range names {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			out[i] = netenv.Peer{Name: name, Addrs: []netip.Addr{}}
			if a, err := netip.ParseAddr(name); err == nil {
				out[i].Addrs = []netip.Addr{a}
				return
			}
			addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", name)
			if err != nil {
				out[i].Err = err.Error()
				return
			}
			for _, a := range addrs {
				out[i].Addrs = append(out[i].Addrs, a.Unmap())
			}
		})
	}
	wg.Wait()
	return out
}
