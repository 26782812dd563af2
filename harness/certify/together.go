package certify

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/assay-hpc/assay/internal/result"
)

// A job of several machines that was cut off is resumed from one file for each machine, with the
// results of its own checks, and one of the first machine, with those of the joint checks. All are in
// the output directory, which the machines share or not.

// known is what a machine states of the run that was cut off; with Joint it is the first machine's
// answer to all.
type known struct {
	Own   []string        `json:"own"` // ids
	Joint []result.Result `json:"joint,omitempty"`
}

// openJobNotes is openNotes for each machine of a job. A check of each machine's own counts as done if
// all machines have its result, since all must arrive at the joint checks at about the same time.
func (c *Certification) openJobNotes(began time.Time) (err error) {
	c.notes, c.joint = &notes{began: began}, &notes{began: began}
	own := filepath.Join(c.Dir, "."+strings.ReplaceAll(c.node.Name, "/", "_")+notesFile)
	same := c.sameness(c.node.Identity)
	var mine known
	if c.Resume {
		// A machine without notes of its own, new or with a directory of its own, has no results.
		if err := c.notes.read(own, same); err != nil && !errors.Is(err, errNoNotes) {
			return err
		}
		for _, r := range c.notes.earlier {
			mine.Own = append(mine.Own, r.ID)
		}
	}
	b, err := json.Marshal(mine)
	if err != nil {
		return err
	}
	b, err = c.Fabric.Ask(b, func(all [][]byte) ([]byte, error) {
		answer, err := c.openJoint(all)
		if err != nil {
			return nil, err
		}
		return json.Marshal(answer)
	})
	if err != nil {
		return err
	}
	var all known
	if err := json.Unmarshal(b, &all); err != nil {
		return err
	}
	c.notes.earlier = slices.DeleteFunc(c.notes.earlier, func(r result.Result) bool { return !slices.Contains(all.Own, r.ID) })
	// The first machine has made the directory by now; on others it may not be there.
	if st, err := os.Stat(c.Dir); c.Dir != "" && err == nil && st.IsDir() {
		if err := c.notes.create(own, same); err != nil {
			return err
		}
	}
	c.notes.earlier = append(c.notes.earlier, all.Joint...)
	return nil
}

// openJoint opens the first machine's notes of joint checks, and determines what all machines know.
func (c *Certification) openJoint(stated [][]byte) (known, error) {
	all := known{Own: []string{}}
	var names []string
	seen := map[string]int{}
	for rank, b := range stated {
		if b == nil {
			continue
		}
		var k known
		if err := json.Unmarshal(b, &k); err != nil {
			return all, fmt.Errorf("%s gave %.80q: all machines must run the same harness", c.Fabric.Name(rank), b)
		}
		names = append(names, c.Fabric.Name(rank))
		for _, id := range k.Own {
			seen[id]++
		}
	}
	for id, n := range seen {
		if n == len(names) {
			all.Own = append(all.Own, id)
		}
	}
	if c.Dir == "" {
		return all, nil
	}
	slices.Sort(names)
	name, same := filepath.Join(c.Dir, notesFile), c.sameness(names)
	if c.Resume {
		if err := c.joint.read(name, same); err != nil {
			return all, err
		}
		all.Joint = c.joint.earlier
		c.notes.before = c.joint.before
	}
	return all, c.joint.create(name, same)
}
