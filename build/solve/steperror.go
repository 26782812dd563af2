package solve

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/moby/buildkit/client"

	"github.com/assay-hpc/assay/build/fetch"
	"github.com/assay-hpc/assay/build/recipe"
)

// A StepError says which step of which image failed, with the end of its log.
type StepError struct {
	Image string // "fabric-debian12 amd64"
	Step  string // the step's name in the display
	Log   string // its last lines
	Err   error
}

func (e *StepError) Error() string {
	if e.Step == "" {
		return fmt.Sprintf("%s: %v", e.Image, e.Err)
	}
	msg := fmt.Sprintf("%s: step %q failed: %s", e.Image, e.Step, why(e.Err))
	if e.Log != "" {
		msg += "\n    | " + strings.ReplaceAll(e.Log, "\n", "\n    | ")
	}
	return msg
}

// why returns an error's text without the failed script, which BuildKit quotes completely; the
// step's name identifies it.
func why(err error) string {
	text := err.Error()
	if _, rest, ok := strings.Cut(text, "did not complete successfully: "); ok {
		return rest
	}
	return strings.TrimPrefix(text, "failed to solve: ")
}

func (e *StepError) Unwrap() error { return e.Err }

// mismatch matches BuildKit's message that a download is not what was locked.
var mismatch = regexp.MustCompile(`digest mismatch sha256:([0-9a-f]+): sha256:([0-9a-f]+)|digest mismatch for \S+: sha256:([0-9a-f]+) \(expected: sha256:([0-9a-f]+)\)`)

// gone matches BuildKit's message that a server no longer has a file.
var gone = regexp.MustCompile(`invalid response status (404|410)\b`)

// explain names the download with the wrong checksum, and the remedy if an archive has dropped a
// superseded package.
func explain(r *recipe.Recipe, err error) error {
	var e *StepError
	if !errors.As(err, &e) {
		return err
	}
	if gone.MatchString(err.Error()) {
		e.Err = fmt.Errorf("%w; %s", e.Err, staleHint(r.Target))
		return e
	}
	m := mismatch.FindStringSubmatch(err.Error())
	if m == nil {
		return err
	}
	sum := &fetch.ChecksumError{URL: e.Step, Got: cmp.Or(m[1], m[3]), Want: cmp.Or(m[2], m[4])}
	if url := downloads(r)["sha256:"+sum.Want]; url != "" {
		sum.URL = url
	}
	e.Err = sum
	return e
}

// staleHint returns the remedy for locked files that their source has dropped.
func staleHint(target string) string {
	return fmt.Sprintf("the source has dropped this version since it was locked: run \"assay lock --update %s\" and review the difference, or give --mirror FROM=TO with a mirror that still has it, such as a directory of \"assay lock --keep\"", target)
}

// downloads maps the digests of all downloads of a recipe to their URLs.
func downloads(r *recipe.Recipe) map[string]string {
	urls := map[string]string{}
	for _, s := range r.Stages {
		for _, src := range s.Sources() {
			if src.Kind == recipe.FromURL {
				urls[src.Digest] = src.Ref
			}
		}
		for _, st := range s.Steps {
			if a, ok := st.(recipe.Apt); ok {
				for _, d := range a.Debs {
					urls["sha256:"+d.SHA256] = d.URL
				}
			}
		}
	}
	return urls
}

// culprit returns the vertex that the solve's error is about: others failed because of it, or
// were cancelled.
func (w *watcher) culprit(err error) *client.Vertex {
	var best *client.Vertex
	for _, v := range w.failed {
		if strings.Contains(err.Error(), v.Error) {
			return v
		}
		if best == nil || strings.Contains(best.Error, "context canceled") {
			best = v
		}
	}
	return best
}

func (w *watcher) stepError(err error) error {
	e := &StepError{Image: w.name, Err: err}
	if v := w.culprit(err); v != nil {
		e.Step = v.Name
		if b := w.logs[v.Digest]; b != nil {
			e.Log = lastLines(b.String(), 15)
		}
	}
	return e
}

func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	if len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	return strings.Join(lines, "\n")
}
