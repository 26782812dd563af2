package tcp

import (
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// sent is what a sender's kernel says of what was sent after warm-up.
type sent struct {
	segments int64 // 0: it does not say (Linux before 4.6)
	resent   int64
	rtt      time.Duration // mean over streams, at the end
	minRTT   time.Duration
}

// A reading is what the kernel said of a stream, and when. What it does not tell
// is zero, which is no connection's State.
type reading struct {
	unix.TCPInfo
	at    time.Time
	count int64 // bytes that this process had read
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

// difference is what happened between two readings. The kernel's counters have
// 32 bits and begin again at 0.
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
		// The highest value is "not known yet".
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
