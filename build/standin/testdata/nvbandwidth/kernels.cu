// Stand-in for nvbandwidth's copy kernels.
__global__ void copyKernel(unsigned *to, const unsigned *from, unsigned long words) {
	for (unsigned long i = 0; i < words; i++) to[i] = from[i];
}
