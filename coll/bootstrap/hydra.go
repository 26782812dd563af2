package bootstrap

// What MPICH's hydra sets: PMI_RANK, PMI_SIZE, and PMI_FD, which uses PMI-1;
// MPI_LOCALRANKID and MPI_LOCALNRANKS.
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

// detectPMIx detects any other PMIx launcher. Its environment contains no size, and this
// package does not implement the PMIx protocol.
func detectPMIx(e *environment, w *World) bool {
	if !e.has("PMIX_RANK") {
		return false
	}
	w.Rank = e.number("PMIX_RANK", "PMIX_NAMESPACE")
	e.fail("PMIX_RANK=%d, but neither OMPI_COMM_WORLD_SIZE nor SLURM_STEP_NUM_TASKS says how many ranks there are: set RANK, WORLD_SIZE and MASTER_ADDR", w.Rank)
	return true
}
