package world

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/assay-hpc/assay/coll"
	"github.com/assay-hpc/assay/coll/knob"
	"github.com/assay-hpc/assay/coll/perf"
	"github.com/assay-hpc/assay/internal/exit"
)

// rival adds our own engine with other variables to a world, if --versus sets variables.
func (j *job) rival(ctx context.Context, w *World, versus string, devices []int) error {
	if !strings.Contains(versus, "=") {
		return nil
	}
	environ := append(strings.Split(versus, ","), os.Environ()...) // the first of duplicates counts
	knobs, warnings, err := knob.Load(environ, nil)
	if err != nil {
		return exit.Usagef("--versus %s: %w", versus, err)
	}
	for _, w := range knob.News(warnings) { // the rival may then not differ at all
		if j.where.Rank == 0 {
			fmt.Fprintf(j.warn, "harness: --versus: %v\n", w)
		}
	}
	other := *knobs
	other.CommID = ""
	id, err := shareID(ctx, w.Comms)
	if err != nil {
		return err
	}
	comms, err := j.join(ctx, id, &other, devices)
	if err != nil {
		return fmt.Errorf("--versus %s: %w", versus, err)
	}
	w.keep(comms)
	r := perf.Rival{Engine: versus, Version: libraryVersion}
	for i, c := range comms {
		like, err := w.Comms[i].(member).like(c)
		if err != nil {
			return err
		}
		r.Comms = append(r.Comms, like)
	}
	w.Against = append(w.Against, r)
	return nil
}

// shareID creates the ID of another communicator of the same ranks.
func shareID(ctx context.Context, comms []perf.Comm) (id coll.UniqueID, err error) {
	ids := make([]coll.UniqueID, len(comms))
	err = each(len(comms), func(i int) error {
		var mine []byte
		if comms[i].Rank() == 0 {
			id, err := coll.GetUniqueID(coll.Config{})
			if err != nil {
				return err
			}
			mine = id[:]
		}
		all, err := comms[i].Exchange(ctx, mine)
		if err == nil && copy(ids[i][:], all[0]) != len(id) {
			err = errors.New("rank 0 has no ID for a second communicator")
		}
		return err
	})
	return ids[0], err
}
