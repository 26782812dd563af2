package solve

import (
	"context"
	"regexp"
	"strings"
	"time"

	"github.com/moby/buildkit/client"
	bkllb "github.com/moby/buildkit/client/llb"

	"github.com/assay-hpc/assay/build/daemon"
)

// solve runs one request, shows its progress, and turns a failure into a *StepError. It retries
// after failures of the network, and of a copy that BuildKit had cancelled: completed work is
// cached.
func (s *Solver) solve(ctx context.Context, b *daemon.Builder, def *bkllb.Definition, opt client.SolveOpt, name string) (*client.SolveResponse, error) {
	const tries = 5
	for n := 1; ; n++ {
		watched, w := s.Progress.watch(ctx, name, s.Provider.Limits.Total)
		res, err := b.Client.Solve(watched, def, opt, w.ch)
		cause := context.Cause(watched) // before wait cancels it
		w.wait()
		if err == nil {
			return res, nil
		}
		if cause != nil {
			return nil, cause
		}
		again := transient(err)
		if strings.Contains(err.Error(), "failed to copy: unsupported offset") {
			again = b.DropParts()
		}
		if n == tries || !again {
			return nil, w.stepError(err)
		}
		if s.Provider.Log != nil {
			s.Provider.Log("trying again: %v", w.stepError(err))
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(time.Duration(n) * time.Second):
		}
	}
}

// transient reports whether a retry may succeed after an error.
func transient(err error) bool {
	text := err.Error()
	if strings.Contains(text, "did not complete successfully") {
		return false // a step's program failed, and its script is quoted
	}
	return passing.MatchString(text) || strings.Contains(text, unrenamed) && strings.HasSuffix(text, ": file exists")
}

// unrenamed is what BuildKit reports once if a snapshot's directory exists without a record, as
// after a kill. BuildKit then removes the directory.
const unrenamed = "failed to rename: rename "

// passing matches messages of BuildKit, its resolvers and Go's HTTP client about a problem of the
// network or a server that may be temporary.
var passing = regexp.MustCompile(`connection (reset|refused)|\bEOF$|\bunexpected EOF|i/o timeout|TLS handshake timeout|[Tt]emporary failure|server misbehaving|stream error|` +
	`\b(500 Internal Server Error|502 Bad Gateway|503 Service|504 Gateway|429 Too Many Requests)|response status (code )?(50[0234]|429)\b`)
