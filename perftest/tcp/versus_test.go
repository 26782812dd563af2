package tcp

import (
	"encoding/json"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"testing"
	"time"
)

// BenchmarkVersusIperf measures loopback with iperf3 and with this package in
// turns, and reports the median of the ratios of their rates: what the receiver
// counted, after a second's warm-up.
//
//	go test -run '^$' -bench VersusIperf -benchtime 7x ./perftest/tcp
func BenchmarkVersusIperf(b *testing.B) {
	if _, err := exec.LookPath("iperf3"); err != nil {
		b.Skip("iperf3 is not installed: apt-get install iperf3")
	}
	for _, streams := range []int{1, 4} {
		b.Run(fmt.Sprintf("streams=%d", streams), func(b *testing.B) {
			s := serve(b, usual)
			var ours, theirs, ratios []float64
			for range b.N {
				r, err := Measure(b.Context(), s.Addr().String(), token, Options{Duration: 2 * time.Second, Warmup: time.Second, Streams: streams})
				if err != nil {
					b.Fatal(err)
				}
				ours, theirs = append(ours, r.Forward.Rate), append(theirs, iperf(b, streams))
				ratios = append(ratios, ours[len(ours)-1]/theirs[len(theirs)-1])
			}
			middle := func(v []float64) float64 { slices.Sort(v); return v[len(v)/2] }
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(middle(ours)/1e9, "GB/s")
			b.ReportMetric(middle(theirs)/1e9, "iperf3-GB/s")
			b.ReportMetric(middle(ratios), "ratio")
		})
	}
}

// iperf is the rate that iperf3's receiver counts, in bytes a second.
func iperf(b *testing.B, streams int) float64 {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	port := fmt.Sprint(l.Addr().(*net.TCPAddr).Port)
	l.Close()
	server := exec.Command("iperf3", "-s", "-1", "-B", "127.0.0.1", "-p", port)
	if err := server.Start(); err != nil {
		b.Fatal(err)
	}
	defer server.Wait()
	defer server.Process.Kill()
	var report struct {
		End struct {
			Received struct {
				Rate float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		}
	}
	var out []byte
	for range 50 { // until the server listens; with -J errors are in the report
		out, err = exec.Command("iperf3", "-c", "127.0.0.1", "-p", port, "-t", "2", "-O", "1", "-P", fmt.Sprint(streams), "-J").Output()
		if json.Unmarshal(out, &report) == nil && report.End.Received.Rate > 0 {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if report.End.Received.Rate == 0 {
		b.Fatalf("iperf3: %v: %s", err, out)
	}
	return report.End.Received.Rate / 8
}
