package socket

import (
	"testing"

	"github.com/assay-hpc/assay/coll/transport/transporttest"
)

var variants = map[string]transporttest.Opener{
	"streams=1": opener(Options{}),
	"streams=4": opener(Options{PerThread: 4}),
	"helpers=1": opener(Options{Threads: 1, PerThread: 1}),
}

func BenchmarkPingPong(b *testing.B) { transporttest.PingPong(b, variants) }

func BenchmarkStream(b *testing.B) { transporttest.Stream(b, variants) }
