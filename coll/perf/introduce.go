package perf

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"runtime"
)

// An introduction is what a rank says about itself at the start.
type introduction struct {
	Host    string `json:"host"`
	Pid     int    `json:"pid"`
	Process int    `json:"process"`
	Group   int    `json:"group"`
	Device  int    `json:"device"`
	Bus     [3]int `json:"bus"`
	Name    string `json:"name"`

	hostID uint64
	memory int64 // available on the host, bytes
}

// encode puts what every rank reads in front, in binary: with a thousand ranks
// a million of these are read.
func (r *introduction) encode() ([]byte, error) {
	text, err := json.Marshal(r)
	b := binary.LittleEndian.AppendUint64(nil, r.hostID)
	b = binary.LittleEndian.AppendUint64(b, uint64(r.memory))
	return append(b, text...), err
}

// decode reads an introduction; all of it only where it is shown.
func (r *introduction) decode(b []byte, all bool) error {
	if len(b) < 16 {
		return fmt.Errorf("%d bytes are too few", len(b))
	}
	r.hostID, r.memory = binary.LittleEndian.Uint64(b), int64(binary.LittleEndian.Uint64(b[8:]))
	if !all {
		return nil
	}
	return json.Unmarshal(b[16:], r)
}

// introduction is what all of a process's ranks say; the files are read once.
func (s *session) introduction() introduction {
	p := s.world.Process
	return introduction{
		Host: s.host.name, Pid: s.host.pid, Process: p, Group: s.set.split.color(p),
		Name: processor(s.host.root, runtime.GOARCH), hostID: s.host.id(), memory: available(s.host.root),
	}
}

// introduce exchanges introductions, has the header written, and returns how
// large buffers may be, on which all ranks agree.
func (w *worker) introduce(ctx context.Context) (int64, error) {
	me := w.common()
	if device := w.session.world.Device; device != nil {
		d := device(w.i)
		me.Device, me.Bus, me.Name = d.Index, d.Bus, d.Name
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
			return 0, w.failed(InternalError, fmt.Errorf("rank %d introduces itself with %.40q: %w; do all run the same program?", i, b, err))
		}
	}
	limit := memoryLimit(ranks)
	if w.report != nil {
		if err := w.report.begin(ranks, limit); err != nil {
			return 0, w.failed(InternalError, err)
		}
	}
	return min(w.cfg.allocation(), limit), nil
}

// memoryLimit is how large a buffer may be so that those of all ranks fit on
// every host.
func memoryLimit(ranks []introduction) int64 {
	type machine struct {
		ranks  int
		memory int64
	}
	hosts := map[uint64]machine{}
	for _, r := range ranks {
		h, ok := hosts[r.hostID]
		if !ok || r.memory < h.memory {
			h.memory = r.memory
		}
		h.ranks++
		hosts[r.hostID] = h
	}
	limit := int64(1) << 62
	for _, h := range hosts {
		limit = min(limit, fits(h.memory, h.ranks))
	}
	return limit
}

// allocation is how large buffers would be if memory had no end.
func (c *Config) allocation() int64 {
	if c.sweeps() {
		return c.MaxBytes
	}
	return c.payload()
}
