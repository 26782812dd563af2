package session

import (
	"errors"
	"fmt"
	"strings"

	"github.com/assay-hpc/assay/coll/choose"
	"github.com/assay-hpc/assay/coll/debug"
	"github.com/assay-hpc/assay/coll/transport"
	"github.com/assay-hpc/assay/coll/transport/verbs"
)

// ibNetwork returns the network over InfiniBand or RoCE, or why there is none. index is the
// rank's index among the ranks of its host.
func (l *Links) ibNetwork(index int) (network, error) {
	const about = debug.Init | debug.Net
	switch {
	case l.cfg.Net != "" && !strings.EqualFold(l.cfg.Net, verbs.Name):
		return network{}, fmt.Errorf("NCCL_NET is %s", l.cfg.Net)
	case l.cfg.IBDisable:
		l.cfg.Log.Infof(about, "NET/IB : NCCL_IB_DISABLE=1: not used")
		return network{}, errors.New("NCCL_IB_DISABLE=1")
	}
	ports, err := verbs.Find(verbs.Selection{
		HCA: l.cfg.IB.HCA, GIDIndex: l.cfg.IB.GIDIndex, RoCEVersion: l.cfg.IB.RoCEVersion, IPv6: l.cfg.IB.AddrFamily == "AF_INET6",
		Logf: func(f string, a ...any) { l.cfg.Log.Infof(about, "NET/IB : "+f, a...) },
	})
	if err != nil {
		l.cfg.Log.Infof(about, "NET/IB : %v", err)
		return network{}, err
	}
	var list strings.Builder
	speed := choose.Network{Mbit: ports.Ports()[0].Mbit}
	for i, p := range ports.Ports() {
		speed = speed.Slower(choose.Network{Mbit: p.Mbit})
		fmt.Fprintf(&list, " [%d]%s:%d/%s %s MTU %d", i, p.Device, p.Port, p.Layer, p.GID, p.MTU)
	}
	speed.Devices = len(ports.Ports())
	l.cfg.Log.Infof(about, "NET/IB : Using%s", list.String())
	if l.cfg.Device != nil {
		l.cfg.Log.Infof(about, "NET/IB : GDR: not used: what is in GPU memory goes through host memory")
	}
	return network{
		name:  verbs.Name,
		speed: speed,
		drop:  func() { _ = ports.Close() },
		open: func() (transport.Endpoint, error) {
			return verbs.Open(verbs.Options{Net: ports, Params: l.ibParams(), Options: l.slotOptions("verbs", l.firstPort(ports.Ports(), index))})
		},
	}, nil
}

// ibParams returns the settings of queue pairs.
func (s *Session) ibParams() verbs.Params {
	return verbs.Params{
		Timeout: s.cfg.IB.Timeout, Retries: s.cfg.IB.RetryCount,
		ServiceLevel: max(s.cfg.IB.ServiceLvl, 0), TrafficClass: max(s.cfg.IB.TrafficCls, 0), PKeyIndex: s.cfg.IB.PKey,
		QPs: s.cfg.IB.QPs, Split: s.cfg.IB.SplitData,
		Adaptive: s.cfg.IB.Adaptive, AdaptiveAbove: int(min(s.cfg.IB.ARThreshold, 1<<30)),
	}
}
