package tcp

import (
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// sent is the sender's kernel's report of what it sent after warm-up.
type sent struct {
	segments int64 // 0: not reported (Linux before 4.6)
	resent   int64
	rtt      time.Duration // mean over streams, at the end
	minRTT   time.Duration
}

// A reading is the kernel's report of a stream, with its time. Values that the kernel does not
// report are zero, and a zero State is not the state of a connection.
type reading struct {
	unix.TCPInfo
	at    time.Time
	count int64 // bytes read by this process
}

// read takes readings of streams.
func read(conns []*net.TCPConn, counts []atomic.Int64) []reading {
	out := make([]reading, len(conns))
	for i, c := range conns {
		if raw, err := c.SyscallConn(); err == nil {
			raw.Control(func(fd uintptr) {
				if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
					out[i].TCPInfo = *info
				}
			})
		}
		if counts != nil {
			out[i].count = counts[i].Load()
		}
		out[i].at = time.Now()
	}
	return out
}

// difference calculates the change between two readings. The kernel's counters have 32 bits and
// wrap around.
func difference(before, after []reading) (s sent) {
	told, streams := true, int64(0)
	var rtt int64
	for i, a := range after {
		if told = told && a.Data_segs_out > 0 && before[i].State != 0; a.State == 0 || before[i].State == 0 {
			continue
		}
		s.segments += int64(a.Data_segs_out - before[i].Data_segs_out)
		s.resent += int64(a.Total_retrans - before[i].Total_retrans)
		if a.Rtt > 0 {
			streams++
			rtt += int64(a.Rtt)
		}
		// The largest value means "not known yet".
		if least := time.Duration(a.Min_rtt) * time.Microsecond; a.Min_rtt != 0 && a.Min_rtt != ^uint32(0) && (s.minRTT == 0 || least < s.minRTT) {
			s.minRTT = least
		}
	}
	if streams > 0 {
		s.rtt = time.Duration(rtt/streams) * time.Microsecond
	}
	if !told {
		s.segments = 0
	}
	return s
}
