package driver

import (
	"maps"
	"slices"

	"github.com/assay-hpc/assay/build/matrix"
	"github.com/assay-hpc/assay/build/recipe"
)

// A Turn says when one platform of a target is built, if each is built on a machine of its own
// but stages that targets share are built only once. The first target that needs a stage builds
// it; the others that need it run after that target and take the stage from its cache.
type Turn struct {
	Wave   int                 // 0 is first; all of a wave can be built concurrently
	Shared map[string][]string // stages built by other targets, by target
}

// Turns returns the turns of targets on a platform, by name.
func (w *Workspace) Turns(targets []matrix.Target, p recipe.Platform) (map[string]Turn, error) {
	turns := map[string]Turn{}
	first := map[string]string{} // the target that builds a stage, by the stage's hash
	for _, t := range targets {
		if !slices.Contains(t.Platforms, p) {
			continue
		}
		// The machine has the platform's own architecture.
		res, err := w.Recipe(t, p, p)
		if err != nil {
			return nil, err
		}
		turn := Turn{Shared: map[string][]string{}}
		stages := res.Recipe.StageHashes()
		for _, name := range slices.Sorted(maps.Keys(stages)) {
			owner, ok := first[stages[name]]
			switch {
			case !ok:
				first[stages[name]] = t.Name
			case owner != t.Name:
				turn.Shared[owner] = append(turn.Shared[owner], name)
				turn.Wave = max(turn.Wave, turns[owner].Wave+1)
			}
		}
		turns[t.Name] = turn
	}
	return turns, nil
}
