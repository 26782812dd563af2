package certify

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/infile"
	"github.com/assay-hpc/assay/internal/result"
	"github.com/assay-hpc/assay/internal/version"
)

// notesFile records the progress of a run in its output directory, so that another run
// can resume after an interruption.
const notesFile = ".certify.partial"

// notes records the results so far: a line that identifies the run, and a line for each
// finished check.
type notes struct {
	began   time.Time     // this run, with the monotonic clock's reading
	before  time.Duration // from the start of the run that this one resumes until then
	earlier []result.Result
	file    *os.File // nil: nothing is recorded
	kept    bool     // there are results to resume with
}

// noted is the first line.
type noted struct {
	Run     string    `json:"run"` // digest of what two runs must have in common
	Started time.Time `json:"started"`
}

// openNotes starts new notes, or resumes earlier ones. It refuses to resume those of another suite,
// program or machine.
func (c *Certification) openNotes(began time.Time) (*notes, error) {
	n := &notes{began: began}
	if c.Dir == "" || c.file == nil {
		if c.Resume && c.file == nil {
			return nil, exit.Usagef("--resume is for suites about the machine; %s is made anew each time", c.suite.Name)
		}
		return n, nil
	}
	name := filepath.Join(c.Dir, notesFile)
	same := c.sameness(c.node.Identity)
	if c.Resume {
		if err := n.read(name, same); err != nil {
			return nil, err
		}
	}
	return n, n.create(name, same)
}

// create starts to record.
func (n *notes) create(name, same string) (err error) {
	if n.file, err = os.Create(name); err != nil {
		return exit.With(exit.NotDone, err)
	}
	n.line(noted{same, n.began.Add(-n.before)})
	return nil
}

// times returns when the run started, if it ends now. The clock may have been set since it started:
// how long it took is by the monotonic clock, and when it ended by the clock as it is now.
func (n *notes) times(now time.Time) (started, finished time.Time) {
	return now.Add(-n.before - max(0, now.Sub(n.began))), now
}

// sameness returns a digest of all that must be equal in two runs with comparable results, of the
// machines that these names identify.
func (c *Certification) sameness(machines []string) string {
	var ids []string
	for _, check := range c.Checks {
		ids = append(ids, check.ID)
	}
	limits := ""
	if c.site != nil {
		limits = c.site.SHA256
	}
	b, _ := json.Marshal([]any{version.Get(), c.suite.Name, c.Hardware, c.GPUs, c.Ports, limits, machines, ids, c.after})
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// errNoNotes: there is nothing to resume.
var errNoNotes = errors.New("no run that was cut off")

// stale is the maximum age of a run to resume: a node changes over time.
const stale = 6 * time.Hour

func (n *notes) read(name, same string) error {
	f, err := infile.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return exit.Usagef("--resume: %s has %w", filepath.Dir(name), errNoNotes)
	}
	if err != nil {
		return exit.Usagef("--resume: %w", err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, certificate.MaxSize)
	var head noted
	if !lines.Scan() || json.Unmarshal(lines.Bytes(), &head) != nil {
		return exit.Usagef("--resume: %s cannot be read; run without --resume", name)
	}
	switch {
	case head.Run != same:
		return exit.Usagef("--resume: the run in %s was of another suite, harness or machine; run without --resume", filepath.Dir(name))
	case time.Since(head.Started) > stale:
		return exit.Usagef("--resume: the run in %s began %v ago, and results of more than %v ago do not count; run without --resume", filepath.Dir(name), time.Since(head.Started).Round(time.Minute), stale)
	}
	n.before = max(0, n.began.Sub(head.Started)) // 0 if the clock was set back since
	for lines.Scan() {
		var r result.Result
		if json.Unmarshal(lines.Bytes(), &r) != nil || r.Validate() != nil {
			break // truncated last line of a run that was killed
		}
		// Errors and skips run again: an error may have caused the skip, and a skip costs
		// nothing.
		if r.Verdict != result.Error && r.Verdict != result.Skip {
			n.earlier = append(n.earlier, r)
		}
	}
	return nil
}

// add records a result. A full disk does not end the run: writing the certificate will
// report it.
func (n *notes) add(r *result.Result) {
	if n != nil && n.file != nil {
		n.line(r)
		n.kept = true
	}
}

func (n *notes) line(v any) {
	b, err := json.Marshal(v)
	if err == nil {
		_, err = n.file.Write(append(b, '\n'))
	}
	if err != nil {
		n.done()
	}
}

// done deletes the notes.
func (n *notes) done() {
	if n != nil && n.file != nil {
		os.Remove(n.file.Name())
		n.close()
	}
}

func (n *notes) close() {
	if n != nil && n.file != nil {
		n.file.Close()
		n.file = nil
	}
}

// hint says how to resume, if possible.
func (n *notes) hint() string {
	if n.file == nil || !n.kept {
		return ""
	}
	return fmt.Sprintf(" (--resume goes on with what is in %s)", filepath.Dir(n.file.Name()))
}
