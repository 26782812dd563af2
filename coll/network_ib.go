package coll

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
func (c *Comm) ibNetwork(index int) (network, error) {
	const about = debug.Init | debug.Net
	switch {
	case c.cfg.Net != "" && !strings.EqualFold(c.cfg.Net, verbs.Name):
		return network{}, fmt.Errorf("NCCL_NET is %s", c.cfg.Net)
	case c.cfg.IBDisable:
		c.cfg.log.Infof(about, "NET/IB : NCCL_IB_DISABLE=1: not used")
		return network{}, errors.New("NCCL_IB_DISABLE=1")
	}
	ports, err := verbs.Find(verbs.Selection{
		HCA: c.cfg.IB.HCA, GIDIndex: c.cfg.IB.GIDIndex, RoCEVersion: c.cfg.IB.RoCEVersion, IPv6: c.cfg.IB.AddrFamily == "AF_INET6",
		Logf: func(f string, a ...any) { c.cfg.log.Infof(about, "NET/IB : "+f, a...) },
	})
	if err != nil {
		c.cfg.log.Infof(about, "NET/IB : %v", err)
		return network{}, err
	}
	var list strings.Builder
	speed := choose.Network{Mbit: ports.Ports()[0].Mbit}
	for i, p := range ports.Ports() {
		speed = speed.Slower(choose.Network{Mbit: p.Mbit})
		fmt.Fprintf(&list, " [%d]%s:%d/%s %s MTU %d", i, p.Device, p.Port, p.Layer, p.GID, p.MTU)
	}
	speed.Devices = len(ports.Ports())
	c.cfg.log.Infof(about, "NET/IB : Using%s", list.String())
	if c.cfg.device != nil {
		c.cfg.log.Infof(about, "NET/IB : GDR: not used: what is in GPU memory goes through host memory")
	}
	return network{
		name:  verbs.Name,
		speed: speed,
		drop:  func() { _ = ports.Close() },
		open: func() (transport.Endpoint, error) {
			return verbs.Open(verbs.Options{Net: ports, Params: c.ibParams(), Options: c.slotOptions("verbs", c.firstPort(ports.Ports(), index))})
		},
	}, nil
}

// ibParams returns the settings of queue pairs.
func (c *Comm) ibParams() verbs.Params {
	return verbs.Params{
		Timeout: c.cfg.IB.Timeout, Retries: c.cfg.IB.RetryCount,
		ServiceLevel: max(c.cfg.IB.ServiceLvl, 0), TrafficClass: max(c.cfg.IB.TrafficCls, 0), PKeyIndex: c.cfg.IB.PKey,
		QPs: c.cfg.IB.QPs, Split: c.cfg.IB.SplitData,
		Adaptive: c.cfg.IB.Adaptive, AdaptiveAbove: int(min(c.cfg.IB.ARThreshold, 1<<30)),
	}
}
