# What people and CI run. Each target says what it does; `make help` lists them.
MODULES := proto parser gateway spool filter deliver services tests
BIN     := .bin
export PATH := $(CURDIR)/$(BIN):$(PATH)

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 18

.PHONY: build
build: ## build the program into .bin/rohrpost
	go build -o $(BIN)/ ./services/cmd/rohrpost

.PHONY: test
test: ## every quick test: the README's command
	go test work

.PHONY: race
race: ## every quick test with the race detector
	go test -race work

.PHONY: processes-test
processes-test: ## the end-to-end tests against separate operating-system processes, with kills
	go test -tags processes -timeout 20m ./tests/e2e/... ./tests/bench

.PHONY: images
images: ## make the base images of docker-compose.yml locally, where no registry can be reached
	deploy/offline/build-images.sh

.PHONY: compose-test
compose-test: images ## the containers on a real engine: faults, scaling, certificates, a trace in Jaeger
	go test -tags compose -timeout 60m -v ./tests/compose

.PHONY: compose-scaling
compose-scaling: images ## how fast 1, 2 and 4 parsers of 0.25 CPU read heavy mail; on an idle machine
	go test -tags compose -timeout 60m -run '^$$' -bench ParserScaling -benchtime 1x -v ./tests/compose

.PHONY: rohrload
rohrload: ## build the load generator and sink into .bin/rohrload
	go build -o $(BIN)/ ./tests/cmd/rohrload

.PHONY: bench
bench: rohrload build ## measure this pipeline, 30 minutes on an idle machine; BENCH=full takes hours, ONLY=regexp picks cases
	$(BIN)/rohrload bench $(if $(filter full,$(BENCH)),--full --rounds 5) $(if $(ONLY),--only '$(ONLY)')

.PHONY: bench-peers
bench-peers: rohrload build ## measure this pipeline beside Postfix and the machine's floors, in turn; as root
	@command -v /usr/sbin/postfix >/dev/null || tests/load/peers/install-postfix.sh
	$(BIN)/rohrload peers $(if $(filter full,$(BENCH)),--full --rounds 5) $(if $(ONLY),--only '$(ONLY)')

.PHONY: bench-spool
bench-spool: rohrload build ## measure the spool alone, and River on the same life, 10 minutes on an idle machine; ONLY=regexp picks cases
	$(BIN)/rohrload spool $(if $(ONLY),--only '$(ONLY)')

.PHONY: bench-gateway
bench-gateway: rohrload build ## measure the gateway alone, beside the bare SMTP library, 8 minutes on an idle machine; ONLY=regexp picks cases
	$(BIN)/rohrload gateway $(if $(ONLY),--only '$(ONLY)')

.PHONY: profile
profile: ## where a message's CPU goes: profiles of each service into .profile/ and a table; 1 minute on an idle machine
	@mkdir -p .profile
	PROFILE_DIR=$(CURDIR)/.profile go test -tags profile -count 1 -timeout 10m -v -run WhereCPUGoes ./tests/profile

SEED ?= 0
DURATION ?= 2m
.PHONY: chaos
chaos: ## mail while everything breaks, judged afterwards: 3 minutes; SEED=n and DURATION repeat a run, DURATION=30m goes on longer
	go run ./tests/cmd/rohrchaos --seed $(SEED) --duration $(DURATION)

.PHONY: chaos-plant
chaos-plant: ## plant three faults, one after the other, and see that chaos finds each: 6 minutes, more where a seed is not enough
	go run ./tests/cmd/rohrchaos --seed $(SEED) --duration 75s --plant ack,token,adopt

.PHONY: bench-parser
bench-parser: ## the parser against enmime and go-message on the shared corpus, and how it scales; on an idle machine
	go test -run '^$$' -bench 'Corpus|Attachment' -benchmem -count 5 ./tests/mime
	go test -run '^$$' -bench Scaling -benchtime 5x ./tests/mime

.PHONY: fuzz-seeds
fuzz-seeds: ## replay the committed fuzz seeds (go test does so too)
	go test -run Fuzz ./parser/... ./gateway/... ./proto/wire

FUZZTIME ?= 10m
.PHONY: fuzz
fuzz: ## look for content that breaks the parser, or gets by the gateway, or is decoded in another way, FUZZTIME (10m) for each target
	@for p in parser gateway gateway/wire proto/wire; do for t in $$(grep -ho 'func Fuzz[A-Za-z]*' $$p/*_test.go | cut -d' ' -f2); do \
		echo "$$p $$t"; go test -run '^$$' -fuzz "^$$t$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 50x ./$$p || exit 1; done; done

.PHONY: generate
generate: $(BIN)/buf $(BIN)/protoc-gen-go $(BIN)/protoc-gen-go-grpc $(BIN)/protoc-gen-go-wire ## make the Go code of the protocol again
	buf format -w
	buf generate

.PHONY: verify
verify: generate ## fail if generated code or go.mod files are not up to date
	git diff --exit-code -- proto
	@test -z "$$(git ls-files --others --exclude-standard proto/gen)" || { git status --short proto/gen; exit 1; }

.PHONY: lint
lint: $(BIN)/buf $(BIN)/golangci-lint ## vet, golangci-lint once for each module, buf lint and breaking
	buf lint
	$(MAKE) --no-print-directory breaking
	go vet work
	@for m in $(MODULES); do echo "golangci-lint $$m"; (cd $$m && golangci-lint run --build-tags processes,compose,profile ./...) || exit 1; done

.PHONY: breaking
breaking: $(BIN)/buf ## compare the protocol with the last tag; before v0.1.0 it only reports
	@tag=$$(git describe --tags --abbrev=0 2>/dev/null); \
	if [ -z "$$tag" ]; then echo "buf breaking: no tag yet, nothing to compare with"; \
	else buf breaking --against ".git#tag=$$tag" || [ "$$(printf '%s\nv0.1.0\n' "$$tag" | sort -V | head -1)" != v0.1.0 ]; fi

.PHONY: modules
modules: ## build each module on its own, as those who import it do
	@for m in $(MODULES); do echo "GOWORK=off build $$m"; (cd $$m && GOWORK=off go build ./... && GOWORK=off go vet ./...) || exit 1; done

.PHONY: tidy
tidy: ## go mod tidy in every module
	@for m in $(MODULES) tools; do (cd $$m && GOWORK=off go mod tidy) || exit 1; done

.PHONY: compose-check
compose-check: ## check that the compose file is valid, with each override and every profile
	docker compose --profile '*' config -q
	for f in deploy/compose.*.yaml; do SMARTHOST=relay.example:25 MAIL_HOSTNAME=mx.example docker compose -f docker-compose.yml -f $$f config -q || exit 1; done

# The tools have a module of their own outside go.work: buf needs a pre-release of protobuf.
$(BIN)/buf: tools/go.mod
	@mkdir -p $(BIN)
	GOWORK=off go -C tools build -o ../$(BIN)/ github.com/bufbuild/buf/cmd/buf

$(BIN)/protoc-gen-go-grpc: tools/go.mod
	@mkdir -p $(BIN)
	GOWORK=off go -C tools build -o ../$(BIN)/ google.golang.org/grpc/cmd/protoc-gen-go-grpc

$(BIN)/protoc-gen-go-wire: tools/go.mod $(wildcard tools/protoc-gen-go-wire/*.go)
	@mkdir -p $(BIN)
	GOWORK=off go -C tools build -o ../$(BIN)/ ./protoc-gen-go-wire

$(BIN)/golangci-lint: tools/go.mod
	@mkdir -p $(BIN)
	GOWORK=off go -C tools build -o ../$(BIN)/ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

$(BIN)/protoc-gen-go: proto/go.mod
	@mkdir -p $(BIN)
	GOWORK=off go -C proto build -o ../$(BIN)/ google.golang.org/protobuf/cmd/protoc-gen-go
