# assay: two binaries, and the buildkitd that builds start when they are given
# none. "make help" lists the targets.

BIN     := bin
VERSION := $(shell sed -n 's/^const Version = "\(.*\)"/\1/p' assay.go)
COMMIT  := $(shell git rev-parse HEAD 2>/dev/null)
DATE    := $(shell git log -1 --format=%cI 2>/dev/null)
PKG     := github.com/assay-hpc/assay/internal/version
LDFLAGS := -s -w -X $(PKG).Version=$(VERSION) -X $(PKG).Commit=$(COMMIT) -X $(PKG).Date=$(DATE)
GOBUILD := CGO_ENABLED=0 go build -trimpath
# What the harness is compiled with inside the images, too.
TAGS    := urfave_cli_no_docs
OUT     ?= out

.DEFAULT_GOAL := help
.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: deps
deps: ## install what a fresh Debian or Ubuntu lacks (needs root)
	@./.ci/deps

.PHONY: build-deps
build-deps: # the part of them that building images needs
	@./.ci/deps build

.PHONY: build
build: $(BIN)/buildkitd ## build assay, harness and buildkitd into bin/
	$(GOBUILD) -ldflags '$(LDFLAGS)' -o $(BIN)/assay ./cmd/assay
	$(GOBUILD) -tags $(TAGS) -ldflags '$(LDFLAGS)' -o $(BIN)/harness ./cmd/harness

.PHONY: libnccl
libnccl: ## build libnccl.so.2, by which programs that link NCCL run on our engine, and libassay-coll.so into bin/ (needs cuda.h)
	CFLAGS=-Werror cmd/libnccl/build $(BIN) $(VERSION)
	@# Without a build ID the file says nothing of the linker's options, one of which is a path.
	CGO_ENABLED=1 CGO_CFLAGS='-O2 -Wno-deprecated-declarations' go build -trimpath -tags 'cuda nvml $(TAGS)' -buildmode=c-shared \
	  -ldflags "$(LDFLAGS) -buildid= -extldflags '-Wl,--version-script=$(CURDIR)/cmd/libnccl/engine.map'" -o $(BIN)/libassay-coll.so ./cmd/libnccl
	rm -f $(BIN)/libassay-coll.h

.PHONY: kms
kms: ## build the programs that let harness and assay sign with keys of AWS, Google Cloud and Azure into bin/
	cd cmd/sigstore-kms && $(GOBUILD) -ldflags '-s -w' -o $(abspath $(BIN))/sigstore-kms-awskms .
	ln -sf sigstore-kms-awskms $(BIN)/sigstore-kms-gcpkms
	ln -sf sigstore-kms-awskms $(BIN)/sigstore-kms-azurekms

# Built from our own go.sum: the version is pinned by go.mod.
$(BIN)/buildkitd: go.mod go.sum
	$(GOBUILD) -ldflags '-s -w' -o $@ github.com/moby/buildkit/cmd/buildkitd

.PHONY: demo
demo: build-deps build ## build fabric-debian12, certify it, print the certificate
	$(BIN)/assay build fabric-debian12 --platform linux/$(shell go env GOARCH) --out oci:$(OUT)
	$(BIN)/assay inspect oci:$(OUT):fabric-debian12

.PHONY: demo-cuda
demo-cuda: build-deps build ## build and certify the smallest CUDA image from Debian's archive alone (amd64; 2 GB to download, 20 GB of disk, 10 minutes)
	$(BIN)/assay build cuda12.4-debian13-minimal --out oci:$(OUT)
	$(BIN)/assay inspect oci:$(OUT):cuda12.4-debian13-minimal

# How long a package's tests may take before they count as hung, on a machine at
# load 10, too. No test fails because it is slow.
HANG := 4h

# What several threads or processes share is tested with the race detector; all
# else has it in test-race. These are quick to compile and to run with it.
RACE := ./coll/bootstrap ./coll/debug ./coll/host ./coll/transport/... ./harness/fabric ./harness/gather ./harness/hunt ./harness/suite \
	./internal/meet ./perftest/mesh ./perftest/probe/... ./perftest/tcp

.PHONY: test
test: deps build ## the tests: units, scripts, races where threads meet, an image built, certified and run for real (12 minutes)
	go test -short -timeout $(HANG) $$(go list ./... | grep -vxF -e "$$(go list $(RACE))" | grep -vE '/build/(e2e|standin)$$')
	go test -short -race -timeout $(HANG) $(RACE)
	go test -count=1 -timeout $(HANG) ./build/e2e ./build/standin
	@echo "left to make test-all: the race detector for the rest, CUDA images of stand-ins, a build with nothing cached,"
	@echo "jobs on a real Slurm, launchers"

# More of these, which take minutes; the largest machine of internal/host has no threads, and takes two.
RACE_ALL := ./coll ./dcgm/... ./coll/colltest ./coll/flight $(RACE) ./perftest/... $(addsuffix /...,$(filter-out ./internal/host,$(wildcard ./internal/*)))

# Tests of build/e2e that are left out: CI leaves the longest to test-images and
# test-cold.
SKIP :=

.PHONY: test-all
test-all: deps build ## what make test leaves out, too: more races, CUDA images of stand-ins, Slurm, launchers (an hour)
	ASSAY_TEST_ALL=1 go test -short -timeout $(HANG) $$(go list ./... | grep -vxF -e "$$(go list $(RACE_ALL))" | grep -vE '/build/(e2e|standin)$$')
	ASSAY_TEST_ALL=1 go test -short -race -timeout $(HANG) $(RACE_ALL)
	ASSAY_TEST_ALL=1 go test -count=1 -timeout $(HANG) $(if $(SKIP),-skip '$(SKIP)') ./build/e2e ./build/standin
	go test -count=1 -timeout $(HANG) -run '^Test(Launch|Slurm)' ./cmd/harness
	@echo "left to targets of their own: test-race, test-cold, test-long, test-cuda, test-emulated, test-libnccl, test-api, test-kernels, test-arm64, test-gpu, test-rdma, test-fabric,"
	@echo "test-rootless, test-kubernetes, test-chart, test-jobs, test-html, test-site, test-junit, and test-slurm with eight nodes; make help says what they are"

.PHONY: test-race
test-race: deps ## the race detector for every package (half an hour)
	go test -short -race -timeout $(HANG) $$(go list ./... | grep -vE '/build/(e2e|standin)$$')

.PHONY: test-images
test-images: deps build ## of test-all the longest: a CUDA image from Debian's archive, the whole matrix of stand-ins, an image twice from nothing (half an hour)
	./.ci/deps-cuda
	ASSAY_TEST_ALL=1 go test -count=1 -v -timeout $(HANG) -run '^Test(CUDAOfDebian|StandinMatrix|FabricReproduces)$$' ./build/e2e

.PHONY: test-cold
test-cold: deps build ## builds with nothing cached: the Dockerfile's image, caches between builders, two builds at once, builds killed in every phase (half an hour)
	ASSAY_TEST_COLD=1 go test -count=1 -v -timeout $(HANG) -run '^Test(DockerfileIsTheSameImage|SharedStages|Killed|TwoBuilds)$$' ./build/e2e

.PHONY: test-long
test-long: ## tests of packages without -short: larger jobs, every algorithm at every size, an hour of random programs, statistics (hours)
	ASSAY_FUZZ_SECONDS=3600 ASSAY_TEST_ALL=1 go test -count=1 -timeout $(HANG) $$(go list ./... | grep -vE '/build/(e2e|standin)$$')

.PHONY: test-cuda
test-cuda: deps ## the code for GPUs, without one: vet, tests, whether the PTX is current (installs CUDA's toolkit)
	@./.ci/test-cuda

.PHONY: test-hostile
test-hostile: build-deps build ## images that try to forge their certificate, to hang, to exhaust the machine or to stay on it; make test runs it, too (needs root)
	go test -count=1 -v -timeout $(HANG) -run '^TestHostile' ./build/e2e

.PHONY: test-arm64
test-arm64: deps build ## build and certify fabric-debian12 for linux/arm64 under emulation
	ASSAY_TEST_ARM64=1 go test -count=1 -v -timeout $(HANG) -run TestFabricBothPlatforms ./build/e2e

.PHONY: test-kernels
test-kernels: deps build ## build a CUDA image whose harness has kernels by this machine's nvcc (some minutes)
	./.ci/deps-cuda
	ASSAY_TEST_KERNELS=1 go test -count=1 -v -timeout $(HANG) -run '^TestHarnessCUDA$$' ./build/e2e

.PHONY: test-emulated
test-emulated: ## the engine for GPUs and its kernels, whole, on an emulated driver (some minutes)
	./.ci/deps-cuda
	CGO_ENABLED=1 go test -tags cuda -count=1 -timeout $(HANG) -run '^TestEmulated$$' ./coll/cuda
	go test -count=1 -timeout $(HANG) -run '^TestEmulator$$' ./coll/cuda/kernels

.PHONY: test-libnccl
test-libnccl: ## libnccl.so.2: what it exports, what it asks of its engine, C programs of several ranks on an emulated driver (some minutes)
	./.ci/deps-cuda
	go test -count=1 -timeout $(HANG) ./cmd/libnccl

.PHONY: test-api
test-api: ## the C API: what 240 cases of calls return, on an emulated driver; on GPUs ./run api of test-gpu's bundle compares ours with NVIDIA's library
	./.ci/deps-cuda
	go test -count=1 -timeout $(HANG) -run '^TestEmulated$$/^Answers$$' ./cmd/libnccl

.PHONY: gpu-image
gpu-image: build ## build cuda12.4-debian13-runtime and make of it what a GPU machine enters it with: out/gpu-image
	$(BIN)/assay build cuda12.4-debian13-runtime --out oci:$(OUT)
	./.ci/gpu/image $(OUT) cuda12.4-debian13-runtime $(OUT)/gpu-image

.PHONY: test-gpu
test-gpu: ## build the bundle that tries and measures the engine on GPUs, and run it if there are some here
	LDFLAGS='$(LDFLAGS)' ./.ci/gpu/bundle $(OUT)/assay-gpu.tar.xz
	@if nvidia-smi -L >/dev/null 2>&1; then \
	  rm -rf $(OUT)/gpu && mkdir -p $(OUT)/gpu && tar -xJf $(OUT)/assay-gpu.tar.xz -C $(OUT)/gpu && $(OUT)/gpu/run -o $(OUT)/gpu-results; \
	else echo "skipped: no GPU on this machine: run the bundle on one that has some"; fi

.PHONY: bench-overlap
bench-overlap: ## on two GPUs: collectives beside matrix products of PyTorch, by our libnccl and by NVIDIA's in one run
	LDFLAGS='$(LDFLAGS)' ./.ci/gpu/bundle $(OUT)/assay-gpu.tar.xz
	@if [ "$$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')" -ge 2 ]; then \
	  rm -rf $(OUT)/gpu && mkdir -p $(OUT)/gpu && tar -xJf $(OUT)/assay-gpu.tar.xz -C $(OUT)/gpu && $(OUT)/gpu/run -o $(OUT)/gpu-results overlap; \
	else echo "skipped: fewer than two GPUs on this machine: on one that has them, unpack the bundle and ./run overlap"; fi

.PHONY: test-rdma
test-rdma: ## the tests that need RDMA devices, in an emulated machine that has two (makes it first, some minutes, needs root)
	@OUT='$(OUT)' ./.ci/rdma/test

.PHONY: test-slurm
test-slurm: deps ## a real Slurm: rendered jobs on two nodes and on eight, also as one dies; nodes drained and taken back (some minutes, needs root)
	@./.ci/slurm

.PHONY: test-fabric
test-fabric: ## the suite fabric and the hunt on a cluster of namespaces, hosts made slow, lossy or dead at random, TRIALS=N of each (5 minutes, needs root)
	@./.ci/fabric/test

.PHONY: test-rootless
test-rootless: deps build ## build an image as a fresh user without rights, run it as an unknown user ID by podman and runc (needs root)
	@./.ci/rootless/test

.PHONY: test-kubernetes
test-kubernetes: ## nodes marked on a real API server, all rendered manifests taken by it, the chart; it is built first (six minutes, kept in the cache)
	@./.ci/kubernetes/test

.PHONY: test-chart
test-chart: ## the Helm chart on a real API server and scheduler, by kubeconform with its schemas: 1,000 forgeries refused; alerts and dashboard on a real Prometheus (a minute, built as for test-kubernetes)
	@./.ci/kubernetes/test chart

.PHONY: test-jobs
test-jobs: ## every rendered Slurm script through a real sbatch --test-only, bash and shellcheck (a minute)
	@./.ci/jobs

.PHONY: test-html
test-html: ## pages of reports in a browser: axe, keyboard, light and dark, narrow and wide (needs chromium and npm)
	@OUT='$(OUT)/html' ./.ci/html

.PHONY: site
site: ## build docs/ as a static site with search into out/site (needs npm)
	@OUT='$(OUT)' ./.ci/site/build

.PHONY: test-site
test-site: ## the site in a browser: links, axe, light and dark, narrow and wide, search (needs chromium and npm; 4 minutes)
	@OUT='$(OUT)' ./.ci/site/test

.PHONY: pictures
pictures: build ## make the pictures in docs/pictures again (needs chromium, npm and pngquant)
	@OUT='$(OUT)/pictures' ./.ci/pictures

.PHONY: test-junit
test-junit: ## JUnit files of reports against Jenkins's schema (needs xmllint and npm)
	@OUT='$(OUT)/junit' ./.ci/junit

.PHONY: release-snapshot
release-snapshot: ## build what a release has into out/release, twice, and install it; changed files must be refused (3 minutes)
	@OUT='$(OUT)/release' ./.ci/test-release

.PHONY: test-fresh
test-fresh: deps ## README's section Start on a bare Debian and a bare Ubuntu, with the clock (half an hour, needs root)
	@OUT='$(OUT)' ./.ci/fresh

.PHONY: release-files
release-files: deps ## build what a release has into out/release, for this architecture, the harness for GPUs among it (installs CUDA's toolkit)
	./.ci/deps-cuda
	OUT='$(OUT)/release' ARCHES="$$(go env GOARCH)" ./.ci/release

.PHONY: lint
lint: ## formatting, vet, staticcheck, workflows by actionlint and by audits of zizmor's names
	@test -z "$$(gofmt -l . | tee /dev/stderr)" || { echo "run: make fmt" >&2; exit 1; }
	go vet ./...
	cd cmd/sigstore-kms && go vet . && go test .
	go tool staticcheck ./...
	go tool actionlint
	go test -count=1 -run '^Test(Workflow|Actions)' .

.PHONY: vuln
vuln: ## known vulnerabilities in what the code calls (needs the Go vulnerability database; "skipped" without it)
	@./.ci/vuln/check

.PHONY: fmt
fmt: ## format the code
	gofmt -w .

.PHONY: golden
golden: ## regenerate golden files; review the difference as code
	go test -short $$(grep -rlE 'flag.Bool\("update"|assay/internal/golden"' --include=*_test.go . | xargs -n1 dirname | sort -u) -args -update

.PHONY: fuzz
fuzz: ## run every fuzz target for half a minute
	@go list ./... | while read -r pkg; do \
	  for f in $$(go test -list '^Fuzz' $$pkg 2>/dev/null | grep '^Fuzz'); do \
	    echo "$$pkg $$f"; go test -run '^$$' -fuzz "^$$f$$" -fuzztime 30s -fuzzminimizetime 10x $$pkg || exit 1; \
	  done; done

.PHONY: bench
bench: ## Go benchmarks of what must be fast
	go test -run '^$$' -bench . -benchmem ./build/matrix ./build/driver ./build/jobs ./cmd/assay ./harness/... ./coll/... ./dcgm/...

.PHONY: bench-build
bench-build: deps build ## the stand-in matrix by assay and by buildctl, in one run: prints the ratios
	./.ci/deps-cuda
	go build -o $(BIN)/buildctl github.com/moby/buildkit/cmd/buildctl
	go run ./build/e2e/bench -buildkitd $(BIN)/buildkitd -buildctl $(BIN)/buildctl

.PHONY: bench-rdma
bench-rdma: ## RDMA tests of the harness and of perftest in turns, on soft RoCE in a virtual machine: prints the ratios
	ASSAY_RDMA_BENCH=write_bw,read_bw,send_bw,read_lat OUT=out/instructions ./.ci/rdma/test -instructions -timeout 3000 -run '^TestVersus$$' ./perftest/probe
	ASSAY_RDMA_BENCH=write_lat,send_lat OUT=out/clock ./.ci/rdma/test -timeout 3000 -run '^TestVersus$$' ./perftest/probe
	cat out/instructions/rdma/versus.md out/clock/rdma/versus.md

.PHONY: bench-coll
bench-coll: deps ## our collectives and OpenMPI's, and sockets against iperf3, in one run: prints the ratios
	mkdir -p $(BIN)
	mpicc -O2 -o $(BIN)/collbench ./coll/perf/peers/mpi/collbench.c
	$(GOBUILD) -o $(BIN)/bench ./coll/perf/peers/bench
	$(BIN)/bench -mpi $(BIN)/collbench -ranks 2,4 -f 8
	$(BIN)/bench -mpi $(BIN)/collbench -network -e 67108864 -f 8

.PHONY: clean
clean: ## remove what was built here (images, caches and the builder's state stay in the user's cache directory)
	rm -rf $(BIN) $(OUT)
