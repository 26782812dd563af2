// Package keep keeps a node certified: it certifies it when it is new, after a change or a restart
// of what the certificate depends on, and when the certificate is old, but only while no work has
// the GPUs. In between it runs the checks that load nothing.
//
// The keepers of a cluster withdraw no more than a share of its nodes at one time. They agree on
// that by slots that the API server stores ([Slots]), without a program of their own.
package keep

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/assay-hpc/assay/internal/attest"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/infile"
	"github.com/assay-hpc/assay/internal/outfile"
	"github.com/assay-hpc/assay/internal/result"
)

// A Site is what sends work to the node.
type Site interface {
	// Act tells the site what a certificate means. due is why the node is to be certified again
	// although the certificate still counts; "": it is not. The error wraps one of attest's if the
	// certificate is not accepted for this node at this time.
	Act(ctx context.Context, st *certificate.Statement, due string) error
	// Withdraw asks for no new work while the node is certified, and says why.
	Withdraw(ctx context.Context, why string) error
	// Void says that the node has no certificate that counts, and why.
	Void(ctx context.Context, why string) error
	// Observe says what was found, and why the node would be certified, and changes nothing else.
	Observe(ctx context.Context, st *certificate.Statement, due string) error
	// Busy returns the names of the work that has GPUs of the node.
	Busy(ctx context.Context) ([]string, error)
}

// A Keeper keeps one node certified.
type Keeper struct {
	Node    string        // its name, as the holder of a slot
	Dir     string        // has kept.json
	Suite   []string      // the flags of the certification: with others the node is certified again
	GPUs    int           // the node has no valid certificate while it shows fewer
	Every   time.Duration // time between two turns
	MaxAge  time.Duration // of a certificate; a node at work stays in service up to twice that
	Retry   time.Duration // after a certification that is not a pass
	Settle  time.Duration // time for work that was sent before Withdraw to arrive
	Limit   time.Duration // of a certification
	Share   Share         // of the nodes that are out of service for their certification
	Observe bool          // only look: withdraw nothing, load nothing

	Site     Site
	Slots    Slots
	Identify func(context.Context) (Machine, error)
	Certify  func(context.Context) (*certificate.Statement, error) // loads the GPUs
	Health   func(context.Context) (*certificate.Statement, error) // loads nothing
	Stored   func() (*certificate.Statement, error)                // what Certify made last
	Limits   func() (string, error)                                // what identifies the site's limits now
	Note     func(format string, a ...any)
	Now      func() time.Time

	turnstile turnstile
	gaveUp    time.Time // on waiting for the end of work while withdrawn
	waits     bool      // for a slot
	memory    *record   // in place of the file, in tests
}

// file is the name of the record in Dir.
const file = "kept.json"

// A record is what a Keeper knows after a restart.
type record struct {
	Version  int            `json:"version"`
	Machine  Machine        `json:"machine"` // as it was certified
	Suite    []string       `json:"suite"`
	Limits   string         `json:"limits,omitempty"`
	Verdict  result.Verdict `json:"verdict,omitempty"` // "": the certification did not end
	Finished time.Time      `json:"finished"`
	Suspect  bool           `json:"suspect,omitempty"` // a check without load failed since then
	Refused  bool           `json:"refused,omitempty"` // the site does not accept the certificate
	// Certificate is the SHA-256 of what Certify made; "": it made nothing.
	Certificate string `json:"certificate,omitempty"`
}

// Run makes turns until the context ends. They are not equally far apart, so that the keepers of a
// cluster, which start at one time, do not ask at one time for ever.
func (k *Keeper) Run(ctx context.Context) {
	for ctx.Err() == nil {
		err := k.Turn(ctx)
		pause := k.Every
		// Slots are free again after minutes; and a node that cannot write its own for too long loses
		// it while it is withdrawn.
		if k.waits || err != nil && k.turnstile.held != nil {
			pause /= 5
		}
		if err != nil && ctx.Err() == nil {
			k.Note("%v; tried again in %v", err, pause)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(float64(pause) * (0.9 + 0.2*rand.Float64()))):
		}
	}
}

// Turn looks at the node once, certifies it if that is necessary and possible, and tells the site.
func (k *Keeper) Turn(ctx context.Context) error {
	k.waits = false
	m, err := k.Identify(ctx)
	if err != nil {
		return err
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
		if k.Observe {
			return k.Site.Observe(ctx, healthy, "")
		}
		return k.back(ctx, k.Site.Act(ctx, healthy, ""))
	}
	limits, err := k.Limits()
	if err != nil {
		return err
	}
	n := k.need(r, m, limits)
	if k.Observe {
		return k.Site.Observe(ctx, healthy, n.why)
	}
	if len(m.GPUs) < k.GPUs { // their checks may be skipped, which is no failure
		return errors.Join(errors.New(n.why), k.back(ctx, k.Site.Void(ctx, n.why)))
	}
	if len(m.Since(r.Machine)) == 0 {
		r.Machine.Energy = m.Energy // a reset shows against the latest reading
		if err := k.write(r); err != nil {
			return err
		}
	}
	if n.why == "" || n.later {
		return k.back(ctx, k.remain(ctx, n, ""))
	}
	busy, err := k.Site.Busy(ctx)
	if err != nil {
		return err
	}
	if len(busy) > 0 {
		return k.await(ctx, n, strings.Join(busy, ", "))
	}
	switch entered, err := k.enter(ctx, false); {
	case err != nil:
		return err
	case !entered:
		k.waits = true
		return k.remain(ctx, n, "as many nodes as may be are being certified")
	}
	return k.certify(ctx, m, n, limits)
}

// A need is why and how urgently a node is to be certified.
type need struct {
	why   string                 // "": its certificate is valid
	st    *certificate.Statement // that still counts; nil: none does
	quiet bool                   // nobody needs to know
	over  bool                   // the certificate is older than a node at work may keep
	later bool                   // not before Retry is over
}

// clockSlack is how far a clock may be set back without a doubt about a certificate's age.
const clockSlack = time.Hour

// need returns whether the node must be certified. limits identifies the site's limits.
func (k *Keeper) need(r record, m Machine, limits string) need {
	var n need
	age := k.Now().Sub(r.Finished)
	switch {
	case len(m.GPUs) < k.GPUs:
		return need{why: fmt.Sprintf("of %d GPUs the driver shows %d", k.GPUs, len(m.GPUs))}
	case r.Version == 0:
		return need{why: "it was never certified"}
	case r.Verdict == "":
		return need{why: "its certification did not end"}
	case r.Certificate == "":
		n = need{why: "the certification could not run", later: age <= k.Retry}
		if !n.later {
			n.why = fmt.Sprintf("its last verdict was %s", r.Verdict)
		}
		return n
	case !maps.Equal(m.GPUs, r.Machine.GPUs): // it is about other GPUs
		return need{why: strings.Join(m.Since(r.Machine), ", ")}
	case r.Suspect:
		return need{why: "a check without load had failed"}
	case r.Refused:
		return need{why: notAccepted}
	}
	st, err := k.Stored()
	var sum string
	if err == nil {
		sum, err = st.SHA256()
	}
	switch {
	case err != nil:
		return need{why: "its certificate cannot be read"}
	case sum != r.Certificate:
		return need{why: "another certificate is in the place of its own"}
	}
	n.st, n.over = st, r.Verdict == result.Pass && age > 2*k.MaxAge
	early := k.early(sum)
	changes := m.Since(r.Machine)
	switch {
	case len(changes) > 0:
		n.why = strings.Join(changes, ", ")
	case !slices.Equal(r.Suite, k.Suite):
		n.why = fmt.Sprintf("it was certified by %q", strings.Join(r.Suite, " "))
	case r.Limits != limits:
		n.why = "it was certified by other limits"
	case r.Verdict != result.Pass && age > k.Retry:
		n.why = fmt.Sprintf("its last verdict was %s", r.Verdict)
	case age < -clockSlack:
		n.why = fmt.Sprintf("its certificate is of %v from now: the clock was set back, and its age is not known", (-age).Round(time.Minute))
	case age > k.MaxAge-early:
		n.why = fmt.Sprintf("its certificate is %v old", age.Round(time.Minute))
	case r.Verdict == result.Pass && age > k.MaxAge/2+early:
		n.why, n.quiet = fmt.Sprintf("its certificate is %v old", age.Round(time.Minute)), true
	}
	return n
}

// early returns a time up to a fifth of MaxAge, another one for each certificate, so that nodes
// which were certified together are not certified together for ever.
func (k *Keeper) early(sum string) time.Duration {
	b, err := hex.DecodeString(sum[:8])
	if err != nil {
		return 0
	}
	return time.Duration(float64(k.MaxAge) / 5 * float64(binary.BigEndian.Uint32(b)) / (1 << 32))
}

// remain leaves the node as its certificate wants it, and says what the certification waits for.
func (k *Keeper) remain(ctx context.Context, n need, waits string) error {
	due := n.why
	if waits != "" {
		due += "; " + waits
	}
	switch {
	case n.st == nil:
		return k.Site.Void(ctx, due)
	case n.quiet:
		due = ""
	}
	err := k.Site.Act(ctx, n.st, due)
	if !refused(err) {
		return err
	}
	k.Note("the stored certificate is no longer accepted: %v", err)
	r, err := k.read()
	if err != nil {
		return err
	}
	r.Refused = true
	return errors.Join(k.write(r), k.Site.Void(ctx, notAccepted))
}

// notAccepted is why a node is certified again that has a certificate of its own.
const notAccepted = "its certificate is no longer accepted"

// refused reports whether an error says that a certificate is not one for this node at this time,
// as opposed to a site that could not be told.
func refused(err error) bool {
	return errors.Is(err, attest.ErrTime) || errors.Is(err, attest.ErrSubject) || errors.Is(err, attest.ErrUse)
}

// drains is the share of MaxAge for which a node may be withdrawn and at work.
const drains = 10

// await is the turn of a node that is at work. It stays in service, with a warning, unless its
// certificate is twice as old as it may get: then it gets no new work while it waits for the end of
// the old. If that does not end, the slot goes to another node after some time.
func (k *Keeper) await(ctx context.Context, n need, busy string) error {
	t := &k.turnstile
	waits := "it waits for " + busy
	if n.st == nil || !n.over {
		if !n.quiet {
			k.Note("to be certified, because %s; %s", n.why, waits)
		}
		return k.back(ctx, k.remain(ctx, n, waits))
	}
	hold := k.MaxAge / drains
	if t.held != nil && k.Now().Sub(t.since) > hold {
		k.gaveUp = k.Now()
		k.Note("to be certified, because %s; it has waited without new work for %v, and gets some again: %s", n.why, hold, busy)
		return k.back(ctx, k.remain(ctx, n, waits))
	}
	if t.held == nil && !k.gaveUp.IsZero() && k.Now().Sub(k.gaveUp) <= hold {
		return k.remain(ctx, n, waits)
	}
	switch entered, err := k.enter(ctx, true); {
	case err != nil:
		return err
	case !entered:
		return k.remain(ctx, n, waits)
	}
	k.Note("to be certified, because %s; no new work until then; %s", n.why, waits)
	return k.Site.Withdraw(ctx, n.why+"; "+waits)
}

// certify certifies the node, which has a slot and is free, unless work arrives after all.
func (k *Keeper) certify(ctx context.Context, m Machine, n need, limits string) error {
	if err := k.Site.Withdraw(ctx, n.why); err != nil {
		return errors.Join(err, k.back(ctx, k.remain(ctx, n, "")))
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
		return k.await(ctx, n, strings.Join(busy, ", "))
	}
	k.Note("certified now, because %s", n.why)
	r := record{Version: 1, Machine: m, Suite: k.Suite, Limits: limits}
	if err := k.write(r); err != nil {
		return errors.Join(err, k.back(ctx, k.remain(ctx, n, "")))
	}
	st, err := k.Certify(ctx)
	if ctx.Err() != nil {
		return ctx.Err() // the next start certifies again
	}
	if r.Finished = k.Now(); err != nil {
		r.Verdict = result.Error
		return errors.Join(err, k.write(r), k.back(ctx, k.Site.Void(ctx, "the certification could not run")))
	}
	r.Verdict = st.Predicate.Verdict
	if r.Certificate, err = st.SHA256(); err != nil {
		return err
	}
	if after, err := k.Identify(ctx); err == nil && len(after.Since(m)) == 0 {
		r.Machine = after
	}
	err = k.write(r)
	told := k.Site.Act(ctx, st, "")
	if refused(told) { // another one would be, too: it is tried again after a while
		r.Verdict, r.Certificate = result.Error, ""
		err = errors.Join(err, told, k.write(r))
		told = k.Site.Void(ctx, "its certificate is not accepted")
	}
	return errors.Join(err, k.back(ctx, told))
}

// back gives the slot back once the site was told how the node is without it. told is the site's
// error: the node may then still be withdrawn, and the slot is kept for some turns more.
func (k *Keeper) back(ctx context.Context, told error) error {
	t := &k.turnstile
	switch {
	case told == nil:
		t.untold = time.Time{}
		return k.leave(ctx)
	case t.untold.IsZero():
		t.untold = k.Now()
	case k.Now().Sub(t.untold) > k.silence(): // other nodes wait for the slot
		return errors.Join(told, k.leave(ctx))
	}
	return told
}

// read reads the record. One of another version, or one that is damaged, is as none.
func (k *Keeper) read() (r record, err error) {
	if k.memory != nil {
		return *k.memory, nil
	}
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
	if k.memory != nil {
		*k.memory = r
		return nil
	}
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return outfile.Write(filepath.Join(k.Dir, file), append(b, '\n'))
}
