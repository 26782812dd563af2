// Package keep keeps a node certified: it certifies it when it is new, after a change or a restart
// of what the certificate depends on, and when the certificate is old, but only while no work has
// the GPUs. In between it runs the checks that load nothing.
package keep

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/assay-hpc/assay/harness/certificate"
	"github.com/assay-hpc/assay/harness/result"
	"github.com/assay-hpc/assay/internal/infile"
	"github.com/assay-hpc/assay/internal/outfile"
)

// A Site is what sends work to the node.
type Site interface {
	// Act tells the site what a certificate means.
	Act(ctx context.Context, st *certificate.Statement) error
	// Withdraw asks for no new work, and says why.
	Withdraw(ctx context.Context, why string) error
	// Busy returns the names of the work that has GPUs of the node.
	Busy(ctx context.Context) ([]string, error)
}

// A Keeper keeps one node certified.
type Keeper struct {
	Dir    string        // has kept.json
	Suite  []string      // the flags of the certification: with others the node is certified again
	GPUs   int           // the node is withdrawn while it shows fewer
	Every  time.Duration // time between two turns
	MaxAge time.Duration // a certificate that is older is no longer valid
	Retry  time.Duration // after a certification that is not a pass
	Settle time.Duration // time for work that was sent before Withdraw to arrive

	Site     Site
	Identify func(context.Context) (Machine, error)
	Certify  func(context.Context) (*certificate.Statement, error) // loads the GPUs
	Health   func(context.Context) (*certificate.Statement, error) // loads nothing
	Stored   func() (*certificate.Statement, error)                // what Certify made last
	Note     func(format string, a ...any)
	Now      func() time.Time
}

// file is the name of the record in Dir.
const file = "kept.json"

// A record is what a Keeper knows after a restart.
type record struct {
	Version  int            `json:"version"`
	Machine  Machine        `json:"machine"` // as it was certified
	Suite    []string       `json:"suite"`
	Verdict  result.Verdict `json:"verdict,omitempty"` // "": the certification did not end
	Finished time.Time      `json:"finished"`
	Suspect  bool           `json:"suspect,omitempty"` // a check without load failed since then
	// Certificate is the SHA-256 of what Certify made; "": it made nothing.
	Certificate string `json:"certificate,omitempty"`
}

// Run makes turns until the context ends.
func (k *Keeper) Run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := k.Turn(ctx); err != nil && ctx.Err() == nil {
			k.Note("%v; tried again in %v", err, k.Every)
		}
		select {
		case <-ctx.Done():
		case <-time.After(k.Every):
		}
	}
}

// Turn looks at the node once, certifies it if that is necessary and possible, and tells the site.
func (k *Keeper) Turn(ctx context.Context) error {
	m, err := k.Identify(ctx)
	if err != nil {
		return err
	}
	if len(m.GPUs) < k.GPUs { // all checks of GPUs would be skipped, which is no failure
		why := fmt.Sprintf("of %d GPUs the driver shows %d", k.GPUs, len(m.GPUs))
		return errors.Join(errors.New(why), k.Site.Withdraw(ctx, why))
	}
	r, err := k.read()
	if err != nil {
		return err
	}
	healthy, err := k.Health(ctx)
	if err != nil {
		return err
	}
	if healthy.Predicate.Verdict == result.Fail {
		r.Suspect = true
		if err := k.write(r); err != nil {
			k.Note("%v", err) // the site must know in any case
		}
		return k.Site.Act(ctx, healthy)
	}
	why, urgent := k.reason(r, m)
	if why == "" {
		return k.confirm(ctx, r, m)
	}
	if !urgent {
		busy, err := k.Site.Busy(ctx)
		if err != nil {
			return err
		}
		if len(busy) > 0 {
			return k.confirm(ctx, r, m)
		}
	}
	return k.certify(ctx, m, why)
}

// clockSlack is how far a clock may be set back without a doubt about a certificate's age.
const clockSlack = time.Hour

// reason returns why the node must be certified. If that is not urgent, the certificate is valid
// until then.
func (k *Keeper) reason(r record, m Machine) (why string, urgent bool) {
	age := k.Now().Sub(r.Finished)
	switch changes := m.Since(r.Machine); {
	case r.Version == 0:
		return "it was never certified", true
	case r.Verdict == "":
		return "its certification did not end", true
	case len(changes) > 0:
		return strings.Join(changes, ", "), true
	case !slices.Equal(r.Suite, k.Suite):
		return fmt.Sprintf("it was certified by %q", strings.Join(r.Suite, " ")), true
	case r.Suspect:
		return "a check without load had failed", true
	case r.Verdict != result.Pass && age > k.Retry:
		return fmt.Sprintf("its last verdict was %s", r.Verdict), true
	case age > k.MaxAge:
		return fmt.Sprintf("its certificate is %v old", age.Round(time.Minute)), true
	case age < -clockSlack:
		return fmt.Sprintf("its certificate is of %v from now: the clock was set back, and its age is not known", (-age).Round(time.Minute)), -age > k.MaxAge
	case r.Verdict == result.Pass && age > k.MaxAge/2:
		return fmt.Sprintf("its certificate is %v old", age.Round(time.Minute)), false
	}
	return "", false
}

// confirm tells the site that the stored certificate is still valid.
func (k *Keeper) confirm(ctx context.Context, r record, m Machine) error {
	r.Machine.Energy = m.Energy // a reset shows against the latest reading
	if err := k.write(r); err != nil {
		return err
	}
	if r.Certificate == "" {
		return k.Site.Withdraw(ctx, "the certification could not be carried out")
	}
	st, err := k.Stored()
	var sum string
	if err == nil {
		sum, err = st.SHA256()
	}
	switch {
	case err != nil:
		return k.certify(ctx, m, "its certificate cannot be read")
	case sum != r.Certificate:
		return k.certify(ctx, m, "another certificate is in the place of its own")
	}
	return k.Site.Act(ctx, st)
}

// certify certifies the node if no work has its GPUs.
func (k *Keeper) certify(ctx context.Context, m Machine, why string) error {
	if err := k.Site.Withdraw(ctx, why); err != nil {
		return err
	}
	select {
	case <-time.After(k.Settle):
	case <-ctx.Done():
		return ctx.Err()
	}
	busy, err := k.Site.Busy(ctx)
	if err != nil {
		return err
	}
	if len(busy) > 0 {
		k.Note("to be certified, because %s; it waits for %s", why, strings.Join(busy, ", "))
		return nil
	}
	k.Note("certified now, because %s", why)
	r := record{Version: 1, Machine: m, Suite: k.Suite}
	if err := k.write(r); err != nil {
		return err
	}
	st, err := k.Certify(ctx)
	if ctx.Err() != nil {
		return ctx.Err() // the next start certifies again
	}
	if r.Finished = k.Now(); err != nil {
		r.Verdict = result.Error
		return errors.Join(err, k.write(r))
	}
	r.Verdict = st.Predicate.Verdict
	if r.Certificate, err = st.SHA256(); err != nil {
		return err
	}
	if after, err := k.Identify(ctx); err == nil && len(after.Since(m)) == 0 {
		r.Machine = after
	}
	return errors.Join(k.write(r), k.Site.Act(ctx, st))
}

// read reads the record. One of another version, or one that is damaged, is as none.
func (k *Keeper) read() (r record, err error) {
	b, err := infile.Read(filepath.Join(k.Dir, file), 1<<20)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(b, &r); err != nil || r.Version != 1 {
		k.Note("%s: no record that this version knows; the node is certified again", filepath.Join(k.Dir, file))
		return record{}, nil
	}
	return r, nil
}

func (k *Keeper) write(r record) error {
	if r.Version == 0 {
		return nil // nothing was certified
	}
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return outfile.Write(filepath.Join(k.Dir, file), append(b, '\n'))
}
