package oci

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

const (
	settleTime   = 200 * time.Millisecond
	quietReads   = 3  // in a row that list everything, before the list counts as written
	enlistRounds = 60 // reads of one list, at most
)

// enlist ensures that the registry lists referrers of a subject, whose manifests are there. A
// registry without the referrers API has the list under a tag that every pusher reads, changes and
// writes: who writes last undoes what others have written since he read. So each reads again after
// writing, at irregular intervals, and writes again what is missing, until several reads in a row
// list all of its own. With the referrers API there is no such tag, and nothing to do.
func (p *Repository) enlist(ctx context.Context, subject v1.Hash, list []manifest) error {
	tag := p.repo.Tag(strings.Replace(subject.String(), ":", "-", 1))
	kept := false
	err := p.ask(ctx, "referrers of "+subject.String(), func(ctx context.Context) error {
		_, err := p.pull.Head(ctx, tag)
		if kept = err == nil; Status(err) == http.StatusUnauthorized || Temporary(err) {
			return err
		}
		return nil
	})
	if err != nil || !kept {
		return err
	}
	for quiet, round := 0, 0; ; round++ {
		began := time.Now()
		missing, err := p.missing(ctx, subject, list)
		if err != nil {
			return err
		}
		if quiet++; len(missing) > 0 {
			quiet = 0
		}
		if quiet == quietReads {
			return nil
		}
		if round == enlistRounds {
			return fmt.Errorf("push to %s: other programs write the list of what is attached to %s at the same time, and undo this: %s was not listed after %d attempts; push again", p.repo, subject, list[0].desc.Digest, enlistRounds)
		}
		// Longer than what another one needs from its read to its write.
		wait := max(p.settle, 3*time.Since(began))
		if err := sleep(ctx, wait/2+rand.N(wait)); err != nil {
			return err
		}
		for _, m := range missing {
			err := p.write.Do(ctx, "referrer "+m.desc.Digest.String(), func() error {
				return p.push.Put(ctx, p.repo.Digest(m.desc.Digest.String()), m)
			})
			if err != nil {
				return err
			}
		}
	}
}

// missing returns the manifests that the registry does not list as referrers of subject.
func (p *Repository) missing(ctx context.Context, subject v1.Hash, list []manifest) ([]manifest, error) {
	listed := map[v1.Hash]bool{}
	err := p.ask(ctx, "referrers of "+subject.String(), func(ctx context.Context) error {
		all, err := p.referrers(ctx, subject)
		for _, d := range all {
			listed[d.Digest] = true
		}
		return err
	})
	var missing []manifest
	for _, m := range list {
		if !listed[m.desc.Digest] {
			missing = append(missing, m)
		}
	}
	return missing, err
}
