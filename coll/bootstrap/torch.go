package bootstrap

import "net"

// What torchrun sets (torch.distributed.run, "Environment Variables"). Its store listens
// at MASTER_PORT, on rank 0's host; the ID is shared on other ports of that host.
const (
	torchRank      = "RANK"
	torchSize      = "WORLD_SIZE"
	torchLocalRank = "LOCAL_RANK"
	torchLocalSize = "LOCAL_WORLD_SIZE"
	torchAddr      = "MASTER_ADDR"
	torchPort      = "MASTER_PORT"
	torchRun       = "TORCHELASTIC_RUN_ID"
	torchRestarts  = "TORCHELASTIC_RESTART_COUNT"
)

// detectTorchElastic detects torchrun itself.
func detectTorchElastic(e *environment, w *World) bool {
	return e.has(torchRun) && detectTorch(e, w)
}

// detectTorch detects other launchers that set the same variables, such as users'
// scripts.
func detectTorch(e *environment, w *World) bool {
	// RANK alone is too common a name.
	if !e.has(torchRank) && !e.has(torchSize) || !e.has(torchAddr) && !e.has(torchLocalRank) {
		return false
	}
	w.Rank, w.Size = e.place(torchRank, torchSize)
	e.localPlace(w, torchLocalRank, torchLocalSize)
	if w.Size > 1 && !e.has(torchAddr) {
		e.fail("%s=%d but %s is not set: it must be rank 0's host", torchSize, w.Size, torchAddr)
	}
	w.hosts = []string{e.getenv(torchAddr)}
	w.job = "torchrun " + net.JoinHostPort(e.getenv(torchAddr), e.getenv(torchPort)) +
		" " + e.getenv(torchRun) + " " + e.getenv(torchRestarts)
	return true
}
