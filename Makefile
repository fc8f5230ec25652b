# What one does with a checkout of Quern. `make` alone prints the targets.
#
# Everything that is built lands in build/: the binary, example plugins in build/handlers, tools in
# build/bin, Blueque's Python package in build/venv, the demo's pictures in build/demo.

SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PKG     ?= ./...
COUNT   ?= 1
TIMEOUT ?= 30m
BENCH   ?= .

# The version is what Go finds in the repository; where it can find none (no git, an archive of the
# sources, no commit yet) the build must not fail over it.
vcs = $(shell git rev-parse --verify --quiet HEAD > /dev/null 2>&1 && echo true || echo false)

# Go's flag for tests in a hurry: the longest are shorter or left out, as are the modules below. `make check`, which CI runs,
# and `make examples` leave out nothing; nor does `make test SHORT=`.
SHORT ?= -short
check examples: override SHORT =

go_test = go test $(SHORT) -vet=off -count=$(COUNT) -timeout=$(TIMEOUT)

# What tests build is what users build, so that all is compiled once; what vet finds is lint's.
as_built = CGO_ENABLED=0 GOFLAGS="$${GOFLAGS-} -trimpath"
plain    = $(as_built) $(go_test)

# Modules of their own, whose dependencies the program does not have: comparisons with peers, a fleet with faults, the Helm chart.
modules = runtime/peers host/chaos cmd/quern/deploy/helm

# The race detector has nothing to find in the rewriter and in the test of releases, which compute on one goroutine, nor where
# guests are what is tested: the host has tests of its own. There it takes ten times as long.
unraced  = %/host/rollout/trial %/runtime/wasm %/runtime/runtimetest %/sdk/e2e %/sdk/assemblyscript %/sdk/conformance \
           %/sdk/javascript %/sdk/python %/sdk/rust %/sdk/sdktest/parity github.com/quern-project/quern/examples%
raced    = $(filter-out $(unraced),$(shell go list $(PKG)))

# The slowest packages.
slow = $(unraced) %/cmd/quern %/host %/host/api/page %/runtime

# The tests of languages whose engines have not been built are left out.
engineless = $(foreach language,javascript python,$(if $(wildcard build/engines/$(language).wasm),,$(language)))

# So are those of the page without a browser.
browserless = $(if $(shell command -v chromium),,chromium)

# An example plugin is what has a manifest, examples/FOLDER/NAME.yaml. Its source, Go or C, lies in
# examples/FOLDER/NAME, or else beside the manifest.
manifest   = $(wildcard examples/*/$1.yaml)
source     = $(firstword $(wildcard examples/*/$1/) $(dir $(call manifest,$1)))
written_in = $(foreach name,$(basename $(notdir $(call manifest,*))),$(if $(wildcard $(call source,$(name))*.$1),build/handlers/$(name).wasm))
go_plugins = $(call written_in,go)
c_plugins  = $(call written_in,c)

.PHONY: help
help: ## print this list
	@awk -F ':.*## ' '/^[a-z0-9_-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

.PHONY: build
build: ## build the binary, build/quern
	CGO_ENABLED=0 go build -trimpath -buildvcs=$(vcs) -o build/quern ./cmd/quern

.PHONY: plugins
plugins: $(go_plugins) ## build the example plugins into build/handlers (those in C where clang can)
	@if .ci/clang > /dev/null; then $(MAKE) --no-print-directory c-plugins; else echo 'plugins: left out those in C' >&2; fi

.PHONY: demo
demo: build build/handlers/thumbnails.wasm ## make thumbnails of real photographs, from nothing to build/demo
	go run ./examples/thumbnails/demo -quern build/quern -plugins build/handlers \
		-photos examples/thumbnails/photos -out build/demo

.PHONY: recording
recording: build ## record the terminals that the README and the manual show
	.ci/record build/quern cmd/quern/manual/first.svg
	.ci/record build/quern cmd/quern/manual/rollout.svg

.PHONY: demo-python
demo-python: build ## run a handler in Python, from its source to a completed task (needs make engines)
	examples/invoice/tests/demo build/quern build/demo-python

platforms = linux/amd64 linux/arm64 darwin/amd64 darwin/arm64

.PHONY: dist
dist: ## pack binaries with engines, licenses and SBOMs, for pip and npm, too, and a container image into build/dist; build again to compare (needs make deps-all)
	.ci/dist build $(platforms)
	.ci/again build
	.ci/packages build $(platforms) >> build/dist/SHA256SUMS
	.ci/image build/dist $(foreach arch,amd64 arm64,$(arch)=$$(echo build/dist/quern-*-linux-$(arch)/quern)) >> build/dist/SHA256SUMS

.PHONY: deps
deps: ## bring what the tests need: redis-server, prometheus, compilers for wasm, Blueque
	@.ci/deps

.PHONY: engines
engines: ## build the interpreters of JavaScript and Python into build/engines (and bring what builds them)
	@.ci/deps engines
	@sdk/javascript/engine/build build/engines
	@sdk/python/engine/build build/engines

.PHONY: deps-all
deps-all: deps engines ## bring what the tests of all languages and of the page need, too: the engines, a browser

.PHONY: test
test: ready ## run the tests, the longest of them in short (PKG=./sdk/... for some, COUNT=n to repeat, SHORT= in full)
	$(plain) $(PKG)
	$(if $(SHORT)$(filter-out ./...,$(PKG)),,for module in $(modules); do (cd $$module && $(plain) ./...); done)
	@$(if $(SHORT),echo 'test: shortened or left out the longest tests (of the examples: make examples) and left out those of $(modules); make test SHORT= runs all' >&2)
	@$(if $(strip $(engineless) $(browserless)),echo 'test: left out what runs $(strip $(engineless) $(browserless)); make deps-all brings what it needs' >&2)

.PHONY: quick
quick: ready ## run the tests of the quicker packages, for work in progress
	$(plain) $(filter-out $(slow),$(shell go list ./...))

.PHONY: race
race: deps ## run the tests of what is concurrent with the race detector, which needs a C compiler
	$(if $(raced),CGO_ENABLED=1 $(go_test) -race $(raced))

.PHONY: examples
examples: deps ## build and run the examples as their READMEs say
	$(plain) ./examples/...

.PHONY: e2e
e2e: deps ## run the command line's end-to-end tests alone
	$(plain) ./cmd/...

.PHONY: bench
bench: deps ## run the benchmarks (PKG=./runtime BENCH=Run COUNT=10 for benchstat)
	go test -run='^$$' -bench='$(BENCH)' -benchmem -count=$(COUNT) -timeout=$(TIMEOUT) $(PKG)

.PHONY: chaos
chaos: deps ## break a fleet for a minute and read its books (QUERN_CHAOS_SEED=N repeats a plan)
	QUERN_CHAOS=full go test -count=1 -run='^TestHostile(Stop|BesideGC|Pauses)$$' ./runtime
	QUERN_CHAOS=full go test -count=1 -run='^Test(NoStarvation|TickerAlone)$$' ./plugins
	cd host/chaos && QUERN_CHAOS=full go test -v -count=1 -timeout=30m .

.PHONY: soak
soak: deps ## look for what a task leaves to the next in 100,000 in each reset mode; leaks; 100 idle plugins, also of interpreters; the compiler's faults
	QUERN_SOAK=full go test -v -count=1 -timeout=2h -run='^Test(Programs|TallPrograms|Pressure)$$' ./runtime/wasm
	QUERN_SOAK=full go test -v -count=1 -timeout=3h -run='^Test(Residue|Soak)' ./runtime

.PHONY: bench-peers
bench-peers: deps ## what a task costs here, in wazero and Extism; in each language; whole queues beside Asynq, River, BullMQ, Celery, RQ (BENCH=Queues for a part)
	.ci/peers
	cd runtime/peers && go test -run='^$$' -bench='$(BENCH)' -benchtime=1x -timeout=3h .

.PHONY: figures
figures: deps ## measure whole queues beside others, and write what the README shows of it (about twenty minutes)
	.ci/peers
	cd runtime/peers && QUERN_BENCH_OUT=$(abspath build/figures) go test -run='^$$' -bench=Queues -benchtime=1x -timeout=3h .
	.ci/figures build/figures

.PHONY: lint
lint: ## vet (also as on macOS), golangci-lint with the formatting, go.mod
	go vet ./...
	GOOS=darwin GOARCH=arm64 CGO_ENABLED=0 go vet ./...
	go mod tidy -diff
	.ci/golangci-lint run ./...
	for module in $(modules); do (cd $$module && go vet ./... && go mod tidy -diff && $(CURDIR)/.ci/golangci-lint run ./...); done

.PHONY: fmt
fmt: ## format all Go files (gofumpt, gci)
	.ci/golangci-lint fmt ./...
	for module in $(modules); do (cd $$module && $(CURDIR)/.ci/golangci-lint fmt ./...); done

.PHONY: check
check: lint test race ## lint, test and race, what CI runs

.PHONY: clean
clean: ## remove build/
	rm -rf build

# ---- what the targets above are made of

# ready compiles the tests while deps downloads. What does not compile shows when the tests run.
.PHONY: ready
ready:
	@.ci/deps & $(as_built) go list -e -export -test $(PKG) > /dev/null || true; wait $$!

# What Go builds it looks at itself, and is quick when nothing changed. Plugins in Go are handlers, and
# those in C that use the header. A plugin appears under its name at once and whole: a host may be watching
# the folder.
.PHONY: c-plugins
c-plugins: $(c_plugins)

$(go_plugins): build/handlers/%.wasm: FORCE
	@mkdir -p $(@D)
	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -trimpath -buildvcs=false -o $(@D)/.$*.tmp ./$(call source,$*)
	@$(publish)

# It is linked without -O, for which clang would have a wasm-opt in PATH change it.
$(c_plugins): build/handlers/%.wasm: FORCE
	@rm -rf $(@D)/.$*.objects; mkdir -p $(@D)/.$*.objects
	for source in $(call source,$*)*.c; do \
		$$(.ci/clang) --target=wasm32-wasi -O2 -I sdk/c -c -o "$(@D)/.$*.objects/$$(basename "$$source").o" "$$source"; done
	$$(.ci/clang) --target=wasm32-wasi $(if $(shell grep -l QUERN_HANDLER $(call source,$*)*.c),-mexec-model=reactor) \
		-o $(@D)/.$*.tmp $(@D)/.$*.objects/*.o
	@rm -r $(@D)/.$*.objects
	@$(publish)

publish = cp $(call manifest,$*) $(wildcard $(dir $(call manifest,$*))*.json) $(@D)/; mv $(@D)/.$*.tmp $@

.PHONY: FORCE
FORCE:
