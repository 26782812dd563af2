package explain

import (
	"fmt"
	"strings"
	"testing"
)

// BenchmarkExplain reads 50 MB of a log of 64 nodes.
func BenchmarkExplain(b *testing.B) {
	var t strings.Builder
	for i := 0; t.Len() < 50<<20; i++ {
		g := i % 8
		fmt.Fprintf(&t, "node-%03d:%d:%d [%d] NCCL INFO Channel %02d/0 : %d[%d] -> %d[%d] via P2P/CUMEM/read comm 0x55d0c rank %d opCount %x\n", i%64, 1000+g, 2000+g, g, i%32, g, g, (g+1)%8, (g+1)%8, i%512, i)
	}
	t.WriteString("node-001:1:1 [0] misc/ibvwrap.cc:278 NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory\n")
	text := []byte(t.String())
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		s, err := Load()
		if err != nil {
			b.Fatal(err)
		}
		if r := s.Explain([]File{{"job.log", text}}); r.Verdict != Fault {
			b.Fatal(r.Verdict)
		}
	}
}

// BenchmarkLoad reads the rules.
func BenchmarkLoad(b *testing.B) {
	for b.Loop() {
		if _, err := Load(); err != nil {
			b.Fatal(err)
		}
	}
}
