package perf

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"runtime"
)

// An introduction describes a rank to the others at the start.
type introduction struct {
	Host    string `json:"host"`
	Pid     int    `json:"pid"`
	Process int    `json:"process"`
	Group   int    `json:"group"`
	Device  int    `json:"device"`
	Bus     [3]int `json:"bus"`
	Name    string `json:"name"`

	hostID uint64
	pool   uint64 // ID of the memory that ranks share: the host's, or a device's
	memory int64  // available in it, bytes
}

// device returns an ID of a rank's device that no other device on any host has.
func (r *introduction) device(i int) uint64 {
	f := fnv.New64a()
	fmt.Fprint(f, r.hostID, r.Bus, r.Device)
	if r.Bus == [3]int{} { // a device without a bus ID is not shared with another rank
		fmt.Fprint(f, r.Pid, i)
	}
	return f.Sum64()
}

// encode puts the fields that every rank reads first, in binary: with a thousand ranks, a million
// of these are read.
func (r *introduction) encode() ([]byte, error) {
	text, err := json.Marshal(r)
	b := binary.LittleEndian.AppendUint64(nil, r.hostID)
	b = binary.LittleEndian.AppendUint64(b, r.pool)
	b = binary.LittleEndian.AppendUint64(b, uint64(r.memory))
	return append(b, text...), err
}

// decode reads an introduction; the text only if all is set, where it is shown.
func (r *introduction) decode(b []byte, all bool) error {
	const head = 3 * 8
	if len(b) < head {
		return fmt.Errorf("%d bytes are too few", len(b))
	}
	r.hostID, r.pool, r.memory = binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:]), int64(binary.LittleEndian.Uint64(b[16:]))
	if !all {
		return nil
	}
	return json.Unmarshal(b[head:], r)
}

// introduction returns what is the same for all of a process's ranks; the files are read once.
func (s *session) introduction() introduction {
	p, id := s.world.Process, s.host.id()
	return introduction{
		Host: s.host.name, Pid: s.host.pid, Process: p, Group: s.set.split.color(p),
		Name: processor(s.host.root, runtime.GOARCH), hostID: id, pool: id, memory: available(s.host.root),
	}
}

// introduce exchanges introductions, has the header written, and returns how large buffers may
// be, the same on all ranks.
func (w *worker) introduce(ctx context.Context) (int64, error) {
	me := w.common()
	if device := w.session.world.Device; device != nil {
		d := device(w.i)
		me.Device, me.Bus, me.Name = d.Index, d.Bus, d.Name
	}
	if l := w.medium.lane; l != nil {
		free, total, err := l.Memory()
		if err != nil {
			return 0, w.failed(DeviceError, err)
		}
		if w.report != nil {
			w.report.memory = total - free
		}
		me.memory, me.pool = free, me.device(w.i)
	}
	b, err := me.encode()
	if err != nil {
		return 0, w.failed(InternalError, err)
	}
	all, err := w.world.Exchange(ctx, b)
	if err != nil {
		return 0, w.failed(EngineError, err)
	}
	ranks := make([]introduction, len(all))
	for i, b := range all {
		if err := ranks[i].decode(b, w.report != nil); err != nil {
			return 0, w.failed(InternalError, fmt.Errorf("rank %d introduces itself with %.40q: %w; do all ranks run the same program?", i, b, err))
		}
	}
	limit := memoryLimit(ranks, len(w.kindsOf(w.i)))
	if w.report != nil {
		if err := w.report.begin(ranks, limit); err != nil {
			return 0, w.failed(InternalError, err)
		}
	}
	return min(w.cfg.payload(), limit), nil
}

// memoryLimit returns how large a buffer may be so that the buffers of all ranks, of several
// kinds each, fit on every host or device.
func memoryLimit(ranks []introduction, kinds int) int64 {
	type share struct {
		ranks  int
		memory int64
	}
	pools := map[uint64]share{}
	for _, r := range ranks {
		p, ok := pools[r.pool]
		if !ok || r.memory < p.memory {
			p.memory = r.memory
		}
		p.ranks++
		pools[r.pool] = p
	}
	limit := int64(1) << 62
	for _, p := range pools {
		limit = min(limit, fits(p.memory, p.ranks*kinds))
	}
	return limit
}
