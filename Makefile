# What is needed: go, a C compiler, make, and npm (for `make setup`, once).
GO  ?= go
BIN := bin
# The commit goes into the binary where git can tell it (not in a plain archive, nor in somebody else's checkout).
VCS := -buildvcs=$(shell git rev-parse HEAD >/dev/null 2>&1 && echo true || echo false)
export CGO_ENABLED ?= 1

.PHONY: all build size house sbom release release-check module edge-all lib wheel wasm page setup demo played test test-short test-386 test-neon race mutate fuzz vuln vet lint fmt pins docs figures generate bench bench-peers service-test testdata conformance clean help

all: build

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(BIN)/fmp ## fetch and verify the ONNX Runtime library, once
	$(BIN)/fmp setup

# Without it grpc-go links its pages of traces, and with them templates, which keep 7 MB that nothing calls (docs/decisions/0004).
TAGS := -tags grpcnotrace

.PHONY: $(BIN)/fmp
$(BIN)/fmp: # go build knows best whether there is anything to do
	@mkdir -p $(BIN); echo "building $(BIN)/fmp: the first time, its packages are compiled, which takes about two minutes on two cores"
	@$(GO) build $(VCS) -trimpath -ldflags="-s -w" $(TAGS) -o $(BIN)/fmp ./cmd/fmp

# The client is kept small: no inlining in what it has that waits for networks, files and people, or is done once a model, and in text, printing,
# clocks, locks and reflection. It asks its servers one thing at a time: HTTP/2 would add 0.35 MB and serve nothing.
WAITS := \
  github.com/... net/... crypto/tls crypto/x509 google.golang.org/protobuf/... vendor/... fmp/cmd/... fmp/pipeline/internal/design \
  fmp/pipeline/federate/... fmp/onnx/suggest fmp/onnx/atomicfile fmp/onnx/regularfile fmp/pipeline/page encoding/asn1 text/... fmp/onnx/optim \
  fmp/onnx/npy archive/zip fmp/onnx/cost fmp/pipeline/classify golang.org/x/image/bmp golang.org/x/image/tiff/... golang.org/x/image/webp \
  golang.org/x/image/riff golang.org/x/image/ccitt fmp/pipeline/client fmp/models/signature fmp/pipeline/privacy/prio fmp/onnx/shape fmp/onnx/pass \
  fmp/onnx/internal/spell fmp/featurize/imagefile fmp/onnx/check fmp/onnx/op fmp/onnx/build fmp/onnx/serde fmp/onnx/onnxpb fmp/models mime/... encoding/json os/... log/... \
  errors sync fmt strings strconv bytes bufio sort reflect math/big time path/... unicode/... encoding/csv encoding/pem flag io/fs context syscall internal/poll crypto/rsa crypto/ecdsa crypto/ecdh \
  regexp/... fmp/onnx/printable fmp/onnx/message fmp/pipeline/tally fmp/pipeline/privacy golang.org/x/crypto/... golang.org/x/term image/gif go/token \
  crypto/hpke crypto/elliptic crypto/ed25519 crypto/x509/pkix crypto/internal/fips140/rsa crypto/internal/fips140/ecdsa crypto/internal/fips140/ecdh \
  crypto/internal/fips140/mlkem crypto/internal/fips140/tls12 crypto/internal/fips140/tls13 crypto/internal/fips140/drbg crypto/internal/fips140/hkdf \
  crypto/internal/fips140/hmac crypto/internal/fips140/edwards25519 crypto/internal/fips140/bigmod crypto/dsa crypto/cipher golang.org/x/sys/unix \
  encoding/base64 encoding/hex container/list crypto/internal/fips140/nistec/... crypto/internal/fips140/sha3 \
  fmp/featurize/imagefile/dicom golang.org/x/sync/semaphore fmp/onnx fmp/onnx/engine fmp/onnx/engine/pure fmp/onnx/internal/try fmp/pipeline/moments \
  crypto/internal/fips140/check crypto/internal/fips140cache crypto/internal/boring crypto/internal/fips140/sha256 crypto/internal/fips140/sha512
EDGE := $(VCS) -trimpath -ldflags="-s -w" -tags nethttpomithttp2 $(foreach p,$(WAITS),-gcflags=$(p)=-l) -gcflags=github.com/klauspost/...=

# Compilers for processors with fused operations are told not to use them: uploads have the same bytes everywhere (docs/edge.md).
UNFUSED = -gcflags=all=-d=fmahash=qn $(patsubst -gcflags=%=-l,'-gcflags=%=-l -d=fmahash=qn',$(patsubst -gcflags=%=,-gcflags=%=-d=fmahash=qn,$(EDGE)))

build: $(BIN)/fmp ## bin/fmp, and bin/fmp-edge without cgo
	@echo "building $(BIN)/fmp-edge"
	@CGO_ENABLED=0 $(GO) build $(EDGE) -o $(BIN)/fmp-edge ./cmd/fmp-edge

# In bytes, on linux/amd64; docs/speed.md says what has been left out for them.
BOUNDS := fmp:66000000 fmp-edge:12100000

size: build ## hold the programs to their largest sizes
	@for p in $(BOUNDS); do n=$$(wc -c < $(BIN)/$${p%:*}); echo "$${p%:*} has $$n bytes of $${p#*:}"; \
	  [ $$n -le $${p#*:} ] || { echo "$${p%:*} is too large: docs/speed.md, How large it is"; exit 1; }; done

sbom: build ## bin/fmp.cdx.json and bin/fmp-edge.cdx.json: modules and models, in CycloneDX
	$(GO) run ./docs/notices -sbom $(BIN)/fmp $(BIN)/fmp-edge

# fmp calls C, so that another platform needs a compiler for it: that of Zig knows all (its Python package is ziglang; ZIG="python -m ziglang").
# Platforms without one get the client alone.
ZIG ?= zig
# What Zig adds to a program (the C library's start) has paths of its cache in symbols, which are stripped: two builds have the same bytes.
STRIPPED := -extldflags=-Wl,--strip-all
DIST := dist
release: edge-all ## dist: archives of six platforms, .deb, a container image, bills of materials, digests; KEY=FILE signs them (fmp sign)
	@rm -rf $(BIN)/release; mkdir -p $(BIN)/release; cp $(BIN)/fmp-edge-*-* $(BIN)/release/
	@set -e; for p in linux-amd64-x86_64-linux-gnu.2.28 linux-arm64-aarch64-linux-gnu.2.28 windows-amd64-x86_64-windows-gnu; do \
	  os=$${p%%-*}; rest=$${p#*-}; arch=$${rest%%-*}; exe=; [ $$os = windows ] && exe=.exe; \
	  $(ZIG) version >/dev/null 2>&1 || { echo "no $(ZIG) for fmp on $$os/$$arch: its archive holds fmp-edge alone"; continue; }; \
	  echo "building fmp for $$os/$$arch"; CC="$(ZIG) cc -target $${rest#*-}" CGO_ENABLED=1 GOOS=$$os GOARCH=$$arch \
	    $(GO) build $(VCS) -trimpath -ldflags="-s -w -buildid= $(STRIPPED)" $(TAGS) -o $(BIN)/release/fmp-$$os-$$arch$$exe ./cmd/fmp; done
	$(GO) run ./docs/notices -sbom $(BIN)/release/fmp-*
	rm -rf $(DIST); $(GO) run ./docs/release -bin $(BIN)/release -out $(DIST)
	@[ -z "$(KEY)" ] && echo "not signed: give KEY=FILE, of fmp sign --new-key FILE" || $(BIN)/fmp sign $(DIST) --key $(KEY) --output $(DIST).sig

release-check: ## what a stranger does with dist: digests, README's lines without a compiler, dpkg; OTHER=FOLDER: the same bytes as another build's
	docs/release/check.sh $(DIST) "$(OTHER)" "$(KEY:=.pub)"

module: ## give the repository its public path: make module MODULE=host.tld/owner/fmp
	@[ -n "$(MODULE)" ] || { echo 'make module: give MODULE=host.tld/owner/fmp, the path under which others fetch it'; exit 2; }
	$(GO) run ./docs/module $(MODULE)

edge-all: ## bin/fmp-edge-OS-ARCH for every platform that the client is built for
	@set -e; for p in linux/amd64 linux/arm64 linux/arm/7 linux/riscv64 darwin/arm64 windows/amd64; do \
	  os=$${p%%/*}; arch=$${p#*/}; arm=; out=$(BIN)/fmp-edge-$$os-$$(echo $$arch | sed 's|/|v|'); \
	  case $$arch in arm/*) arm=$${arch#arm/}; arch=arm;; esac; \
	  case $$os in windows) out=$$out.exe;; esac; \
	  CGO_ENABLED=0 GOOS=$$os GOARCH=$$arch GOARM=$$arm $(GO) build $(UNFUSED) -o $$out ./cmd/fmp-edge; \
	  wc -c $$out; \
	done

wasm: ## bin/fmp-edge-js.wasm and bin/fmp-edge-wasip1.wasm
	@set -e; for os in js wasip1; do CGO_ENABLED=0 GOOS=$$os GOARCH=wasm $(GO) build $(EDGE) -o $(BIN)/fmp-edge-$$os.wasm ./cmd/fmp-edge; wc -c $(BIN)/fmp-edge-$$os.wasm; done

# They go with every binary.
LICENCES := LICENSE THIRD_PARTY.md

# The client as a C library (docs/edge-library.md), for this machine or, with LIB_OS, LIB_ARCH and CC, for another. iOS takes static ones alone.
LIB := $(BIN)/lib
LIB_OS ?= $(shell $(GO) env GOOS)
LIB_ARCH ?= $(shell $(GO) env GOARCH)
LIBFMP := $(if $(filter windows,$(LIB_OS)),fmp.dll,$(if $(filter darwin ios,$(LIB_OS)),libfmp.dylib,libfmp.so))
lib: ## bin/lib: libfmp, shared and static, fmp.h, and the licences
	@mkdir -p $(LIB)
	@set -e; for m in shared archive; do f=$(LIBFMP); case $$m in archive) f=libfmp.a;; esac; \
	  [ "$${m}$(LIB_OS)" != sharedios ] || continue; echo "building $(LIB)/$$f for $(LIB_OS)/$(LIB_ARCH)"; \
	  CGO_ENABLED=1 GOOS=$(LIB_OS) GOARCH=$(LIB_ARCH) $(GO) build $(VCS) -trimpath -ldflags="-s -w" -tags minimal -buildmode=c-$$m -o $(LIB)/$$f ./cmd/libfmp; \
	  rm -f $(LIB)/$${f%.*}.h $(LIB)/libfmp.h; wc -c $(LIB)/$$f; done; cp cmd/libfmp/fmp.h $(LICENCES) $(LIB)

wheel: lib ## bin/fmp-VERSION-py3-none-PLATFORM.whl: the library for Python
	$(GO) run ./cmd/libfmp/wheel $(LIB)/$(LIBFMP) cmd/libfmp/python $(BIN)

# The browser is asked for nothing but this folder, so that any web server can show it; the program is unpacked in the page.
PAGE := $(BIN)/page
page: ## bin/page: the client and the classifier for browsers, for fmp serve --page or any web server
	@mkdir -p $(PAGE); echo "building $(PAGE)"
	@CGO_ENABLED=0 GOOS=js GOARCH=wasm $(GO) build $(EDGE) -o $(BIN)/fmp-page.wasm ./cmd/fmp-page
	cp pipeline/page/static/* pipeline/internal/design/design.css onnx/simd/vector.js "$$($(GO) env GOROOT)/lib/wasm/wasm_exec.js" $(LICENCES) $(PAGE)
	gzip -9 -n -c $(BIN)/fmp-page.wasm > $(PAGE)/fmp.wasm.gz
	@wc -c $(BIN)/fmp-page.wasm $(PAGE)/fmp.wasm.gz; n=$$(wc -c < $(PAGE)/fmp.wasm.gz); [ $$n -le 5000000 ] || { echo "fmp.wasm.gz has more than 5,000,000 bytes"; exit 1; }

demo: setup build ## the table of all methods from raw images, with the defaults
	$(BIN)/fmp run

played: ## a whole round with a late site, a withdrawal, evaluation and drift; checks docs/played-round.md
	$(GO) test -count=1 ./docs/examples -run TestPlayedRound

test: setup vet testdata ## everything that must hold
	$(GO) test -timeout 25m ./...
	@set -ex; for d in bench/protocols bench/manifests bench/gomlx; do (cd $$d; GOWORK=off $(GO) vet .; GOWORK=off $(GO) test -count=1 .); done

test-short: ## the tests that take seconds
	$(GO) test -short ./...

house: ## size, comments, wide lines, longest function and words of pages, for ANCHORS (folders) too
	$(GO) run ./docs/house . $(ANCHORS)

vet: ## formatting and go vet
	@out=$$(gofmt -l $$(git ls-files '*.go' 2>/dev/null || find . -name '*.go')); \
	  if [ -n "$$out" ]; then echo "not formatted (run make fmt):"; echo "$$out"; exit 1; fi
	$(GO) vet ./...

fmt: ## format the sources
	gofmt -w $$(find . -name '*.go')

# Pinned, so that everybody sees the same findings; the go tool fetches and builds it.
STATICCHECK := $(GO) run honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOLANGCI := $(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
lint: vet ## staticcheck, and golangci-lint by .golangci.yml
	$(STATICCHECK) ./...
	$(GOLANGCI) run

# What the client links, and the standard's operator tests; a processor of 64 bits runs programs of 32.
test-386: ## go vet of the pipeline and the client's tests as on a machine of 32 bits (on amd64)
	@[ "$$($(GO) env GOHOSTARCH)" = amd64 ] || { echo 'programs for 386 run on amd64 alone: left out'; exit 0; }; set -ex; \
	  CGO_ENABLED=0 GOARCH=386 $(GO) vet ./pipeline/...; \
	  CGO_ENABLED=0 GOARCH=386 $(GO) test ./onnx/conformance $$($(GO) list -deps ./cmd/fmp-edge | grep '^fmp/')

# A processor of 64 bits that is no amd64 multiplies in NEON: its kernels run under emulation.
test-neon: ## tests of the kernels as arm64 runs them, under qemu-aarch64
	@q=$$(command -v qemu-aarch64 || command -v qemu-aarch64-static) || { echo 'qemu-aarch64 is missing: apt-get install qemu-user'; exit 1; }; set -x; \
	  CGO_ENABLED=0 GOARCH=arm64 $(GO) test -short -exec "$$q" ./onnx/dense ./onnx/internal/kernel

race: setup ## the race detector where goroutines share memory, on the short tests
	$(GO) test -race -short ./onnx/engine/... ./onnx/train ./featurize/extractor ./featurize/dataset ./pipeline/erm ./pipeline/lab/experiment \
	  ./pipeline/federate/work ./pipeline/meta ./pipeline/metric ./pipeline/posterior ./pipeline/lab/rival ./pipeline/sample ./cmd/fmp-edge

# A database that cannot be reached is no finding: it is said, and is no failure.
VULNDB ?= https://vuln.go.dev
vuln: ## known vulnerabilities of what is linked (govulncheck), where their database can be reached
	@if curl -fsS -m 20 -o /dev/null $(VULNDB)/index/db.json; then \
	  $(GO) run golang.org/x/vuln/cmd/govulncheck@v1.9.0 -db $(VULNDB) ./...; \
	else echo 'make vuln: the database of vulnerabilities at $(VULNDB) cannot be reached from here: nothing was checked'; fi

mutate: ## changes of single lines that a test must notice (docs/mutate/mutations.txt); PART=1/3 takes every third
	$(GO) run ./docs/mutate -part $(or $(PART),1/1) docs/mutate/mutations.txt

FUZZ ?= -time 3s -jobs 2
fuzz: ## every fuzz target for a few seconds
	nice $(GO) run ./docs/fuzz $(FUZZ)

# Settings of whoever makes the pages stay out of them.
CLEAN = env $$(env | sed -n -e 's/^\(FMP_[A-Z0-9_]*\)=.*/-u \1/p' -e 's/^\(ONNXRUNTIME_LIB\)=.*/-u \1/p')
docs: build ## pages of every command and setting in docs, and the tables of models and results
	rm -f docs/commands/*.md
	$(CLEAN) $(BIN)/fmp man --format markdown docs/commands
	$(CLEAN) $(BIN)/fmp config --markdown > docs/settings.md.tmp && mv docs/settings.md.tmp docs/settings.md
	$(GO) test ./docs -run "TestPageListsTheModels|TestResultsPage|TestScopes|TestMeasured|TestSummary|TestPrivacyPage|TestDrawings|TestCoverage|TestColluders|TestFalsePoints|TestMerging|TestLetterPage|TestLeaderboard" -update && $(GO) test ./docs -run "TestResultsForPeople" -update
	$(GO) run ./docs/notices THIRD_PARTY.md

figures: setup build ## the pictures in README.md and docs (needs Chromium; docs/screenshots.sh)
	$(GO) run ./docs/figures/martingale docs/figures/martingale.svg
	$(GO) run ./docs/figures/results latent docs/results docs/results/latent.svg
	$(GO) run ./docs/figures/results drift docs/results/martingale docs/results/martingale.svg
	$(GO) run ./docs/figures/results rounds docs/results docs/results/pretrained.svg
	$(GO) run ./docs/figures/scaling docs/figures/scaling.svg
	$(GO) run ./docs/figures/width draw docs/figures/width.txt docs/figures/width.svg
	$(GO) run ./docs/figures/results merging docs/results/merging.csv docs/figures/merging.svg
	$(CLEAN) $(BIN)/fmp run --seeds 1 --methods FMP --dataset.test 1000 --out runs/concept
	$(GO) run ./docs/figures/concept runs/concept docs/figures/concept.svg
	$(CLEAN) $(BIN)/fmp run --out runs/demo
	PATH="$$PWD/$(BIN):$$PATH" docs/screenshots.sh runs/demo

generate: ## Go code from the .proto files (needs protoc and protoc-gen-go)
	@for t in protoc protoc-gen-go; do PATH="$$PATH:$$($(GO) env GOPATH)/bin" command -v $$t >/dev/null || { echo "$$t is missing: install protobuf-compiler, and go install google.golang.org/protobuf/cmd/protoc-gen-go@latest"; exit 1; }; done
	PATH="$$PATH:$$($(GO) env GOPATH)/bin" protoc -I . --go_out=. --go_opt=paths=source_relative $$(find . -name '*.proto' -not -path './.git/*' -not -path './bench/*' | sed 's|^\./||')

bench: setup ## benchmarks
	$(GO) test -run '^$$' -bench . -benchmem ./...

bench-peers: ## a virtual environment with other programs, for fmp bench peers
	python3 -m venv bench/peers/venv
	bench/peers/venv/bin/pip install -q --require-hashes -r bench/peers/requirements.txt

runtimes: ## other runtimes, of Python and npm, which tests compare with: put bench/runtimes/venv/bin in PATH and bench/runtimes/node_modules in NODE_PATH
	python3 -m venv bench/runtimes/venv
	bench/runtimes/venv/bin/pip install -q --require-hashes -r bench/runtimes/requirements.txt
	npm install --prefix bench/runtimes --no-save --no-package-lock --no-audit --no-fund --ignore-scripts --loglevel=error

pins: ## requirements.txt of each requirements.in, with the digests of all packages (needs uv)
	for f in bench/peers bench/runtimes bench/service onnx/conformance/testdata; do \
	  uv pip compile -q --generate-hashes --universal --python-version 3.11 --no-header --no-emit-index-url $$f/requirements.in -o $$f/requirements.txt; done

service-test: build ## a real server tested from outside: its OpenAPI document by Schemathesis, predictions by tritonclient
	python3 -m venv bench/service/venv
	bench/service/venv/bin/pip install -q --require-hashes -r bench/service/requirements.txt
	bench/service/run.sh $(BIN)

# The tests are made from the standard's Python package, once a version, in a virtual environment that is thrown away.
ONNXTESTS := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/fmp/onnx-tests/$(shell sed -n 's/^const Version = "\(.*\)"/\1/p' onnx/internal/collection/collection.go)
TESTDATA ?= $(ONNXTESTS)
testdata: $(ONNXTESTS) ## the ONNX standard's operator tests, made once from its Python package (needs python3)
$(ONNXTESTS):
	@mkdir -p $(dir $@); v=$$(mktemp -d); trap 'rm -rf '$$v EXIT; set -ex; \
	  python3 -m venv $$v; $$v/bin/pip install -q --require-hashes -r onnx/conformance/testdata/requirements.txt; \
	  $$v/bin/python -W ignore onnx/conformance/testdata/collect.py $@

conformance: setup build testdata ## the ONNX standard's operator tests on both engines; writes docs/operators.md
	$(BIN)/fmp onnx test $(TESTDATA) --engine both --table docs/operators.md || [ $$? = 1 ] # what fails is known, see the table and its test

clean: ## remove what was built
	rm -rf $(BIN)
