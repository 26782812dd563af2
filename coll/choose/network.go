package choose

import (
	"cmp"
	"time"
)

// A Network is what is known about a network between hosts, other than TCP.
type Network struct {
	Mbit    int     `json:"mbit,omitempty"`       // Mbit/s of a device; 0: not known
	Devices int     `json:"devices,omitempty"`    // of a host; 0 stands for 1
	Latency float64 `json:"latency_us,omitempty"` // as reported by the network, in microseconds; 0: not reported
}

// Slower combines the ends of two hosts: the slower value of each applies.
func (n Network) Slower(m Network) Network {
	return Network{
		Mbit: min(n.mbit(), m.mbit()), Devices: min(n.devices(), m.devices()), Latency: max(n.Latency, m.Latency),
	}
}

func (n Network) mbit() int    { return cmp.Or(max(n.Mbit, 0), unknownMbit) }
func (n Network) devices() int { return max(n.Devices, 1) }

const (
	// NCCL's assumptions: 12 GB/s for a device of unknown speed, and a step between nodes of a
	// ring with protocol LL, to which the latency reported by the network is added.
	unknownMbit = 96_000
	netLatency  = 2700 * time.Nanosecond

	// nicFraction is the share of a NIC's rate that carries data: see coll/predict.
	nicFraction = 193.72 / 200
)

// netMessage is a rank's work for a message: its header, a request, and one or
// two completions. It is an estimate.
const netMessage = 500 * time.Nanosecond

// Transport returns the network's costs. Messages go through slots with both protocols: each
// side copies them, as with LL over shared memory. That copy bounds a channel, as the device
// does.
func (n Network) Transport(name string) Transport {
	device := BytesPerSec(float64(n.mbit())*1e6/8) * nicFraction
	c := Cost{
		Latency: netLatency + time.Duration(n.Latency*float64(time.Microsecond)), Message: netMessage,
		Rate: min(device, SHM.LL.Rate), Port: device * BytesPerSec(n.devices()),
	}
	return Transport{Name: name, Simple: c, LL: c, Reduce: SHM.Reduce}
}
