package image

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/assay-hpc/assay/harness/suite"
	"github.com/assay-hpc/assay/internal/confine"
	"github.com/assay-hpc/assay/internal/result"
)

// mpiEnv lets Open MPI start two ranks as root on one processor. Each version reads its own
// variables and ignores the others; command-line options do not allow that.
var mpiEnv = []string{
	"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", // 3 to 5
	"OMPI_MCA_rmaps_base_oversubscribe=1",                  // 4
	"PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe", // 5
	"OMPI_MCA_btl_base_warn_component_unused=0",            // no network is expected
}

const ranks = 2

// lineOf returns the line that `harness rank` prints and mpiRanks expects.
func lineOf(rank, size int) string { return fmt.Sprintf("assay rank %d of %d", rank, size) }

var rankLine = regexp.MustCompile(`assay rank \d+ of \d+`)

// mpiRanks checks that mpirun starts two ranks that know their rank numbers. The ranks are this
// harness: whether an MPI program communicates is left to the checks of the components.
func (s *state) mpiRanks(ctx context.Context, env *suite.Env) result.Result {
	if _, err := env.Root.LookPath("mpirun", env.Getenv("PATH")); err != nil {
		return result.Skipped("there is no mpirun in PATH")
	}
	if s.Runner == nil {
		return result.Skipped(notInside)
	}
	out, err := s.run(ctx, env, confine.Program{Args: []string{"mpirun", "-np", fmt.Sprint(ranks), s.Runner.Self(), "rank"}, Env: mpiEnv})
	if err != nil {
		return result.Failed("%v", err).WithOutput(out)
	}
	got := rankLine.FindAllString(out, -1)
	slices.Sort(got)
	var want []string
	for r := range ranks {
		want = append(want, lineOf(r, ranks))
	}
	if !slices.Equal(got, want) {
		return result.Failed("the ranks called themselves %q; want %q", got, want).WithOutput(out)
	}
	return result.Passed("%s", strings.Join(got, ", ")).WithOutput(out)
}

// rankVars are the variables in which launchers pass a process its rank and the number
// of ranks: Open MPI, MPICH and Intel MPI (PMI), Slurm.
var rankVars = [][2]string{
	{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}, {"PMI_RANK", "PMI_SIZE"}, {"SLURM_PROCID", "SLURM_NTASKS"},
}

// ownRank returns the line that "harness rank" prints: which rank this process is, as its launcher
// says.
func ownRank(getenv func(string) string) (string, error) {
	for _, v := range rankVars {
		rank, err1 := strconv.Atoi(getenv(v[0]))
		size, err2 := strconv.Atoi(getenv(v[1]))
		if err1 == nil && err2 == nil {
			return lineOf(rank, size), nil
		}
	}
	return "", fmt.Errorf("no launcher says which rank this is (looked for %v)", rankVars)
}
