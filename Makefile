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
.PHONY: help help-all
help: # targets whose description follows two hashes
	@sed -nE 's/^([a-z-]+):.*## /\1 /p' Makefile | $(LIST)
	@echo "make help-all lists all targets, and the parts of test and bench."
help-all: # those with a hash and a colon, too
	@sed -nE 's/^([a-z-]+):.*#[#:] /\1 /p' Makefile | $(LIST)
	@echo "Parts of the tests: make test ONLY=NAME" && sed -nE 's/^only_([a-z0-9]+)\(\) \{ # /\1 /p' .ci/test | $(LIST)
	@echo "Benchmarks: make bench ONLY=NAME" && sed -nE 's/^only_([a-z0-9]+)\(\) \{ # /\1 /p' .ci/bench | $(LIST)
LIST := awk '{ name = $$1; sub(/^[^ ]+ /, ""); printf "  %-14s %s\n", name, $$0 }'

.PHONY: deps
deps: ## install what a fresh Debian or Ubuntu lacks for building and testing (needs root)
	@./.ci/deps

.PHONY: build
build: $(BIN)/buildkitd ## build assay, harness and buildkitd into bin/
	$(GOBUILD) -ldflags '$(LDFLAGS)' -o $(BIN)/assay ./cmd/assay
	$(GOBUILD) -tags $(TAGS) -ldflags '$(LDFLAGS)' -o $(BIN)/harness ./cmd/harness

.PHONY: libnccl
libnccl: #: build libnccl.so.2, with which programs that link NCCL run on our engine, and libassay-coll.so into bin/ (needs cuda.h)
	CFLAGS=-Werror cmd/libnccl/build $(BIN) $(VERSION)
	@# Without a build ID the file says nothing of the linker's options, one of which is a path.
	CGO_ENABLED=1 CGO_CFLAGS='-O2 -Wno-deprecated-declarations -I$(CURDIR)/internal/gpu/driver/include' go build -trimpath -tags 'cuda nvml $(TAGS)' -buildmode=c-shared \
	  -ldflags "$(LDFLAGS) -buildid= -extldflags '-Wl,--version-script=$(CURDIR)/cmd/libnccl/engine.map'" -o $(BIN)/libassay-coll.so ./cmd/libnccl
	rm -f $(BIN)/libassay-coll.h

.PHONY: kms
kms: #: build the programs that let harness and assay sign with keys of AWS, Google Cloud and Azure into bin/
	cd cmd/sigstore-kms && $(GOBUILD) -ldflags '-s -w' -o $(abspath $(BIN))/sigstore-kms-awskms .
	ln -sf sigstore-kms-awskms $(BIN)/sigstore-kms-gcpkms
	ln -sf sigstore-kms-awskms $(BIN)/sigstore-kms-azurekms

# Built from our own go.sum: the version is pinned by go.mod.
$(BIN)/buildkitd: go.mod go.sum
	$(GOBUILD) -ldflags '-s -w' -o $@ github.com/moby/buildkit/cmd/buildkitd

.PHONY: demo
demo: ## build the image fabric-debian12, certify it, print the certificate
	@./.ci/deps build
	@$(MAKE) --no-print-directory build
	$(BIN)/assay build fabric-debian12 --platform linux/$(shell go env GOARCH) --out oci:$(OUT)
	$(BIN)/assay inspect oci:$(OUT):fabric-debian12

.PHONY: demo-cuda
demo-cuda: #: build and certify the smallest CUDA image, 13.1 from Ubuntu's archive alone (amd64; 10 to 20 minutes on two busy cores, 0.6 GB to download, 20 GB of disk)
	@./.ci/deps build
	@$(MAKE) --no-print-directory build
	$(BIN)/assay build cuda13.1-ubuntu26.04-minimal --out oci:$(OUT)
	$(BIN)/assay inspect oci:$(OUT):cuda13.1-ubuntu26.04-minimal

.PHONY: test
test: ## run the tests, and build, certify and run an image (12 minutes, as root); ONLY=quick: without root, two minutes
	@./.ci/test $(ONLY)

# STEPS are steps of .ci/gpu/run, such as overlap; without any, all.
.PHONY: test-gpu
test-gpu: ## build the bundle that tests and measures the engine on GPUs, and run it where there are some
	LDFLAGS='$(LDFLAGS)' ./.ci/gpu/bundle $(OUT)/assay-gpu.tar.xz
	@if nvidia-smi -L >/dev/null 2>&1; then \
	  rm -rf $(OUT)/gpu && mkdir -p $(OUT)/gpu && tar -xJf $(OUT)/assay-gpu.tar.xz -C $(OUT)/gpu && $(OUT)/gpu/run -o $(OUT)/gpu-results $(STEPS); \
	else echo "skipped: no GPU on this machine: run the bundle on one that has some"; fi

.PHONY: bench-train
bench-train: #: time training and serving in PyTorch on our libnccl.so.2 and on NVIDIA's, in turns (needs GPUs and PyTorch; WORKLOADS, ROUNDS, COUNT)
	@$(MAKE) --no-print-directory test-gpu STEPS=train

.PHONY: site
site: ## build docs/ as a static site with search into out/site (needs npm)
	@OUT='$(OUT)' ./.ci/site/build

.PHONY: release-files
release-files: deps #: build what a release has, with the harness for GPUs, for this architecture into out/release (installs CUDA's toolkit)
	./.ci/deps-cuda
	OUT='$(OUT)/release' ARCHES="$$(go env GOARCH)" ./.ci/release

.PHONY: lint
lint: ## check formatting, vet, staticcheck and workflows (a minute)
	@test -z "$$(gofmt -l . | tee /dev/stderr)" || { echo "run: make fmt" >&2; exit 1; }
	go vet ./...
	CGO_ENABLED=0 go vet ./... # as the binaries are built
	cd cmd/sigstore-kms && go vet . && go test .
	go tool staticcheck ./...
	go tool actionlint
	go test -count=1 -run '^Test(Workflow|Actions)' .

.PHONY: fmt
fmt: #: format the code
	gofmt -w .

.PHONY: golden
golden: #: write golden files again; review the difference as code
	go test -short $$(grep -rlE 'flag.Bool\("update"|assay/internal/golden"' --include=*_test.go . | xargs -n1 dirname | sort -u) -args -update

.PHONY: fuzz
fuzz: #: run every fuzz target for half a minute
	@go list ./... | while read -r pkg; do \
	  for f in $$(go test -list '^Fuzz' $$pkg 2>/dev/null | grep '^Fuzz'); do \
	    echo "$$pkg $$f"; go test -run '^$$' -fuzz "^$$f$$" -fuzztime 30s -fuzzminimizetime 10x $$pkg || exit 1; \
	  done; done

.PHONY: bench
bench: #: run the Go benchmarks; ONLY=NAME: compare with a peer
	@./.ci/bench $(ONLY)

.PHONY: clean
clean: ## remove bin/ and out/ (caches and the builder's state stay in the user's cache directory)
	rm -rf $(BIN) $(OUT)
