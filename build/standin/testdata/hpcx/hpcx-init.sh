# Stand-in for HPC-X's script: source it, then call hpcx_load.
hpcx_load() {
	HPCX_DIR=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE:-$0}")")" && pwd)
	export HPCX_DIR HPCX_HOME=$HPCX_DIR
	export HPCX_UCX_DIR=$HPCX_DIR/ucx HPCX_UCC_DIR=$HPCX_DIR/ucc HPCX_SHARP_DIR=$HPCX_DIR/sharp HPCX_HCOLL_DIR=$HPCX_DIR/hcoll
	export HPCX_MPI_TESTS_DIR=$HPCX_DIR/ompi/tests HPCX_IPM_DIR=
	export HPCX_OSU_DIR=$HPCX_DIR/ompi/tests/osu-micro-benchmarks HPCX_OSU_CUDA_DIR=$HPCX_DIR/ompi/tests/osu-micro-benchmarks-cuda
	export HPCX_MPI_DIR=$HPCX_DIR/ompi MPI_HOME=$HPCX_DIR/ompi OPAL_PREFIX=$HPCX_DIR/ompi
	export HPCX_NCCL_RDMA_SHARP_PLUGIN_DIR=$HPCX_DIR/nccl_rdma_sharp_plugin
	export PATH=$HPCX_UCX_DIR/bin:$HPCX_UCC_DIR/bin:$HPCX_HCOLL_DIR/bin:$HPCX_SHARP_DIR/bin:$HPCX_MPI_DIR/bin:$PATH
	export LD_LIBRARY_PATH=$HPCX_NCCL_RDMA_SHARP_PLUGIN_DIR/lib:$HPCX_UCX_DIR/lib/ucx:$HPCX_UCX_DIR/lib:$HPCX_UCC_DIR/lib/ucc:$HPCX_UCC_DIR/lib:$HPCX_HCOLL_DIR/lib:$HPCX_SHARP_DIR/lib:$HPCX_MPI_DIR/lib:$LD_LIBRARY_PATH
}
