package bootstrap

// What MPICH's hydra sets: PMI_RANK, PMI_SIZE and PMI_FD, on which PMI-1 is
// spoken; MPI_LOCALRANKID and MPI_LOCALNRANKS.
func detectHydra(e *environment, w *World) bool {
	if !e.has("PMI_RANK") && !e.has("PMI_SIZE") {
		return false
	}
	w.Rank, w.Size = e.place("PMI_RANK", "PMI_SIZE")
	e.localPlace(w, "MPI_LOCALRANKID", "MPI_LOCALNRANKS")
	w.job = "hydra " + e.getenv("PMI_ID")
	if e.has("PMI_FD") {
		w.pmi = &pmiSpec{fd: e.number("PMI_FD", "PMI_RANK"), version: 1}
	}
	return true
}

// detectPMIx is a PMIx launcher that is none of the above. Its environment has
// no size, and the PMIx protocol is not spoken here.
func detectPMIx(e *environment, w *World) bool {
	if !e.has("PMIX_RANK") {
		return false
	}
	w.Rank = e.number("PMIX_RANK", "PMIX_NAMESPACE")
	e.fail("PMIX_RANK=%d, but neither OMPI_COMM_WORLD_SIZE nor SLURM_STEP_NUM_TASKS says how many ranks there are: set RANK, WORLD_SIZE and MASTER_ADDR", w.Rank)
	return true
}
